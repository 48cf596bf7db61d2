"""How much is learnt of a client: ε at a δ after a number of rounds, by the package dp-accounting.

Two accountants give upper bounds on the same ε: `pld` composes the distributions of the privacy loss, and is the
tighter; `rdp` composes Rényi divergences. ε is a function of the settings and of the number of rounds alone, so a run
that is resumed records the same numbers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast

from headway.engine.experiment import Experiment
from headway.engine.privacy import DELTA
from headway.errors import UserError
from headway.methods.privacy import privacy_of

Kind = Literal["pld", "rdp"]
GRID = 1e-3
"""Distance of the losses at which a distribution is kept; ε is a bound for any, here within 1e-4 of finer ones."""


@dataclass(frozen=True)
class Mechanism:
    """What is released in every round: a sum of bounded updates with noise."""

    noise: float
    """z: the noise's deviation in multiples of the clip."""
    sampling: str
    """`poisson`, `full` or `fixed`."""
    share: float
    """q: the probability with which a client comes, where the sampling is `poisson`."""
    population: int
    cohort: int
    """How many clients come, where the sampling is `fixed`."""

    @property
    def everybody(self) -> bool:
        """Whether every client comes in every round, so that nobody is hidden by being away."""
        drawn = {"full": False, "poisson": self.share < 1, "fixed": self.cohort < self.population}
        return not drawn[self.sampling]


@dataclass(frozen=True)
class Accountant:
    """ε of a mechanism at δ, by the number of its rounds."""

    mechanism: Mechanism
    delta: float = DELTA
    kind: Kind = "pld"

    def __post_init__(self) -> None:
        if not self.mechanism.everybody and self.mechanism.sampling == "fixed" and self.kind == "pld":
            raise UserError(
                "accountant is 'pld', which does not know sampling 'fixed'; use --accountant rdp, or --sampling poisson"
            )

    def epsilon(self, rounds: int) -> float:
        """ε after this many rounds: an upper bound; infinite where the noise is too little for the accountant."""
        if rounds not in self._known:
            self._known[rounds] = self._after(rounds) if rounds else 0.0
        return self._known[rounds]

    @cached_property
    def _known(self) -> dict[int, float]:
        return {}

    @cached_property
    def _after(self) -> Callable[[int], float]:
        of = _by_divergences if self.kind == "rdp" else _by_losses
        return of(self.mechanism, self.delta)


def _by_losses(one: Mechanism, delta: float) -> Callable[[int], float]:
    """ε by the distribution of the privacy loss of a client that is there or not."""
    try:
        import dp_accounting as dp
        from dp_accounting.pld import privacy_loss_distribution as losses
    except ImportError:
        raise _missing() from None
    if one.everybody:  # t Gaussians of deviation z are one of deviation z/√t, whose ε is exact
        return lambda rounds: float(dp.get_epsilon_gaussian(one.noise / math.sqrt(rounds), delta))
    single = losses.from_gaussian_mechanism(one.noise, sampling_prob=one.share, value_discretization_interval=GRID)
    return lambda rounds: float(single.self_compose(rounds).get_epsilon_for_delta(delta))


def _by_divergences(one: Mechanism, delta: float) -> Callable[[int], float]:
    """ε by Rényi divergences.

    Without replacement the clients that come are always as many, so one that is away makes room for another: the sum
    changes by twice the clip, and the noise counts half.
    """
    try:
        import dp_accounting as dp
        from dp_accounting import rdp
    except ImportError:
        raise _missing() from None
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    event = dp.GaussianDpEvent(one.noise)
    if not one.everybody and one.sampling == "fixed":
        relation = dp.NeighboringRelation.REPLACE_ONE
        event = dp.SampledWithoutReplacementDpEvent(one.population, one.cohort, dp.GaussianDpEvent(one.noise / 2))
    elif not one.everybody:
        event = dp.PoissonSampledDpEvent(one.share, event)
    with _without_left_out_orders():
        single = rdp.RdpAccountant(neighboring_relation=relation).compose(event)
    return lambda rounds: float(rdp.compute_epsilon(single.orders, rounds * single.rdp, delta)[0])


@contextmanager
def _without_left_out_orders() -> Iterator[None]:
    """Inside, dp-accounting does not print which Rényi orders it leaves out: ε is the least over all others."""
    logger = logging.getLogger("absl")
    logger.addFilter(_tells_something_else)
    try:
        yield
    finally:
        logger.removeFilter(_tells_something_else)


def _tells_something_else(record: logging.LogRecord) -> bool:
    return "failed to converge" not in str(record.msg)


def _missing() -> UserError:
    return UserError("the epsilon of +dp needs the package dp-accounting: pip install 'headway[dp]'")


def accountant_of(experiment: Experiment) -> Accountant | None:
    """The accountant of a private run; None where nothing is private, or no noise is added."""
    scenario, privacy = experiment.scenario, privacy_of(experiment.method)
    if privacy is None:
        return None
    if not privacy.noise:
        if scenario.epsilon is not None:
            raise UserError(
                f"epsilon is {scenario.epsilon:g}, but noise is 0, which spends any budget; give +dp a noise"
            )
        return None
    mechanism = Mechanism(privacy.noise, scenario.sampling, scenario.share, experiment.population, scenario.cohort)
    return accountant(mechanism, scenario.delta, scenario.accountant)


def accountant(mechanism: Mechanism, delta: float | None, kind: str | None) -> Accountant:
    """An accountant with what is given, and with the tightest that knows the sampling where none is."""
    tightest = "pld" if mechanism.everybody or mechanism.sampling != "fixed" else "rdp"
    return Accountant(mechanism, DELTA if delta is None else delta, cast(Kind, kind or tightest))


def least_noise(epsilon: float, rounds: int, of: Callable[[float], Accountant]) -> float:
    """The least noise, rounded up to four digits, whose ε is at most this; `of` makes the accountant of a noise."""
    high = 1.0
    while of(high).epsilon(rounds) > epsilon:
        high *= 2
        if high > 1e6:
            raise UserError(f"epsilon is {epsilon:g}, which no noise up to 1e6 reaches; allow more, or fewer rounds")
    low = high / 2
    while low > 1e-3 and of(low).epsilon(rounds) <= epsilon:
        high, low = low, low / 2
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if of(middle).epsilon(rounds) <= epsilon else (middle, high)
    digits = 3 - math.floor(math.log10(high))
    return float(math.ceil(high * 10**digits) / 10**digits)
