"""The official Python SDK, major version 1. Arguments: URL, token, `node` or `replica`."""

import asyncio
import sys

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

import agents
import checks


class Client:
    def __init__(self, session):
        self.session = session

    async def tools(self):
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(self, name, arguments):
        result = await self.session.call_tool(name, arguments)
        return result.isError, result.structuredContent, result.content[0].text


def http(token):
    return httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=httpx.Timeout(30, read=300))


async def replica(url, token):
    async with http(token) as client, streamable_http_client(url, http_client=client) as (read, write, session_id):
        async with ClientSession(read, write) as session:
            started = await session.initialize()
            checks.expect(started.serverInfo.name == "hearth", f"initialize gave {started}")
            checks.expect(session_id() is None, "a replica keeps no session")
            await session.send_ping()
            await agents.all_of(Client(session))


async def node(url, token):
    async with http(token) as client, streamable_http_client(url, http_client=client) as (read, write, session_id):
        async with ClientSession(read, write) as session:
            started = await session.initialize()
            checks.expect(started.serverInfo.name == "hearth-sandbox-node", f"initialize gave {started}")
            await session.send_ping()
            await checks.all_of(Client(session))
            # The MCP session is ended behind the client's back: it learns so, and can begin another.
            gone = session_id()
            answer = await client.delete(url, headers={"Mcp-Session-Id": gone})
            checks.expect(answer.is_success, f"DELETE gave {answer.status_code}")
            try:
                await session.list_tools()
            except Exception as error:
                checks.expect("erminated" in str(error), f"an ended session gave {error}")
            else:
                checks.expect(False, "a session that has ended still answers")
    async with http(token) as client, streamable_http_client(url, http_client=client) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            checks.expect(await Client(session).tools() == checks.TOOLS, "the second session")
    async with http("wrong") as client:
        answer = await client.post(url, json={})
        checks.expect(answer.status_code == 401, f"a wrong token gave {answer.status_code}")


async def main(url, token, member):
    await {"node": node, "replica": replica}[member](url, token)


asyncio.run(main(*sys.argv[1:]))
