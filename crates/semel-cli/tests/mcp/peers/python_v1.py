"""The same as python_v2.py with the SDK that most programs still have; it speaks the legacy era only."""

import asyncio
import contextlib
import datetime
import json
import sys

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
    print(json.dumps([result.content[0].text for result in (got, again)]))


asyncio.run(main())
