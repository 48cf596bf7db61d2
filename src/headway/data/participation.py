"""Which clients are invited in a round: the table `SAMPLINGS`, and the class behind each of its lines.

A sampling is a pure function of (seed, round), so a resumed run and every executor see the same clients. A new one is a
class with `draw` and `most`, and a line in the table, from which the errors and `headway data samplings` take it. An
object of the user's with these two methods can take a name's place.

|S| = max(⌊participation · N⌋, 1) clients are wanted in a round; over-selection invites more of them.
docs/participation.md defines each sampling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from headway.data.own_sampling import OwnSampling
from headway.data.own_sampling import Sampling as Sampling
from headway.data.own_split import OWN
from headway.data.poisson import COUNTED_ROUNDS, Poisson
from headway.errors import UserError, nearest
from headway.random import Drawing, generator, legacy_choices
from headway.scenario import Scenario


def cohort(population: int, size: int, seed: int, round: int, drawing: Drawing | None = None) -> list[int]:
    """`size` clients, uniform without replacement, fixed by (seed, round); all in order of id when size = N."""
    if size == population:
        return list(range(population))
    draw = (drawing.at if drawing else generator)(seed, "cohort", round)
    chosen: list[int] = draw.choice(population, size, replace=False).tolist()
    return chosen


@dataclass(frozen=True)
class Fixed:
    """The same number of clients in every round, uniform without replacement."""

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


@dataclass(frozen=True)
class Bernoulli:
    """Each client by itself with probability p: |S| ~ Binomial(N, p), then |S| clients uniform without replacement.

    Where that is nobody, one client is drawn, uniform: P(i ∈ S) = p + (1−p)^N / N.
    """

    population: int
    share: float
    seed: int

    def _size(self, round: int) -> int:
        return max(int(generator(self.seed, "bernoulli", round).binomial(self.population, self.share)), 1)

    def draw(self, round: int) -> list[int]:
        return cohort(self.population, self._size(round), self.seed, round)

    def most(self, rounds: int) -> int:
        if rounds > COUNTED_ROUNDS:
            return self.population
        return max(self._size(round) for round in range(1, rounds + 1))


@dataclass(frozen=True)
class Replacement:
    """The same number of draws in every round, uniform with replacement."""

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
    """Client i is in group i mod G; round t invites clients of group (t−1) mod G."""

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
    """Clients out of the A of N that are active; every `every` rounds each of these is replaced with probability q.

    Those that come in were not active before, so at most N − A are replaced at once. The active clients of each stage
    are remembered, so that `draw` may be called for any round.
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
    """The sequence of the FedACG authors' programs: one stream of NumPy's old generator, a draw for each round.

    Everybody in order of id where |S| = N. The draws are remembered, so that `draw` may be called for any round.
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


DYNAMIC = (500, 250, 0.5, 100)
"""POOL, ACTIVE, PROBABILITY, EVERY of FedACG's Table 3."""


def invited(scenario: Scenario) -> int:
    """How many clients are invited in a round, ⌈|S|·(1 + over_selection)⌉, where the sampling has a fixed number."""
    return math.ceil(scenario.cohort * (1 + scenario.over_selection) - 1e-9)


def _check_enough(scenario: Scenario, available: int) -> None:
    """Refuse to invite more clients than there are to choose from in any round."""
    wanted = invited(scenario)
    if wanted <= available:
        return
    extra = f" and over_selection {scenario.over_selection:g}" if scenario.over_selection else ""
    raise UserError(
        f"participation {scenario.share:g}{extra} invites {wanted} clients a round, but sampling '{scenario.sampling}' "
        f"has {available} to invite; use a smaller --participation{' or --over-selection' if extra else ''}"
    )


def _groups(scenario: Scenario, argument: str | None, population: int) -> int:
    if not argument or not argument.isdecimal() or int(argument) < 1:
        raise UserError(
            f"sampling is '{scenario.sampling}'; write cyclic:GROUPS with a whole number from 1, such as cyclic:4"
        )
    if int(argument) > population:
        raise UserError(f"sampling is '{scenario.sampling}', more groups than the {population} clients there are")
    return int(argument)


def _turnover(scenario: Scenario, argument: str | None, population: int) -> tuple[int, float, int]:
    """ACTIVE, PROBABILITY, EVERY."""
    parts = argument.split(",") if argument is not None else [str(value) for value in DYNAMIC]
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


def _legacy_seed(scenario: Scenario, argument: str | None) -> int:
    if argument is not None and not argument.isdecimal():
        raise UserError(f"sampling is '{scenario.sampling}'; write authors or authors:OFFSET, such as authors:657")
    seed = scenario.seed + int(argument or 0)
    if seed >= 2**32:
        raise UserError(f"sampling '{scenario.sampling}' takes seeds below 2^32 (4294967296); the seed is {seed}")
    return seed


Build = Callable[[Scenario, int, str | None], Sampling]
"""A sampling from the scenario, the number of clients and the text after the colon; None where there is no colon."""
InWords = Callable[[Scenario, str | None], str]
"""How reports say a sampling, from the scenario and the text after the colon."""


def _fixed(scenario: Scenario, population: int, _: str | None) -> Sampling:
    _check_enough(scenario, population)
    return Fixed(population, invited(scenario), scenario.seed)


def _cyclic(scenario: Scenario, population: int, argument: str | None) -> Sampling:
    groups = _groups(scenario, argument, population)
    _check_enough(scenario, population // groups)
    return Cyclic(population, invited(scenario), scenario.seed, groups)


def _dynamic(scenario: Scenario, population: int, argument: str | None) -> Sampling:
    active, probability, every = _turnover(scenario, argument, population)
    _check_enough(scenario, active)
    return Dynamic(population, invited(scenario), scenario.seed, active, probability, every)


def _authors(scenario: Scenario, population: int, argument: str | None) -> Sampling:
    _check_enough(scenario, population)
    return Authors(population, invited(scenario), _legacy_seed(scenario, argument))


def _a_round(scenario: Scenario, argument: str | None = None) -> str:
    return f"{scenario.cohort} of {scenario.clients} clients a round"


def _expected(scenario: Scenario) -> float:
    return scenario.share * scenario.clients


def _on_average(scenario: Scenario, argument: str | None) -> str:
    return f"{_expected(scenario):.4g} of {scenario.clients} clients a round on average"


def _active(scenario: Scenario, argument: str | None) -> str:
    return f"{_a_round(scenario)}, {argument.split(',')[1] if argument else DYNAMIC[1]} active"


@dataclass(frozen=True)
class SamplingEntry:
    """A line of the table."""

    build: Build
    help: str
    """What it does, in one line."""
    argument: str = ""
    """How the text after the name is written, `:GROUPS`; in brackets where it may be left out."""
    sized: bool = True
    """Whether every round has a number of clients that the scenario says, to which over-selection can add."""
    words: InWords = _a_round
    """How reports say it."""
    wanted: Callable[[Scenario], float] = lambda scenario: scenario.cohort
    """How many clients a round is planned to have."""


SAMPLINGS: Mapping[str, SamplingEntry] = {
    "fixed": SamplingEntry(_fixed, "|S| clients, uniform without replacement"),
    "bernoulli": SamplingEntry(
        lambda scenario, population, _: Bernoulli(population, scenario.share, scenario.seed),
        "each client by itself, with probability `participation`",
        sized=False,
        words=_on_average,
        wanted=_expected,
    ),
    "poisson": SamplingEntry(
        lambda scenario, population, _: Poisson(population, scenario.share, scenario.seed),
        "each client by itself, with probability `participation`; perhaps nobody",
        sized=False,
        words=_on_average,
        wanted=_expected,
    ),
    "replacement": SamplingEntry(
        lambda scenario, population, _: Replacement(population, invited(scenario), scenario.seed),
        "|S| draws, uniform with replacement",
        words=lambda scenario, _: f"{_a_round(scenario)}, with replacement",
    ),
    "full": SamplingEntry(
        lambda scenario, population, _: Fixed(population, population, scenario.seed),
        "everybody in every round",
        sized=False,
        words=lambda scenario, _: f"{scenario.clients} of {scenario.clients} clients a round",
        wanted=lambda scenario: scenario.clients,
    ),
    "cyclic": SamplingEntry(
        _cyclic,
        "|S| clients of one group; the groups take turns, round after round",
        ":GROUPS",
        words=lambda scenario, groups: f"{_a_round(scenario)}, {groups} groups in turn",
    ),
    "dynamic": SamplingEntry(
        _dynamic,
        "|S| of the active clients, whose set turns over (FedACG Table 3)",
        "[:POOL,ACTIVE,PROBABILITY,EVERY]",
        words=_active,
    ),
    "authors": SamplingEntry(_authors, "|S| clients, in the sequence of the FedACG authors' programs", "[:OFFSET]"),
}


def sampling(scenario: Scenario, population: int, own: Sampling | None = None) -> Sampling:
    """The sampling that the scenario names, or the user's own object with its answers checked."""
    if own is not None:
        _check_sized(scenario, OWN, sized=False)
        return OwnSampling(own, population, scenario.rounds)
    if scenario.sampling == OWN:
        raise UserError("sampling is 'own', an object that was passed in Python; pass it again")
    name, colon, argument = scenario.sampling.partition(":")
    entry = SAMPLINGS.get(name)
    if entry is None or (colon and not entry.argument):
        known = ", ".join(f"{known}{line.argument}" for known, line in SAMPLINGS.items())
        hint = nearest(name, SAMPLINGS) if entry is None else ""
        raise UserError(f"there is no sampling '{scenario.sampling}'{hint} ({known})")
    _check_sized(scenario, name, entry.sized)
    return entry.build(scenario, population, argument if colon else None)


def _check_sized(scenario: Scenario, name: str, sized: bool) -> None:
    if not sized and scenario.over_selection:
        raise UserError(
            f"over_selection needs a number of clients to add to, and sampling '{name}' has none; use another sampling"
        )


def wanted(scenario: Scenario) -> float:
    """How many clients a round is planned to have, whoever comes: |S|, or its mean where it is drawn."""
    entry = SAMPLINGS.get(scenario.sampling.partition(":")[0])
    return float(scenario.cohort if entry is None else entry.wanted(scenario))


def in_words(scenario: Scenario) -> str:
    """`6 of 60 clients a round`, and what else is true of them."""
    name, colon, argument = scenario.sampling.partition(":")
    entry = SAMPLINGS.get(name)
    if entry is None:
        text = f"clients by a sampling of the user's, out of {scenario.clients}"
    else:
        text = entry.words(scenario, argument if colon else None)
    if scenario.over_selection:
        text += f", {invited(scenario)} invited"
    return text + (f", {100 * scenario.dropout:.3g} % drop out" if scenario.dropout else "")
