"""OpenAI Agents, which asks again by itself when its patience ends.

Usage: openai_agents.py stdio ERA COMMAND... | openai_agents.py http ERA URL
It calls a tool with retries on; then once more, as it has the result. It prints what it got.
"""

import asyncio
import json
import sys

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

ORDER = {"order_id": "o-7", "amount": 4200}


async def main():
    how, _, *target = sys.argv[1:]
    settings = {
        "client_session_timeout_seconds": 1,
        "max_retry_attempts": 5,
        "retry_backoff_seconds_base": 0.05,
    }
    if how == "http":
        server = MCPServerStreamableHttp({"url": target[0]}, **settings)
    else:
        server = MCPServerStdio({"command": target[0], "args": target[1:]}, **settings)
    async with server:
        await server.list_tools()
        got = await server.call_tool("charge", ORDER)
        again = await server.call_tool("charge", ORDER)
    print(json.dumps([result.content[0].text for result in (got, again)]))


asyncio.run(main())
