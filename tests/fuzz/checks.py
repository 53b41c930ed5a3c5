"""What must hold of every answer, whatever was asked. Loaded by schemathesis."""

import os

import schemathesis

# Ids and words of the other tenant, and how often its ids stand in place of invented ones.
IDS = os.environ["HEARTH_FUZZ_IDS"].split(",")
WORDS = os.environ["HEARTH_FUZZ_WORDS"].split(",")
SHARE = 3
# Refusals that say whether and when to try again; a 500 is a bug, whatever it says.
STATED = {503: {"unavailable", "draining", "circuit_open"}, 504: {"deadline_exceeded"}}

turn = 0


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    global turn
    if path_parameters and "id" in path_parameters:
        turn += 1
        if turn % SHARE == 0:
            path_parameters["id"] = IDS[turn // SHARE % len(IDS)]
    return path_parameters


@schemathesis.check
def only_stated_server_errors(context, response, case):
    if response.status_code < 500:
        return
    try:
        code = response.json()["error"]["code"]
    except Exception:
        code = None
    if code not in STATED.get(response.status_code, set()):
        raise AssertionError(f"{response.status_code} with the code {code} is not a stated refusal")


@schemathesis.check
def nothing_of_another_tenant(context, response, case):
    theirs = (case.path_parameters or {}).get("id") in IDS
    if theirs and response.status_code < 400:
        raise AssertionError(f"another tenant's id was answered with {response.status_code}")
    text = response.content.decode("utf-8", "replace")
    for word in WORDS:
        if word in text:
            raise AssertionError(f"the answer holds {word}, which is another tenant's")
