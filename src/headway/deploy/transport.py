"""What carries messages between the server and the sites: the protocol, and one within a process, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headway.deploy.codes import Code
from headway.deploy.records import Record


@dataclass(frozen=True)
class Ask:
    """A message to one site."""

    node: str
    """The site's address, as `Transport.nodes` has it."""
    record: Record
    id: str
    """The answer is known by it; it is never used twice."""


@dataclass(frozen=True)
class Answer:
    """What came of an ask."""

    id: str
    record: Record | None
    fault: str = ""
    """A code and few words of the carrier, where no message came."""


class Transport(Protocol):
    """Carries messages. Nothing of them is looked into."""

    def nodes(self) -> Sequence[str]:
        """The addresses that can be reached now."""

    def send(self, asks: Sequence[Ask], seconds: float | None) -> None:
        """Send messages whose answers are wanted for this many seconds; None for as long as it takes."""

    def receive(self, seconds: float) -> Sequence[Answer]:
        """What came since the last call. It waits for this many seconds at most, and less where something is there."""

    def traffic(self) -> int | None:
        """The bytes that went over the wire, by the carrier's own count; None where it has none."""


Site = Callable[[Record], Record]
"""A site that answers: `lambda asked: answer(app, place, asked)`."""


@dataclass
class Faults:
    """What goes wrong between a server and its sites, by the number of the ask, counted from 0 at each node."""

    lost_asks: frozenset[tuple[str, int]] = frozenset()
    """These never arrive."""
    lost_answers: frozenset[tuple[str, int]] = frozenset()
    """These are worked on, and their answers never arrive."""
    doubled_asks: frozenset[tuple[str, int]] = frozenset()
    """These arrive twice, and both answers come back."""
    doubled_answers: frozenset[tuple[str, int]] = frozenset()
    late_answers: frozenset[tuple[str, int]] = frozenset()
    """These answers come with those of the node's next ask, before them."""
    broken: frozenset[tuple[str, int]] = frozenset()
    """The carrier says that the node is not available."""


@dataclass
class InProcess:
    """Sites in this process, each asked when its message is sent; faults go wrong where they are told to."""

    sites: Mapping[str, Site]
    faults: Faults = field(default_factory=Faults)
    away: set[str] = field(default_factory=set)
    """Nodes that cannot be reached now."""
    wait: Callable[[float], None] = lambda seconds: None
    """What passes the time where nothing is there, such as a test's clock."""
    _asked: dict[str, int] = field(default_factory=dict)
    _arrived: list[Answer] = field(default_factory=list)
    _held: dict[str, list[Answer]] = field(default_factory=dict)

    def nodes(self) -> Sequence[str]:
        return [node for node in self.sites if node not in self.away]

    def send(self, asks: Sequence[Ask], seconds: float | None) -> None:
        for ask in asks:
            self._ask(ask)

    def _ask(self, ask: Ask) -> None:
        number = self._asked.get(ask.node, 0)
        self._asked[ask.node] = number + 1
        place, faults = (ask.node, number), self.faults
        before, self._held[ask.node] = self._held.get(ask.node, []), []
        self._arrived += before
        if place in faults.lost_asks:
            return
        if place in faults.broken or ask.node in self.away:
            self._arrived.append(Answer(ask.id, None, f"{Code.UNREACHABLE}: the node is not available"))
            return
        answers = [Answer(ask.id, self.sites[ask.node](ask.record))]
        if place in faults.doubled_asks:
            answers.append(Answer(ask.id, self.sites[ask.node](ask.record)))
        if place in faults.doubled_answers:
            answers *= 2
        if place in faults.late_answers:
            self._held[ask.node] = answers
        elif place not in faults.lost_answers:
            self._arrived += answers

    def receive(self, seconds: float) -> Sequence[Answer]:
        if not self._arrived:
            self.wait(seconds)
        arrived, self._arrived = self._arrived, []
        return arrived

    def traffic(self) -> int | None:
        return None
