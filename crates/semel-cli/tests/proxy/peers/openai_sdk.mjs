// OpenAI's SDK for Node. Usage: openai_sdk.mjs URL CALLS PLAIN|STREAM SECONDS; prints what it was told.
import OpenAI from "openai";

const [url, calls, how, seconds] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "sk-1", timeout: Number(seconds) * 1000 });

async function ask() {
  const asked = { model: "m", messages: [{ role: "user", content: "hello" }] };
  if (how === "plain") {
    return (await client.chat.completions.create(asked)).choices[0].message.content;
  }
  let text = "";
  for await (const piece of await client.chat.completions.create({ ...asked, stream: true })) {
    text += piece.choices[0].delta.content ?? "";
  }
  return text;
}

const told = [];
for (let call = 0; call < Number(calls); call += 1) {
  try {
    told.push(await ask());
  } catch (error) {
    told.push(error.status === undefined ? `broken ${error.name}` : `error ${error.status}`);
  }
}
console.log(JSON.stringify(told));
