"""Sends to actors of Ray: 300 of one caller to one actor, each awaited, then 64 callers with an actor each for
five seconds. Prints one line of the table. What an actor knows is in its memory alone."""

import asyncio
import signal
import sys
import time

import ray

PROMPT = "what would you like to have for breakfast today?"

# So that its processes are ended when it is.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@ray.remote(num_cpus=0)
class Resident:
    def __init__(self):
        self.turns = 0
        self.last = ""

    def send(self, prompt):
        self.turns += 1
        self.last = prompt
        return prompt


def same(output):
    if output != PROMPT:
        sys.exit(f"an actor answered {output!r}")


async def caller(resident, until):
    done = 0
    while time.perf_counter() < until:
        same(await resident.send.remote(PROMPT))
        done += 1
    return done


async def crowd(residents):
    began = time.perf_counter()
    done = sum(await asyncio.gather(*(caller(resident, began + 5) for resident in residents)))
    return done / (time.perf_counter() - began)


label, folder = sys.argv[1:]
ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="error", _temp_dir=folder)
try:
    one = Resident.remote()
    times = []
    for turn in range(350):
        began = time.perf_counter()
        same(ray.get(one.send.remote(PROMPT)))
        if turn >= 50:
            times.append((time.perf_counter() - began) * 1000)
    times.sort()
    many = [Resident.remote() for _ in range(64)]
    ray.get([resident.send.remote(PROMPT) for resident in many])
    rate = asyncio.run(crowd(many))
finally:
    ray.shutdown()
print(f"| {label} | {times[len(times) // 2]:.2f} | {times[int(len(times) * 0.99)]:.2f} | {rate:.0f} |")
