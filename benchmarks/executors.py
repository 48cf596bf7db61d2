"""Seconds a round in each executor, side by side in one run, as ratios to a plain PyTorch loop.

python benchmarks/executors.py [--rounds 5] [--json]

The plain loop does the same local training (same batches, same steps) with torch.optim.SGD, one client after another.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn import functional as F

from headway.data.batches import plan
from headway.data.participation import cohort
from headway.engine import round as rounds
from headway.engine.batched import Batched
from headway.engine.pool import Pool
from headway.engine.serial import Serial
from headway.engine.states import ClientStates
from headway.engine.world import World, build
from headway.methods.spelling import method
from headway.scenario import Scenario


def plain_loop(world: World) -> Callable[[int], None]:
    """FedAvg as one writes it by hand."""
    scenario, pool = world.scenario, world.federation.train
    server = world.network.module(world.network.parameters, world.network.buffers)
    x, y = world.federation.inputs(pool.x, torch.float32), pool.y

    def play(number: int) -> None:
        start = {name: tensor.clone() for name, tensor in server.state_dict().items()}
        chosen = cohort(world.population, scenario.cohort, scenario.seed, number)
        total = sum(len(world.federation.clients[client]) for client in chosen)
        mean = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
        for client in chosen:
            server.load_state_dict(start)
            rate = scenario.rate * scenario.rate_decay ** (number - 1)
            optimiser = torch.optim.SGD(server.parameters(), lr=rate, weight_decay=scenario.weight_decay)
            batches = plan(scenario, world.federation.clients[client], scenario.seed, number, client, 0)
            for rows, count in zip(batches.rows, batches.counts, strict=True):
                rows = torch.from_numpy(rows[:count])
                optimiser.zero_grad()
                F.cross_entropy(server(x[rows]), y[rows]).backward()
                torch.nn.utils.clip_grad_norm_(server.parameters(), scenario.clip)
                optimiser.step()
            for name, tensor in server.state_dict().items():
                mean[name] += tensor * (len(world.federation.clients[client]) / total)
        server.load_state_dict(mean)

    return play


def headway_round(world: World, executor: Serial | Batched | Pool) -> Callable[[int], None]:
    model, store = rounds.start(world), ClientStates()

    def play(number: int) -> None:
        nonlocal model
        chosen = cohort(world.population, world.scenario.cohort, world.scenario.seed, number)
        with world.arithmetic():
            model, _ = rounds.play(world, model, store, executor, chosen, number)

    return play


def median_seconds(play: Callable[[int], None], count: int) -> float:
    taken = []
    for number in range(1, count + 2):
        start = time.perf_counter()
        play(number)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:])  # the first warms up


def measure(model: str, count: int) -> list[dict[str, object]]:
    world = build(Scenario(model=model, device="cpu"), method("fedavg"))
    pool = Pool(world.rules, deterministic=False)
    engines = {
        "plain loop": plain_loop(world),
        "serial": headway_round(world, Serial(world.rules)),
        "batched": headway_round(world, Batched(world.rules)),
        "pool": headway_round(world, pool),
    }
    seconds = {name: median_seconds(play, count) for name, play in engines.items()}
    pool.close()
    loop = seconds["plain loop"]
    return [
        {"workload": model, "name": name, "seconds_per_round": taken, "ratio_to_loop": loop / taken}
        for name, taken in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = [row for model in ("linear", "mlp", "cnn") for row in measure(model, arguments.rounds)]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    for row in rows:
        print(f"{row['workload']:8} {row['name']:12} {row['seconds_per_round']:8.4f} s  {row['ratio_to_loop']:5.2f}x")


if __name__ == "__main__":
    main()
