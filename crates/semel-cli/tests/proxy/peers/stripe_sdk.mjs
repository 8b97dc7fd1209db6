// Stripe's SDK for Node. Usage: stripe_sdk.mjs URL CALLS PLAIN|STREAM SECONDS; prints what it was told.
import Stripe from "stripe";

const [url, calls, , seconds] = process.argv.slice(2);
const { hostname, port } = new URL(url);
const timeout = Number(seconds) * 1000;
const stripe = new Stripe("sk_test_1", { host: hostname, port, protocol: "http", timeout, maxNetworkRetries: 2 });
const told = [];
for (let call = 0; call < Number(calls); call += 1) {
  try {
    const intent = await stripe.paymentIntents.create({ amount: 500, currency: "eur" });
    told.push(intent.id);
  } catch (error) {
    told.push(`error ${error.statusCode}`);
  }
}
console.log(JSON.stringify(told));
