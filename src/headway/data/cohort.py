"""The cohort of a round: who was invited, and who of them arrives, drops out, is late or did only a part.

It is fixed by (seed, round).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from headway.errors import UserError
from headway.random import generator
from headway.scenario import Scenario


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round."""

    clients: tuple[int, ...]
    """The clients that arrive: their uploads count. A client that was drawn twice is here twice."""
    truncated: Mapping[int, int] = field(default_factory=dict)
    """K′ of those, by place in `clients`, that uploaded after K′ < K steps."""
    lost: int = 0
    """How many dropped out with all their work."""
    late: int = 0
    """How many finished after enough others had."""

    @property
    def invited(self) -> int:
        """How many were sent the model."""
        return len(self.clients) + self.lost + self.late

    @cached_property
    def turns(self) -> tuple[tuple[int, ...], ...]:
        """Places in `clients` of everybody's first draw, second draw, …

        A client that was drawn twice trains twice in a round: the second time it begins with what the first left it.
        """
        turns: list[list[int]] = []
        draws: dict[int, int] = {}
        for place, client in enumerate(self.clients):
            turn = draws[client] = draws.get(client, -1) + 1
            if turn == len(turns):
                turns.append([])
            turns[turn].append(place)
        return tuple(tuple(turn) for turn in turns)


@dataclass(frozen=True)
class Attendance:
    """Who took part in each round of a run, to be played again."""

    cohorts: tuple[Cohort, ...]
    """Of rounds 1, 2, …"""

    def __len__(self) -> int:
        return len(self.cohorts)

    def cohort(self, round: int) -> Cohort:
        return self.cohorts[round - 1]


def check_attendance(scenario: Scenario, attendance: Attendance | None, population: int) -> None:
    """Refuse to play rounds again that are not there, or that were of more clients."""
    if attendance is None:
        if scenario.attendance is not None:
            raise UserError(
                f"attendance is '{scenario.attendance}'; rounds are played again by `headway run` and hw.simulate only"
            )
        return
    if len(attendance) < scenario.rounds:
        raise UserError(
            f"rounds is {scenario.rounds}, but the run of attendance has {len(attendance)}; use at most these "
            f"(--rounds {len(attendance)})"
        )
    most = max((client for cohort in attendance.cohorts for client in cohort.clients), default=0)
    if most >= population:
        raise UserError(f"client {most} took part in the run of attendance, but there are {population} clients")
    if scenario.dropout or scenario.over_selection:
        name = "dropout" if scenario.dropout else "over_selection"
        raise UserError(f"attendance says who arrives, and {name} draws it; leave one of them out")


def cohort_of(
    scenario: Scenario, invited: Sequence[int], places: int, planned_steps: Callable[[int], int], round: int
) -> Cohort:
    """Which of the invited clients count, when `places` of them are wanted and `planned_steps(client)` is K_i.

    Each drops out with probability `dropout`. If lost, its work never comes; if partial, it comes after K′ steps, K′
    uniform on 1 … K−1, and with K = 1 it is lost too. The first `places` to finish count, in an order drawn uniformly;
    those that are truncated come after all who finished.
    """
    if not scenario.dropout and len(invited) <= places:
        return Cohort(tuple(invited))
    draw = generator(scenario.seed, "turnout", round)
    drops = draw.random(len(invited)) < scenario.dropout
    reached = draw.random(len(invited))
    order = draw.permutation(len(invited))
    steps: dict[int, int] = {}
    if scenario.stragglers == "partial":
        most = {place: planned_steps(invited[place]) - 1 for place in drops.nonzero()[0].tolist()}
        steps = {place: 1 + int(reached[place] * count) for place, count in most.items() if count > 0}
    finished, dropped = order[~drops[order]].tolist(), order[drops[order]].tolist()
    return _first_to_finish(invited, finished + [place for place in dropped if place in steps], places, steps)


def _first_to_finish(invited: Sequence[int], arriving: Sequence[int], wanted: int, steps: Mapping[int, int]) -> Cohort:
    """The cohort of the first `wanted` of those that arrive, which are places in `invited` in the order of arrival.

    `steps` are the K′ of those that did a part.
    """
    counted = sorted(arriving[:wanted])
    return Cohort(
        clients=tuple(invited[place] for place in counted),
        truncated={at: steps[place] for at, place in enumerate(counted) if place in steps},
        lost=len(invited) - len(arriving),
        late=len(arriving) - len(counted),
    )
