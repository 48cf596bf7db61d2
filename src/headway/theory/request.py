"""What `bounds` is asked for, checked: a method that has theorems here, a problem, and constants that are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headway.data.batches import planned_steps
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.errors import UserError, nearest, shown
from headway.methods.spelling import Argument, chosen, pieces
from headway.methods.spelling import method as spelled
from headway.runs.given import OwnObjects
from headway.runs.observer import Observer
from headway.scenario import Scenario
from headway.theory.condition import check_number

CONSTANTS: Mapping[str, tuple[str, ...]] = {
    "fednag": ("beta", "rho", "delta", "omega", "p", "q", "cosine"),
    "fedacg": ("L", "sigma", "sigma_g", "B", "gap"),
    "gradma": ("L", "rho", "gap", "epsilon_l", "epsilon_g"),
}
"""The methods with theorems, and the constants of each that may be given."""


@dataclass(frozen=True)
class Request:
    """A method, a problem and what is looked at."""

    method: str
    scenario: Scenario
    own: OwnObjects
    observer: Observer
    given: Mapping[str, float] = field(default_factory=dict)
    taus: tuple[int, ...] = (1, 4, 16)
    total: int = 64
    """T: FedNAG's local steps on a convex problem."""
    eta: float | None = None
    points: int = 4
    trained: int = 6
    look_at: int = 10

    def __post_init__(self) -> None:
        if len(pieces(self.method)) != 1 or self.entry not in CONSTANTS:
            known = ", ".join(CONSTANTS)
            raise UserError(
                f"there is no theorem here for '{self.method}'{nearest(self.method, CONSTANTS)}; "
                f"there are for {known}, with arguments such as fednag:gamma=0.5"
            )
        spelled(self.method)  # a misspelt argument is refused
        names = CONSTANTS[self.entry]
        for name, value in self.given.items():
            if name not in names:
                raise UserError(
                    f"'{name}' is not a constant of {self.entry}{nearest(name, names)} ({', '.join(names)})"
                )
            check_number(name, value, least=-1.0 if name == "cosine" else 0.0)
        for name in ("total", "points", "look_at"):
            check_whole(name, getattr(self, name), 1)
        check_whole("trained", self.trained, 0)
        if not self.taus:
            raise UserError("taus is empty; give at least one, such as 4")
        for tau in self.taus:
            check_whole("tau", tau, 1)
            if self.total % tau:
                raise UserError(f"total is {self.total} steps; it must be a multiple of every tau, and {tau} is one")
        if self.eta is not None:
            check_number("eta", self.eta, above=True)

    @property
    def entry(self) -> str:
        return self.method.partition(":")[0].strip()

    @property
    def arguments(self) -> Mapping[str, Argument]:
        """The method's arguments in force."""
        return chosen(self.method)[1]

    def number(self, name: str) -> float:
        """One of the method's arguments that is a number."""
        value = self.arguments[name]
        assert isinstance(value, int | float), f"{name} is a number"
        return float(value)

    @property
    def has_all(self) -> bool:
        """Whether no constant has to be found on data."""
        needed = {"fednag": ("beta", "rho", "delta"), "fedacg": CONSTANTS["fedacg"], "gradma": ("L", "rho", "gap")}
        return set(needed[self.entry]) <= set(self.given)

    def experiment(self) -> Experiment:
        """The method bound to data and network."""
        built = spelled(self.method)
        return build(self.scenario.changed(method=built.name), built, **self.own)

    @property
    def words(self) -> str:
        """The problem in words, where no data is read."""
        return f"{self.scenario.clients} clients, {self.scenario.cohort} in a round, {self.scenario.rounds} rounds"


def check_whole(name: str, value: object, least: int) -> None:
    if type(value) is not int or value < least:
        raise UserError(f"{name} is {shown(value)}; it must be a whole number of at least {least}")


def local_steps(scenario: Scenario, sizes: Sequence[int] | None) -> int:
    """The most local steps that a client makes in a round; without data the scenario must say it."""
    if scenario.steps is not None:
        return scenario.steps
    if sizes is None:
        raise UserError("steps is not given, and without data nobody knows how many an epoch has; give --steps")
    return max(planned_steps(scenario, size) for size in sizes)
