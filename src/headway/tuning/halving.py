"""How rounds are shared among candidates: all the same, or by successive halving (Jamieson and Talwalkar, 2016)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    sizes = _sizes(candidates)
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


def _sizes(candidates: int) -> list[int]:
    """n, ⌈n/2⌉, … 2: how many candidates each stage has."""
    sizes = [candidates]
    while sizes[-1] > 2:
        sizes.append(math.ceil(sizes[-1] / 2))
    return sizes


def spent(plan: Sequence[Stage], seeds: int) -> int:
    """Rounds of all candidates and seeds together."""
    before = [0, *(stage.rounds for stage in plan)]
    return seeds * sum(stage.candidates * (stage.rounds - had) for stage, had in zip(plan, before, strict=False))


def exact_stages(candidates: int, seeds: int, rounds: int, budget: int) -> list[Stage] | None:
    """Stages near those of `stages` that spend a budget to the last round; None where none do, as of an odd one.

    What is over goes to the first stages, where most candidates are.

    >>> [(stage.candidates, stage.rounds) for stage in exact_stages(12, 1, 100, 480)]
    [(12, 20), (6, 30), (3, 70), (2, 100)]
    """
    if budget % seeds:
        return None
    sizes = _sizes(candidates)
    near = [stage.rounds for stage in stages(candidates, seeds, rounds, budget)]
    near = (
        [*near, *[rounds] * (len(sizes) - len(near))] if budget < candidates * seeds * rounds else [rounds] * len(sizes)
    )
    stopping = [size - following for size, following in zip(sizes, [*sizes[1:], 0], strict=True)]
    ends = _ends(stopping, near, rounds, budget // seeds)
    if ends is None:
        return None
    made = [Stage(size, end) for size, end in zip(sizes, ends, strict=True)]
    return [one for place, one in enumerate(made) if place == 0 or one.rounds > made[place - 1].rounds]


def _ends(stopping: Sequence[int], near: Sequence[int], most: int, total: int) -> list[int] | None:
    """Rounds R_1 ≤ … ≤ R_K ≤ most, from 1 on, with Σ_k stopping_k R_k = total, each close to `near`, the last first.

    `stopping[k]` candidates end with stage k.
    """
    *others, own = stopping
    if not others:
        return [total // own] if total % own == 0 and own <= total <= own * most else None
    before, step = sum(others), math.gcd(*others)
    low, high = max(1, -(-total // (own + before))), min(most, (total - before) // own)
    start, reach = max(low, min(near[-1], high)), step * own  # beyond it the same remainders come again
    for end in sorted(range(max(low, start - reach), min(high, start + reach) + 1), key=lambda at: abs(at - start)):
        rest = total - own * end
        if rest % step == 0:
            found = _ends(others, near[:-1], end, rest)
            if found is not None:
                return [*found, end]
    return None


def _least(candidates: int, seeds: int, rounds: int) -> int:
    """Rounds of the smallest sweep: one for each candidate of each stage, or all rounds of all where that is less."""
    return candidates * seeds * min(len(_sizes(candidates)), rounds)


def equal_plans(candidates: Mapping[str, int], seeds: int, rounds: int, budget: int) -> dict[str, list[Stage]]:
    """Stages for each method that spend exactly the same number of rounds: the most, up to `budget`, that all can."""
    for method, count in candidates.items():
        words = f"{count} candidate{'s' if count > 1 else ''} of {seeds} seed{'s' if seeds > 1 else ''}"
        least, most = _least(count, seeds, rounds), count * seeds * rounds
        if budget < least:
            raise UserError(
                f"tune_budget is {budget} rounds; the smallest sweep of {method}, {words}, needs {least}; "
                "give more rounds, or fewer values (--grid)"
            )
        if budget > most:
            raise UserError(
                f"tune_budget is {budget} rounds; {method}, {words}, can spend {most} at most, and all methods must "
                f"spend the same; give at most {most}, or more values (--grid)"
            )
    least = max(_least(count, seeds, rounds) for count in candidates.values())
    for agreed in range(budget, least - 1, -1):
        plans = {method: exact_stages(count, seeds, rounds, agreed) for method, count in candidates.items()}
        if all(plans.values()):
            return {method: plan for method, plan in plans.items() if plan is not None}
    raise UserError(
        f"tune_budget is {budget} rounds; no number up to it is one that {', '.join(candidates)} can all spend; "
        "give some rounds more"
    )
