"""What every client of a node's MCP has to find, whichever library speaks for it.

A client is `tools()`, the names, and `call(name, arguments)`, which gives `(is_error, structured, text)`.
"""

import asyncio
import json

TOOLS = [
    "sandbox_open", "sandbox_exec", "sandbox_poll", "sandbox_kill", "sandbox_write",
    "sandbox_read", "sandbox_touch", "sandbox_close", "sandbox_close_run", "sandbox_list",
]


def expect(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


async def accepted(client, name, /, **arguments):
    is_error, structured, text = await client.call(name, arguments)
    expect(not is_error, f"{name} was refused: {structured}")
    expect(json.loads(text) == structured, f"{name}: the text and the structured content differ")
    return structured


async def refused(client, code, name, /, **arguments):
    is_error, structured, text = await client.call(name, arguments)
    expect(is_error, f"{name} was not refused: {structured}")
    expect(json.loads(text) == structured, f"{name}: the text and the structured content differ")
    expect(structured["error"]["code"] == code, f"{name}: {code} was expected, not {structured}")


async def every_tool(client):
    """Each tool once, and each of them refused once."""
    names = await client.tools()
    expect(names == TOOLS, f"other tools are listed: {names}")
    session = (await accepted(client, "sandbox_open", workspace="clients"))["session_id"]
    ran = await accepted(client, "sandbox_exec", session_id=session, command="echo out; echo err >&2; exit 3", exec_id="e1")
    expect((ran["output"], ran["exit_code"]) == ("out\nerr\n", 3), f"exec gave {ran}")
    polled = await accepted(client, "sandbox_poll", session_id=session, exec_id="e1", timeout_ms=1000)
    expect(polled["exit_code"] == 3, f"poll gave {polled}")
    late = await accepted(client, "sandbox_exec", session_id=session, command="sleep 600", exec_id="e2", background=True)
    expect(late["exit_code"] is None, f"a command in the background gave {late}")
    killed = await accepted(client, "sandbox_kill", session_id=session, exec_id="e2")
    expect(killed["exit_code"] is not None, f"kill gave {killed}")
    written = await accepted(client, "sandbox_write", session_id=session, path="dir/file", content="über")
    expect(written["bytes_written"] == 5, f"write gave {written}")
    read = await accepted(client, "sandbox_read", session_id=session, path="dir/file")
    expect((read["content"], read["size"]) == ("über", 5), f"read gave {read}")
    await accepted(client, "sandbox_touch", session_id=session)
    listed = await accepted(client, "sandbox_list")
    expect([row["session_id"] for row in listed["sandboxes"]] == [session], f"list gave {listed}")
    expect((await accepted(client, "sandbox_close_run", root_run_id="run_none"))["closed"] == 0, "close_run")
    await refused(client, "invalid_argument", "sandbox_open", memory=5)
    await refused(client, "invalid_argument", "sandbox_exec", session_id=session)
    await refused(client, "not_found", "sandbox_read", session_id=session, path="absent")
    await refused(client, "not_found", "sandbox_exec", session_id="sbx_absent", command="exit 0")
    await accepted(client, "sandbox_close", session_id=session)
    await accepted(client, "sandbox_close", session_id=session)
    await refused(client, "session_lost", "sandbox_exec", session_id=session, command="exit 0")
    listed = await accepted(client, "sandbox_list")
    expect(listed["sandboxes"] == [], f"list gave {listed}")


async def many_at_once(client):
    """Answers find the calls that they belong to."""
    session = (await accepted(client, "sandbox_open"))["session_id"]

    async def one(number):
        command = f"sleep 0.{number % 5}; echo {number}; exit {number}"
        ran = await accepted(client, "sandbox_exec", session_id=session, command=command)
        expect((ran["output"], ran["exit_code"]) == (f"{number}\n", number), f"call {number} gave {ran}")

    await asyncio.gather(*(one(number) for number in range(20)))
    await accepted(client, "sandbox_close", session_id=session)


async def expiry(client):
    """The node is told to end sessions after two seconds without use."""
    session = (await accepted(client, "sandbox_open"))["session_id"]
    for _ in range(60):
        await asyncio.sleep(1)
        listed = await accepted(client, "sandbox_list")
        if listed["sandboxes"] == []:
            break
    await refused(client, "session_lost", "sandbox_exec", session_id=session, command="exit 0")


async def all_of(client):
    await every_tool(client)
    await many_at_once(client)
    await expiry(client)
