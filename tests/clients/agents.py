"""What every client of a replica's MCP has to find, whichever library speaks for it.

A client is as `checks` says.
"""

import json

from checks import accepted, expect, refused


def mock(**turn):
    return json.dumps({"mock": turn})


async def all_of(client):
    """Each operation of the tool, and some of them refused."""
    names = await client.tools()
    expect(names == ["Agent"], f"other tools are listed: {names}")
    spawned = await accepted(client, "Agent", name="mock", prompt="once")
    expect(spawned == {"output": "once"}, f"spawn gave {spawned}")
    spawns = [{"name": "mock", "prompt": str(number)} for number in range(6)]
    results = (await accepted(client, "Agent", op="parallel_spawn", spawns=spawns))["results"]
    expect([result["output"] for result in results] == [str(number) for number in range(6)], f"{results}")
    child = (await accepted(client, "Agent", op="open", name="mock", prompt="one"))["child_run_id"]
    sent = await accepted(client, "Agent", op="send", child_run_id=child, prompt="zwei ü")
    expect((sent["output"], sent["state"]) == ("zwei ü", "awaiting_input"), f"send gave {sent}")
    slow = mock(latency_ms=60_000, output="late")
    running = await accepted(client, "Agent", op="send", child_run_id=child, prompt=slow, timeout_ms=1)
    expect(running["state"] == "running", f"a send that does not wait gave {running}")
    polled = await accepted(client, "Agent", op="poll", child_run_id=child)
    expect(polled["turn_id"] == running["turn_id"], f"poll gave {polled}")
    cancelled = await accepted(client, "Agent", op="cancel", child_run_id=child)
    expect((cancelled["stopped"], cancelled["outcome"]) == (True, "cancelled"), f"cancel gave {cancelled}")
    listed = await accepted(client, "Agent", op="list")
    expect([row["child_run_id"] for row in listed["resident"]] == [child], f"list gave {listed}")
    await refused(client, "invalid_argument", "Agent", op="open", name="mock", prompt="x", wait=1)
    await refused(client, "not_found", "Agent", op="poll", child_run_id="run_absent")
    closed = await accepted(client, "Agent", op="close", child_run_id=child)
    expect(closed["state"] == "closed", f"close gave {closed}")
    await refused(client, "run_ended", "Agent", op="send", child_run_id=child, prompt="late")
