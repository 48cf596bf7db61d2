"""Who is asked in a round: a pure function of (seed, round), so a resume and every executor see the same clients.

fixed                     |S| clients, uniform without replacement
bernoulli                 each client by itself, with probability `participation`
replacement               |S| draws, uniform with replacement
full                      everybody
cyclic:GROUPS             |S| of one group; the groups take turns, round after round
dynamic[:POOL,ACTIVE,PROBABILITY,EVERY]   |S| of the active clients, whose set turns over (FedACG Table 3)
authors[:OFFSET]          |S| clients, the sequence of the authors' programs

|S| = max(⌊participation · N⌋, 1); over-selection asks more. docs/participation.md says each in full.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from headway.errors import UserError, nearest
from headway.random import Drawing, generator, legacy_choices
from headway.scenario import Scenario


class Sampling(Protocol):
    def draw(self, round: int) -> list[int]:
        """The clients asked in a round, counted from 1."""

    def most(self, rounds: int) -> int:
        """The largest number of them in rounds 1 to `rounds`."""


def cohort(population: int, size: int, seed: int, round: int, drawing: Drawing | None = None) -> list[int]:
    """`size` clients, uniform without replacement, fixed by (seed, round); all in order of id when size = N."""
    if size == population:
        return list(range(population))
    draw = (drawing.at if drawing else generator)(seed, "cohort", round)
    chosen: list[int] = draw.choice(population, size, replace=False).tolist()
    return chosen


@dataclass(frozen=True)
class Fixed:
    population: int
    size: int
    seed: int

    @cached_property
    def _drawing(self) -> Drawing:
        return Drawing()

    def draw(self, round: int) -> list[int]:
        return cohort(self.population, self.size, self.seed, round, self._drawing)

    def most(self, rounds: int) -> int:
        return self.size


COUNTED = 100_000
"""Rounds up to which a cohort of random size is counted in each; in more of them everybody may be asked at once."""


@dataclass(frozen=True)
class Bernoulli:
    """|S| ~ Binomial(N, p), then |S| clients uniform without replacement: the same as N draws of one client each.

    Where nobody is drawn, one client is, uniform: P(i ∈ S) = p + (1−p)^N / N.
    """

    population: int
    share: float
    seed: int

    def _size(self, round: int) -> int:
        return max(int(generator(self.seed, "bernoulli", round).binomial(self.population, self.share)), 1)

    def draw(self, round: int) -> list[int]:
        return cohort(self.population, self._size(round), self.seed, round)

    def most(self, rounds: int) -> int:
        if rounds > COUNTED:
            return self.population
        return max(self._size(round) for round in range(1, rounds + 1))


@dataclass(frozen=True)
class Replacement:
    population: int
    size: int
    seed: int

    def draw(self, round: int) -> list[int]:
        chosen = generator(self.seed, "replacement", round).integers(self.population, size=self.size)
        return [int(client) for client in chosen]

    def most(self, rounds: int) -> int:
        return self.size


@dataclass(frozen=True)
class Cyclic:
    """Client i is in group i mod G; round t asks clients of group (t−1) mod G."""

    population: int
    size: int
    seed: int
    groups: int

    def draw(self, round: int) -> list[int]:
        available = range((round - 1) % self.groups, self.population, self.groups)
        return [available[place] for place in cohort(len(available), self.size, self.seed, round)]

    def most(self, rounds: int) -> int:
        return self.size


@dataclass(frozen=True)
class Dynamic:
    """A of N clients are active. Every `every` rounds each of them is replaced with probability q by one that is not.

    At most N − A can be replaced at once. The stages are remembered, so that any round may be asked for.
    """

    population: int
    size: int
    seed: int
    active: int
    probability: float
    every: int
    _stages: list[np.ndarray] = field(default_factory=list, compare=False, repr=False)

    def active_at(self, round: int) -> np.ndarray:
        """The active clients of a round, shape (A,)."""
        stage = (round - 1) // self.every
        while len(self._stages) <= stage:
            self._stages.append(self._next(len(self._stages)))
        return self._stages[stage]

    def _next(self, stage: int) -> np.ndarray:
        draw = generator(self.seed, "dynamic", stage)
        if stage == 0:
            return draw.choice(self.population, self.active, replace=False)
        members = self._stages[-1].copy()
        others = np.setdiff1d(np.arange(self.population), members)
        leaving = draw.permutation(np.flatnonzero(draw.random(self.active) < self.probability))[: len(others)]
        members[leaving] = draw.choice(others, len(leaving), replace=False)
        return members

    def draw(self, round: int) -> list[int]:
        available = self.active_at(round)
        return [int(available[place]) for place in cohort(self.active, self.size, self.seed, round)]

    def most(self, rounds: int) -> int:
        return self.size


@dataclass(frozen=True)
class Authors:
    """One stream of NumPy's old generator, a draw without replacement for each round; everybody in order of id at N.

    The draws are remembered, so that any round may be asked for.
    """

    population: int
    size: int
    seed: int
    _drawn: list[list[int]] = field(default_factory=list, compare=False, repr=False)

    @cached_property
    def _stream(self) -> Iterator[np.ndarray]:
        return legacy_choices(self.seed, self.population, self.size)

    def draw(self, round: int) -> list[int]:
        if self.size == self.population:
            return list(range(self.population))
        while len(self._drawn) < round:
            self._drawn.append([int(client) for client in next(self._stream)])
        return list(self._drawn[round - 1])

    def most(self, rounds: int) -> int:
        return self.size


_KINDS = ("fixed", "bernoulli", "replacement", "full", "cyclic", "dynamic", "authors")
_UNSIZED = ("bernoulli", "full")
DYNAMIC = (500, 250, 0.5, 100)
"""POOL, ACTIVE, PROBABILITY, EVERY of FedACG's Table 3."""


def sampling(scenario: Scenario, population: int) -> Sampling:
    """Who is asked, as the scenario spells it; or what is wrong with that, in one line."""
    name, colon, argument = scenario.sampling.partition(":")
    if name not in _KINDS or (colon and name not in ("cyclic", "dynamic", "authors")):
        raise UserError(
            f"there is no sampling '{scenario.sampling}'{nearest(name, _KINDS) if name not in _KINDS else ''} (fixed, "
            "bernoulli, replacement, full, cyclic:GROUPS, dynamic[:POOL,ACTIVE,PROBABILITY,EVERY], authors[:OFFSET])"
        )
    if name in _UNSIZED and scenario.over_selection:
        raise UserError(
            f"over_selection needs a number of clients to add to, and sampling '{name}' has none; use another sampling"
        )
    size, seed = asked(scenario), scenario.seed
    if name == "bernoulli":
        return Bernoulli(population, scenario.share, seed)
    if name == "full":
        return Fixed(population, population, seed)
    if name == "replacement":
        return Replacement(population, size, seed)
    if name == "cyclic":
        groups = _groups(scenario, argument, population)
        _check_enough(scenario, population // groups)
        return Cyclic(population, size, seed, groups)
    if name == "dynamic":
        active, probability, every = _turnover(scenario, colon, argument, population)
        _check_enough(scenario, active)
        return Dynamic(population, size, seed, active, probability, every)
    _check_enough(scenario, population)
    if name == "authors":
        return Authors(population, size, _legacy_seed(scenario, colon, argument))
    return Fixed(population, size, seed)


def asked(scenario: Scenario) -> int:
    """⌈|S|·(1 + over_selection)⌉."""
    return math.ceil(scenario.cohort * (1 + scenario.over_selection) - 1e-9)


def _check_enough(scenario: Scenario, available: int) -> None:
    """Refuse to ask more clients than the least number there is in a round."""
    wanted = asked(scenario)
    if wanted <= available:
        return
    extra = f" and over_selection {scenario.over_selection:g}" if scenario.over_selection else ""
    raise UserError(
        f"participation {scenario.share:g}{extra} asks {wanted} clients a round, but sampling '{scenario.sampling}' "
        f"has {available} to ask; use a smaller --participation{' or --over-selection' if extra else ''}"
    )


def _groups(scenario: Scenario, argument: str, population: int) -> int:
    if not argument.isdecimal() or int(argument) < 1:
        raise UserError(
            f"sampling is '{scenario.sampling}'; write cyclic:GROUPS with a whole number from 1, such as cyclic:4"
        )
    if int(argument) > population:
        raise UserError(f"sampling is '{scenario.sampling}', more groups than the {population} clients there are")
    return int(argument)


def _turnover(scenario: Scenario, colon: str, argument: str, population: int) -> tuple[int, float, int]:
    """ACTIVE, PROBABILITY, EVERY."""
    parts = argument.split(",") if colon else [str(value) for value in DYNAMIC]
    try:
        pool, active, every = (int(parts[place]) for place in (0, 1, 3))
        probability = float(parts[2])
        right = len(parts) == 4 and 1 <= active <= pool and 0 <= probability <= 1 and every >= 1
    except (ValueError, IndexError):
        right = False
    if not right:
        raise UserError(
            f"sampling is '{scenario.sampling}'; write dynamic:POOL,ACTIVE,PROBABILITY,EVERY with 1 ≤ ACTIVE ≤ POOL, a "
            "probability from 0 to 1 and EVERY rounds from 1, such as dynamic:500,250,0.5,100"
        )
    if pool != population:
        raise UserError(
            f"sampling '{scenario.sampling}' has a pool of {pool} clients, but there are {population}; use "
            f"--clients {pool} or such as dynamic:{population},{max(population // 2, 1)},{probability:g},{every}"
        )
    return active, probability, every


def _legacy_seed(scenario: Scenario, colon: str, argument: str) -> int:
    if colon and not argument.isdecimal():
        raise UserError(f"sampling is '{scenario.sampling}'; write authors or authors:OFFSET, such as authors:657")
    seed = scenario.seed + int(argument or 0)
    if seed >= 2**32:
        raise UserError(f"sampling '{scenario.sampling}' takes seeds below 2^32 (4294967296); the seed is {seed}")
    return seed


def in_words(scenario: Scenario) -> str:
    """`6 of 60 clients a round`, and what else is true of them."""
    name, _, argument = scenario.sampling.partition(":")
    count, more = f"{scenario.cohort}", ""
    if name == "bernoulli":
        count, more = f"{scenario.share * scenario.clients:.4g}", " on average"
    elif name == "full":
        count = f"{scenario.clients}"
    elif name == "replacement":
        more = ", with replacement"
    elif name == "cyclic":
        more = f", {argument} groups in turn"
    elif name == "dynamic":
        more = f", {argument.split(',')[1] if argument else DYNAMIC[1]} active"
    text = f"{count} of {scenario.clients} clients a round{more}"
    if scenario.over_selection:
        text += f", {asked(scenario)} asked"
    return text + (f", {100 * scenario.dropout:.3g} % drop out" if scenario.dropout else "")
