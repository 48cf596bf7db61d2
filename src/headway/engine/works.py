"""What clients have to do in a round: batches, rates, keys, and what they hold from before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from headway import random
from headway.data.batches import planned, widths
from headway.engine.executor import Form, Work, Works
from headway.engine.local import Task
from headway.engine.shapes import grown
from headway.engine.world import World
from headway.trees import moved


def rate_of(world: World, round: int) -> float:
    """η · d^(t−1)."""
    rate: float = world.scenario.rate * world.scenario.rate_decay ** (round - 1)
    return rate


def _rates(world: World, round: int, epochs: np.ndarray) -> np.ndarray:
    """η · d^(t−1) · d_e^e for the local epoch e of each step."""
    kind = np.float64 if world.rules.dtype == torch.float64 else np.float32
    first, decay = rate_of(world, round), world.scenario.rate_decay_epoch
    return np.full(len(epochs), first, kind) if decay == 1 else (first * decay**epochs).astype(kind)


def shares(world: World, cohort: Sequence[int]) -> tuple[np.ndarray, float]:
    """ω_i of each, and the share of all clients' weight that they have together."""
    weights = world.weights(cohort)
    total = float(weights.sum())
    return weights / total, total / world.weight_total


def work_for(
    world: World,
    held: dict[str, Any] | None,
    client: int,
    round: int,
    *,
    weight: float,
    steps_at_most: int | None = None,
    visit: int = 0,
) -> Work:
    """One client's work: batches, rates, key and what it holds from before; `visit` counts its turns in the round."""
    kept = world.newcomer if held is None else held
    batches = world.planner.plan(client, round, int(kept.get("cursor", 0)), visit)
    words = random.key(world.scenario.seed, "client", round, client, *([visit] if visit else []))
    steps = min(len(batches), steps_at_most or len(batches))
    about = world.about(client)
    task = Task(
        size=about.size.copy(),
        share=about.share.copy(),
        seen=np.asarray(held is not None),
        class_counts=about.class_counts.copy(),
        rows=batches.rows[:steps],
        counts=batches.counts[:steps],
        rates=_rates(world, round, batches.epochs[:steps]),
        steps=np.asarray(steps),
        key=np.asarray(words),
        whole=about.rows if world.reads_whole else about.rows[:0],
    )
    return Work(client, task, weight, moved(kept, world.device) if world.keeps else kept, steps, words)


def works_for(
    world: World,
    held: Callable[[int], dict[str, Any] | None],
    clients: Sequence[int],
    weights: Sequence[float] | np.ndarray,
    cuts: Mapping[int, int],
    round: int,
    visit: int = 0,
    counts: Sequence[int] | None = None,
) -> Works:
    """The clients' works; `cuts` has the steps, by place, of those that do not take all of them.

    `counts` are the samples in each, where they are known.
    """
    sizes = world.federation.sizes[list(clients)].tolist()
    steps = {size: planned(world.scenario, size) for size in set(sizes)}
    lengths = [min(steps[size], cuts.get(place, steps[size])) for place, size in enumerate(sizes)]

    def make(place: int) -> Work:
        client, weight = clients[place], float(weights[place])
        return work_for(world, held(client), client, round, weight=weight, steps_at_most=cuts.get(place), visit=visit)

    def form(place: int) -> Form:
        size = sizes[place]
        state = held(clients[place]) if world.scenario.batches == "continued" else None
        cursor = 0 if state is None else int(state["cursor"])
        return size if world.reads_whole else 0, tuple(widths(world.scenario, size, cursor).tolist())

    return Works(lengths, make, counts, form)


def together(world: World, clients: Sequence[int], round: int) -> Task:
    """The tasks of clients that keep nothing and take all their steps, as one, in the run's shapes.

    The numbers are those of `work_for`; made for all at once, they are there sooner.
    """
    shapes, seed = world.shapes, world.scenario.seed
    abouts = [world.about(client) for client in clients]
    plans = [world.planner.plan(client, round, 0, 0) for client in clients]
    epochs = {id(plan.epochs): plan.epochs for plan in plans}  # clients of one size share them
    courses = {which: _rates(world, round, each) for which, each in epochs.items()}

    def laid(name: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
        shape = shapes[name]
        return np.array([array if array.shape == shape else grown(array, shape) for array in arrays])

    return Task(
        size=np.array([about.size for about in abouts]),
        share=np.array([about.share for about in abouts]),
        seen=np.zeros(len(abouts), bool),
        class_counts=np.array([about.class_counts for about in abouts]),
        rows=laid("rows", [plan.rows for plan in plans]),
        counts=laid("counts", [plan.counts for plan in plans]),
        rates=laid("rates", [courses[id(plan.epochs)] for plan in plans]),
        steps=np.array([len(plan) for plan in plans]),
        key=np.array([random.key(seed, "client", round, client) for client in clients]),
        whole=laid("whole", [about.rows if world.reads_whole else about.rows[:0] for about in abouts]),
    )
