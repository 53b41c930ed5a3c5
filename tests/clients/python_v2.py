"""The official Python SDK, major version 2, with and without sessions. Arguments: URL, token, `node` or `replica`."""

import asyncio
import sys

import httpx2
from mcp import Client as SdkClient
from mcp.client.streamable_http import streamable_http_client

import agents
import checks


class Client:
    def __init__(self, client):
        self.client = client

    async def tools(self):
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name, arguments):
        result = await self.client.call_tool(name, arguments)
        return result.is_error, result.structured_content, result.content[0].text


async def main(url, token, member):
    all_of = {"node": checks.all_of, "replica": agents.all_of}[member]
    # `legacy` shakes hands and has a session; the other two ask each time for itself.
    for mode in ["legacy", "auto", "2026-07-28"]:
        timeout = httpx2.Timeout(30, read=300)
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=timeout) as http:
            async with SdkClient(streamable_http_client(url, http_client=http), mode=mode) as client:
                await all_of(Client(client))
        print(f"mode {mode}: ok")


asyncio.run(main(*sys.argv[1:]))
