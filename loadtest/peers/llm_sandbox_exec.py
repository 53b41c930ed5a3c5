"""Runs `true` in one session of llm-sandbox, forty times, and prints one line of the table."""

import signal
import sys
import time

from llm_sandbox import SandboxSession

# So that the session is closed when it is ended early.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

label, image, name = sys.argv[1:]
without_network = {"name": name, "network_mode": "none"}
times = []
with SandboxSession(
    image=image, lang="python", keep_template=True, skip_environment_setup=True, runtime_configs=without_network
) as session:
    for turn in range(43):
        began = time.perf_counter()
        result = session.execute_command("true")
        took = (time.perf_counter() - began) * 1000
        if result.exit_code != 0:
            sys.exit(f"true ended with {result.exit_code}")
        if turn >= 3:
            times.append(took)
times.sort()
print(f"| {label} | {times[len(times) // 2]:.2f} | {times[int(len(times) * 0.99)]:.2f} | – |")
