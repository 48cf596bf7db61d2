"""How rounds are shared among candidates: all the same, or by successive halving (Jamieson and Talwalkar, 2016)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.errors import UserError


@dataclass(frozen=True)
class Stage:
    """How many candidates, the best of the stage before, go on, and until which round."""

    candidates: int
    rounds: int


def stages(candidates: int, seeds: int, rounds: int, budget: int | None = None) -> list[Stage]:
    """One stage of `rounds` for all; with a budget, stages of n, ⌈n/2⌉, … 2 candidates, an equal share for each stage.

    Stage k adds ⌊budget / (stages · n_k · seeds)⌋ rounds to each of its n_k candidates and every one of their seeds. No
    run gets more than `rounds`; a budget that allows them all gives them all.

    >>> [(stage.candidates, stage.rounds) for stage in stages(12, 1, 100, 480)]
    [(12, 10), (6, 30), (3, 70), (2, 100)]
    """
    if budget is None or budget >= candidates * seeds * rounds:
        return [Stage(candidates, rounds)]
    sizes = [candidates]
    while sizes[-1] > 2:
        sizes.append(math.ceil(sizes[-1] / 2))
    least = len(sizes) * candidates * seeds
    if budget < least:
        raise UserError(
            f"budget is {budget} rounds; {candidates} candidates of {seeds} seed{'s' if seeds > 1 else ''} in "
            f"{len(sizes)} stages need {least} at least"
        )
    found: list[Stage] = []
    had = 0
    for size in sizes:
        had = min(had + budget // (len(sizes) * size * seeds), rounds)
        found.append(Stage(size, had))
        if had == rounds:
            break
    return found
