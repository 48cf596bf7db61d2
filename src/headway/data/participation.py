"""Who takes part in a round."""

from __future__ import annotations

from headway.random import generator


def cohort(population: int, size: int, seed: int, round: int) -> list[int]:
    """`size` clients, uniform without replacement, fixed by (seed, round); all in order of id when size = N."""
    if size == population:
        return list(range(population))
    chosen = generator(seed, "cohort", round).choice(population, size, replace=False)
    return [int(client) for client in chosen]
