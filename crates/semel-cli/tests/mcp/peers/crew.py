"""CrewAI, which asks again by itself when its patience ends, whatever the tool does.

Usage: crew.py stdio ERA COMMAND... | crew.py http ERA URL
It calls a tool; then once more, as it has the result. It prints what it got.
"""

import asyncio
import json
import os
import sys

# Nothing is sent to its makers.
os.environ["OTEL_SDK_DISABLED"] = "true"
os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"

from crewai.mcp.client import MCPClient  # noqa: E402
from crewai.mcp.transports.http import HTTPTransport  # noqa: E402
from crewai.mcp.transports.stdio import StdioTransport  # noqa: E402

ORDER = {"order_id": "o-7", "amount": 4200}


async def main():
    how, _, *target = sys.argv[1:]
    transport = HTTPTransport(target[0]) if how == "http" else StdioTransport(target[0], target[1:])
    async with MCPClient(transport, execution_timeout=1) as client:
        await client.list_tools()
        got = await client.call_tool("charge", ORDER)
        again = await client.call_tool("charge", ORDER)
    # It makes one text of all; what the gateway says beside the tool's own words comes after them.
    print(json.dumps([text.splitlines()[0] for text in (got, again)]))


asyncio.run(main())
