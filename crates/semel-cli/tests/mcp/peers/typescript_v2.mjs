// A program with the official TypeScript SDK that asks again when its patience ends.
//
// Usage: typescript_v2.mjs stdio ERA COMMAND... | typescript_v2.mjs http ERA URL
// It calls a tool, and again if there was no answer; then once more, as it has the result. It prints what it got.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const ORDER = { order_id: 'o-7', amount: 4200 };
const MODES = { legacy: 'legacy', modern: { pin: '2026-07-28' } };

// Long enough for the call to arrive, and short enough for a test.
const PATIENCE_MS = 1000;

const [how, era, ...target] = process.argv.slice(2);
const transport =
    how === 'http'
        ? new StreamableHTTPClientTransport(new URL(target[0]))
        : new StdioClientTransport({ command: target[0], args: target.slice(1) });
const client = new Client({ name: 'peer', version: '1' }, { versionNegotiation: { mode: MODES[era] } });
await client.connect(transport);
await client.listTools();
const call = { name: 'charge', arguments: ORDER };
let got;
try {
    await client.callTool(call, { timeout: PATIENCE_MS });
} catch {
    got = await client.callTool(call);
}
if (got === undefined) throw new Error('the first call was answered');
const again = await client.callTool(call);
console.log(JSON.stringify([got, again].map((result) => result.content[0].text)));
await client.close();
process.exit(0);
