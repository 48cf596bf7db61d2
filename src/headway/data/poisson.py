"""`Poisson`: the sampling in which each client comes by itself, as accountants of differential privacy assume."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headway.random import generator

COUNTED_ROUNDS = 100_000
"""A cohort of random size is counted in each of this many rounds at most; a longer run has room for everybody."""


@dataclass(frozen=True)
class Poisson:
    """Each client by itself with probability q, in order of id; a round may have nobody.

    |S| ~ Binomial(N, q), then |S| clients uniform without replacement, which is the same.
    """

    population: int
    share: float
    seed: int

    def _sized(self, round: int) -> tuple[int, np.random.Generator]:
        draw = generator(self.seed, "poisson", round)
        return int(draw.binomial(self.population, self.share)), draw

    def draw(self, round: int) -> list[int]:
        size, draw = self._sized(round)
        return sorted(draw.choice(self.population, size, replace=False).tolist())

    def most(self, rounds: int) -> int:
        """At least 1, so that there is room for somebody."""
        if rounds > COUNTED_ROUNDS:
            return self.population
        return max(1, *(self._sized(round)[0] for round in range(1, rounds + 1)))
