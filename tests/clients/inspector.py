"""The MCP inspector's command line against a node. Arguments: URL, token, the inspector's program."""

import asyncio
import json
import subprocess
import sys

import checks


class Client:
    def __init__(self, url, token, program):
        self.line = [program, "--cli", url, "--transport", "http", "--header", f"Authorization: Bearer {token}"]

    def ask(self, *arguments):
        done = subprocess.run([*self.line, *arguments], capture_output=True, text=True, timeout=120)
        try:
            return json.loads(done.stdout)
        except ValueError:
            checks.expect(False, f"{arguments} gave code {done.returncode}: {done.stdout} {done.stderr}")

    async def tools(self):
        return [tool["name"] for tool in self.ask("--method", "tools/list")["tools"]]

    async def call(self, name, arguments):
        pairs = [f"{key}={json.dumps(value) if not isinstance(value, str) else value}" for key, value in arguments.items()]
        given = ["--tool-arg", *pairs] if pairs else []
        result = self.ask("--method", "tools/call", "--tool-name", name, *given)
        return result.get("isError", False), result.get("structuredContent"), result["content"][0]["text"]


asyncio.run(checks.every_tool(Client(*sys.argv[1:])))
