"""Asks a server everything that its own description allows, and much that it does not.

    python run.py URL TOKEN OTHER_TOKEN SECONDS

The second tenant has runs before it begins; nothing of them may show.
"""

import json
import os
import pathlib
import secrets
import subprocess
import sys
import urllib.request

url, token, other, seconds = sys.argv[1:]


def post(path, body):
    headers = {"Authorization": f"Bearer {other}", "Content-Type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


word = "word" + secrets.token_hex(12)
resident = post("/v1/_resident", {"agent": "mock", "prompt": word})["child_run_id"]
run = post("/v1/runs", {"agent": "mock", "prompt": word, "metadata": {"word": word}})
ids = [resident, run["run_id"], run["session_id"]]
environment = {
    **os.environ,
    "HEARTH_FUZZ_IDS": ",".join(ids),
    "HEARTH_FUZZ_WORDS": word,
    "SCHEMATHESIS_HOOKS": "checks",
    "PYTHONPATH": str(pathlib.Path(__file__).parent),
}
command = [
    str(pathlib.Path(sys.executable).parent / "schemathesis"), "run", f"{url}/openapi.json",
    "--header", f"Authorization: Bearer {token}",
    "--checks", "only_stated_server_errors,nothing_of_another_tenant",
    # A stream of a live run does not end, a drain would end the test, and an archive is no JSON.
    "--exclude-path-regex", "/stream$|/drain$|/import$",
    "--phases", "examples,coverage,fuzzing", "--max-time", seconds, "--request-timeout", "20",
    "--suppress-health-check", "all", "--warnings", "off", "--no-color", "--workers", "2",
]
ended = subprocess.run(command, env=environment).returncode
# The server is whole afterwards, and the other tenant's runs are as they were.
headers = {"Authorization": f"Bearer {other}"}
with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/_resident/{resident}", headers=headers), timeout=30) as answer:
    envelope = json.load(answer)
assert (envelope["state"], envelope["output"]) == ("awaiting_input", word), envelope
sys.exit(ended)
