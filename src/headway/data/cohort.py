"""The cohort of a round: who was invited, and who of them arrives, drops out, is late or did only a part.

It is fixed by (seed, round).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from headway.random import generator
from headway.scenario import Scenario


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round."""

    clients: tuple[int, ...]
    """Those that arrive: their uploads count. A client that was drawn twice is here twice."""
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
    order = draw.permutation(len(invited)).tolist()
    steps: dict[int, int] = {}
    if scenario.stragglers == "partial":
        for place in drops.nonzero()[0].tolist():
            if (most := planned_steps(invited[place]) - 1) > 0:
                steps[place] = 1 + int(reached[place] * most)
    finished = [place for place in order if not drops[place]]
    arriving = finished + [place for place in order if place in steps]
    counted = sorted(arriving[:places])
    return Cohort(
        clients=tuple(invited[place] for place in counted),
        truncated={at: steps[place] for at, place in enumerate(counted) if place in steps},
        lost=len(invited) - len(arriving),
        late=len(arriving) - len(counted),
    )
