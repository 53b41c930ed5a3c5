"""Sends to actors of Ray: 300 of one caller to one actor, each awaited, then 64 callers with an actor each for
five seconds. Prints one line of the table. What an actor knows is in its memory alone."""

import asyncio
import sys
import time

import ray

PROMPT = "what would you like to have for breakfast today?"


@ray.remote(num_cpus=0)
class Resident:
    def __init__(self):
        self.turns = 0
        self.last = ""

    def send(self, prompt):
        self.turns += 1
        self.last = prompt
        return prompt


async def caller(resident, until):
    done = 0
    while time.perf_counter() < until:
        if await resident.send.remote(PROMPT) != PROMPT:
            sys.exit("an actor answered something else")
        done += 1
    return done


async def crowd(residents):
    began = time.perf_counter()
    done = sum(await asyncio.gather(*(caller(resident, began + 5) for resident in residents)))
    return done / (time.perf_counter() - began)


ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="error", _temp_dir=sys.argv[1])
one = Resident.remote()
times = []
for turn in range(350):
    began = time.perf_counter()
    ray.get(one.send.remote(PROMPT))
    if turn >= 50:
        times.append((time.perf_counter() - began) * 1000)
times.sort()
many = [Resident.remote() for _ in range(64)]
ray.get([resident.send.remote(PROMPT) for resident in many])
rate = asyncio.run(crowd(many))
print(f"{'ray':14} {times[len(times) // 2]:12.2f} {times[int(len(times) * 0.99)]:12.2f} {rate:14.0f}")
ray.shutdown()
