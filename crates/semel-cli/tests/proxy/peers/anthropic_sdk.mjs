// Anthropic's SDK for Node. Usage: anthropic_sdk.mjs URL CALLS PLAIN|STREAM SECONDS; prints what it was told.
import Anthropic from "@anthropic-ai/sdk";

const [url, calls, how, seconds] = process.argv.slice(2);
const client = new Anthropic({ baseURL: url, apiKey: "sk-1", timeout: Number(seconds) * 1000 });

async function ask() {
  const asked = { model: "m", max_tokens: 10, messages: [{ role: "user", content: "hello" }] };
  if (how === "plain") {
    return (await client.messages.create(asked)).content[0].text;
  }
  return await client.messages.stream(asked).finalText();
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
