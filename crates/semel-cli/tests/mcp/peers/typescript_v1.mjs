// The same as typescript_v2.mjs with the SDK that most programs still have; it speaks the legacy era only.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const ORDER = { order_id: 'o-7', amount: 4200 };

// Long enough for the call to arrive, and short enough for a test.
const PATIENCE_MS = 1000;

const [how, , ...target] = process.argv.slice(2);
const transport =
    how === 'http'
        ? new StreamableHTTPClientTransport(new URL(target[0]))
        : new StdioClientTransport({ command: target[0], args: target.slice(1) });
const client = new Client({ name: 'peer', version: '1' });
await client.connect(transport);
await client.listTools();
const call = { name: 'charge', arguments: ORDER };
let got;
try {
    await client.callTool(call, undefined, { timeout: PATIENCE_MS });
} catch {
    got = await client.callTool(call);
}
if (got === undefined) throw new Error('the first call was answered');
const again = await client.callTool(call);
console.log(JSON.stringify([got, again].map((result) => result.content[0].text)));
await client.close();
process.exit(0);
