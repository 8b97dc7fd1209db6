"""A program with the official Python SDK that asks again when its patience ends.

Usage: python_v2.py stdio ERA COMMAND... | python_v2.py http ERA URL
It calls a tool, and again if there was no answer; then once more, as it has the result. It prints what it got.
"""

import asyncio
import json
import sys

from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

ORDER = {"order_id": "o-7", "amount": 4200}
MODES = {"legacy": "legacy", "modern": "2026-07-28"}

# Long enough for the call to arrive, and short enough for a test.
PATIENCE_SECONDS = 1


async def main():
    how, era, *target = sys.argv[1:]
    server = target[0] if how == "http" else StdioServerParameters(command=target[0], args=target[1:])
    async with Client(server, mode=MODES[era]) as client:
        tools = await client.list_tools()
        assert "charge" in {tool.name for tool in tools.tools}
        try:
            await client.call_tool("charge", ORDER, read_timeout_seconds=PATIENCE_SECONDS)
            raise SystemExit("the first call was answered")
        except MCPError:
            got = await client.call_tool("charge", ORDER)
        again = await client.call_tool("charge", ORDER)
    print(json.dumps([result.content[0].text for result in (got, again)]))


asyncio.run(main())
