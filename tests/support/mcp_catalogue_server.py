"""A real MCP server that offers the tools of `data/mcp_tools.json`: `python mcp_catalogue_server.py`.

Each call answers with the tool's name and the arguments it was called with.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

LISTED = json.loads((Path(__file__).parent / "data" / "mcp_tools.json").read_text("utf-8"))


async def list_tools(context: Any, params: Any) -> ListToolsResult:
    return ListToolsResult(
        tools=[
            Tool(
                name=f"{tool['server']}_{tool['name']}",
                description=tool["description"],
                input_schema=tool["input_schema"],
                annotations=ToolAnnotations(read_only_hint=tool["read_only"], destructive_hint=tool["destructive"]),
            )
            for tool in LISTED
        ]
    )


async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
    answer = f"{params.name} {json.dumps(params.arguments, sort_keys=True)}"
    return CallToolResult(content=[TextContent(type="text", text=answer)])


async def main() -> None:
    server = Server("office", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
