"""gRPC's own Python library against a replica: arguments are its address, its token and the folder of the messages."""

import importlib
import json
import sys
import tempfile

import grpc
from grpc_tools import protoc

from checks import expect


def generated(folder):
    """The modules of the service, made from its description as any user makes them."""
    out = tempfile.mkdtemp(prefix="hearth-grpc-")
    made = protoc.main(["protoc", f"-I{folder}", f"--python_out={out}", f"--grpc_python_out={out}", "hearth/v1/hearth.proto"])
    expect(made == 0, "the messages could not be compiled")
    sys.path.insert(0, out)
    return (importlib.import_module(f"hearth.v1.{name}") for name in ("hearth_pb2", "hearth_pb2_grpc"))


def main():
    address, token, folder = sys.argv[1:]
    messages, services = generated(folder)
    stub = services.HearthStub(grpc.insecure_channel(address))
    metadata = [("authorization", f"Bearer {token}")]

    def call(name, message, *more):
        return getattr(stub, name)(message, metadata=metadata + list(more), timeout=30)

    def refused(code, name, message, *more):
        try:
            call(name, message, *more)
        except grpc.RpcError as error:
            expect(error.code() == code, f"{name}: {code} was expected, not {error.code()}: {error.details()}")
            return
        expect(False, f"{name} was not refused")

    key = ("idempotency-key", "grpc-python")
    request = messages.OpenRequest(agent="mock", prompt="one")
    opened = call("OpenResident", request, key)
    expect((opened.output, opened.outcome, opened.state) == ("one", "finished", "awaiting_input"), f"open gave {opened}")
    child = opened.child_run_id
    expect(call("OpenResident", request, key).child_run_id == child, "a key gave another resident")
    refused(grpc.StatusCode.FAILED_PRECONDITION, "OpenResident", messages.OpenRequest(agent="mock", prompt="two"), key)
    sent = call("SendResident", messages.SendRequest(run_id=child, prompt="zwei ü"))
    expect(sent.output == "zwei ü", f"send gave {sent}")
    slow = json.dumps({"mock": {"latency_ms": 60_000, "output": "late"}})
    running = call("SendResident", messages.SendRequest(run_id=child, prompt=slow, timeout_ms=1))
    expect((running.state, running.HasField("outcome")) == ("running", False), f"a send that does not wait gave {running}")
    cancelled = call("CancelResident", messages.CancelRequest(run_id=child, turn_id=running.turn_id))
    expect((cancelled.stopped, cancelled.outcome) == (True, "cancelled"), f"cancel gave {cancelled}")
    listed = call("ListResidents", messages.ListRequest(agent="mock"))
    expect([row.child_run_id for row in listed.resident] == [child], f"list gave {listed}")
    expect(call("CloseResident", messages.CloseRequest(run_id=child)).state == "closed", "close")
    events = list(call("StreamRun", messages.StreamRequest(run_id=child)))
    expect((events[0].name, events[-1].name) == ("session", "done"), f"the stream gave {events}")
    later = list(call("StreamRun", messages.StreamRequest(run_id=child, last_event_id=events[0].id)))
    expect([event.id for event in later] == [event.id for event in events[1:]], "the stream does not go on after an id")
    expect(call("GetRun", messages.GetRunRequest(run_id=child)).turns == 3, "the run has had three turns")
    refused(grpc.StatusCode.FAILED_PRECONDITION, "SendResident", messages.SendRequest(run_id=child, prompt="late"))
    refused(grpc.StatusCode.NOT_FOUND, "GetRun", messages.GetRunRequest(run_id="run_absent"))
    refused(grpc.StatusCode.INVALID_ARGUMENT, "GetRun", messages.GetRunRequest(run_id="no/id"))
    metadata.clear()
    refused(grpc.StatusCode.UNAUTHENTICATED, "ListRuns", messages.ListRequest())


main()
