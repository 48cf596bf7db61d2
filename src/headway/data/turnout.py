"""What comes of a round's cohort: who drops out, who is too late, who has done only a part. Fixed by (seed, round)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from headway.random import generator
from headway.scenario import Scenario


@dataclass(frozen=True)
class Turnout:
    """Who takes part in a round."""

    clients: tuple[int, ...]
    """Those whose upload counts. One that was drawn twice is here twice."""
    cut: Mapping[int, int] = field(default_factory=dict)
    """K′ of those, by place in `clients`, that uploaded after K′ < K steps."""
    lost: int = 0
    """Clients that dropped out with all their work."""
    late: int = 0
    """Clients that were asked and not needed any more."""

    @property
    def asked(self) -> int:
        return len(self.clients) + self.lost + self.late

    @cached_property
    def waves(self) -> list[list[int]]:
        """Places in `clients` of everybody's first draw, second draw, …: each starts from what the one before left."""
        waves: list[list[int]] = []
        draws: dict[int, int] = {}
        for place, client in enumerate(self.clients):
            number = draws[client] = draws.get(client, -1) + 1
            if number == len(waves):
                waves.append([])
            waves[number].append(place)
        return waves


def turnout(
    scenario: Scenario, asked: Sequence[int], places: int, planned: Callable[[int], int], round: int
) -> Turnout:
    """Which of the clients asked count, when `places` of them are wanted and `planned(client)` is K_i.

    Each drops out with probability `dropout`. If lost, its work never comes; if partial, it comes after K′ steps, K′
    uniform on 1 … K−1, and with K = 1 it is lost too. The first `places` to finish count, in an order drawn uniformly;
    those cut short come after all who finished.
    """
    if not scenario.dropout and len(asked) <= places:
        return Turnout(tuple(asked))
    draw = generator(scenario.seed, "turnout", round)
    drops = draw.random(len(asked)) < scenario.dropout
    reached = draw.random(len(asked))
    order = draw.permutation(len(asked)).tolist()
    steps: dict[int, int] = {}
    if scenario.stragglers == "partial":
        for place in drops.nonzero()[0].tolist():
            if (most := planned(asked[place]) - 1) > 0:
                steps[place] = 1 + int(reached[place] * most)
    finished = [place for place in order if not drops[place]]
    arriving = finished + [place for place in order if place in steps]
    counted = sorted(arriving[:places])
    return Turnout(
        clients=tuple(asked[place] for place in counted),
        cut={at: steps[place] for at, place in enumerate(counted) if place in steps},
        lost=len(asked) - len(arriving),
        late=len(arriving) - len(counted),
    )
