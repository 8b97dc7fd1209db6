"""The same as python_v2.py with the SDK that most programs still have; it speaks the legacy era only."""

import asyncio
import contextlib
import datetime
import json
import sys

import anyio
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

ORDER = {"order_id": "o-7", "amount": 4200}

# Long enough for the call to arrive, and short enough for a test.
PATIENCE = datetime.timedelta(seconds=1)


@contextlib.asynccontextmanager
async def connected(how, target):
    if how == "http":
        streams = streamable_http_client(target[0])
    else:
        streams = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    async with streams as (read, write, *_), ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def main():
    how, _, *target = sys.argv[1:]
    async with connected(how, target) as client:
        tools = await client.list_tools()
        assert "charge" in {tool.name for tool in tools.tools}
        try:
            await client.call_tool("charge", ORDER, read_timeout_seconds=PATIENCE)
            raise SystemExit("the first call was answered")
        except McpError:
            got = await client.call_tool("charge", ORDER)
        again = await client.call_tool("charge", ORDER)
        told.append([result.content[0].text for result in (got, again)])


# What the calls were told, once all of them are over.
told = []
try:
    asyncio.run(main())
except BaseExceptionGroup as group:
    # This SDK closes its inner stream before it stops reading the server's output: a message that comes while it
    # leaves, such as the late answer of the first call, ends it with an error of its own.
    _, others = group.split(anyio.BrokenResourceError)
    if others is not None or not told:
        raise
print(json.dumps(told[0]))
