"""What a round asks of each client: its batches, rates and key, and what it holds from before.

`ClientRounds` makes it all from (seed, round, client), and remembers what it is asked for again. It is the only place
that knows of rounds before their turn: an executor that plans ahead asks here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor

from headway import random
from headway.data.batches import BatchPlan, BatchPlanner, batch_sizes, planned_steps
from headway.data.cohort import Cohort, cohort_of
from headway.engine.client_arrays import ClientArrays, HostArrays
from headway.engine.network import Buffers
from headway.engine.padding import grown
from headway.errors import ClientError, OutOfMemory
from headway.methods.slots import States
from headway.schedules import schedule
from headway.trees import moved

if TYPE_CHECKING:
    from headway.engine.experiment import Experiment

FACTS_AT_MOST = 1000
"""How many clients' sizes and class counts are cached."""


class ClientState(TypedDict):
    """What a client keeps between its rounds."""

    slots: States
    cursor: NotRequired[Tensor]
    """How many batches of its stream it has read, where batches are `continued`."""
    buffers: NotRequired[Buffers]
    """Its own statistics, where buffers are `keep-local`."""


StateOf = Callable[[int], ClientState | None]
"""What a client holds now; None for one that never took part."""


@dataclass(frozen=True)
class ClientFacts:
    """What is the same in all rounds of a client: its rows, n_i, p_i and class counts."""

    rows: np.ndarray
    size: np.ndarray
    share: np.ndarray
    class_counts: np.ndarray


@dataclass(frozen=True)
class ClientRound:
    """One client's part in one round."""

    client: int
    arrays: HostArrays
    """Its batches, rates and key, as arrays on the host."""
    weight: float
    """ω_i: its share of what reaches the server in this round."""
    state: ClientState
    steps: int
    """K_i, the number of its local steps."""
    words: tuple[int, int]
    """The key of (seed, round, client), for models that draw from torch's own generator."""


BatchForm = tuple[int, tuple[int, ...]]
"""The form of a client's round: how many samples are read as a whole, and how many are in each batch."""


@dataclass(frozen=True)
class Turn:
    """The clients that train at the same time in a round: everybody's first draw, or everybody's second."""

    round: int
    clients: tuple[int, ...]
    weights: np.ndarray
    """ω_i of each client."""
    truncated: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """K′ of those, by place in `clients`, that stop before their last step."""
    repeat: int = 0
    """0 for the first draw of each client, 1 for the second, …"""

    def same_as(self, other: Turn | None) -> bool:
        """Whether the same clients do the same work with the same weights."""
        if other is None:
            return False
        mine, theirs = (
            (one.round, one.repeat, one.clients, dict(one.truncated), tuple(one.weights)) for one in (self, other)
        )
        return mine == theirs


class CohortRounds:
    """The rounds of a turn's clients: each is made when it is asked for, and held until it is released."""

    def __init__(
        self,
        turn: Turn,
        lengths: Sequence[int],
        make: Callable[[int], ClientRound],
        form: Callable[[int], BatchForm],
        *,
        skips: bool = False,
    ) -> None:
        self.turn = turn
        self.failures: dict[int, ClientError] | None = {} if skips else None
        """Where clients that fail are skipped: what each of them said, by its position."""
        self.lengths = tuple(lengths)
        """K_i of each, known without making it."""
        self.form = form
        """The sizes of the batches of the client at a place, as if it took all its steps."""
        self._make = make
        self._held: dict[int, ClientRound] = {}

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, at: int) -> ClientRound:
        if at not in self._held:
            self._held[at] = self._make(at)
        return self._held[at]

    def __iter__(self) -> Iterator[ClientRound]:
        return (self[at] for at in range(len(self)))

    def at(self, positions: Iterable[int]) -> list[ClientRound]:
        """The rounds of the clients at these positions."""
        return [self[position] for position in positions]

    def samples(self, positions: Iterable[int]) -> int:
        """Samples in the batches of the clients at these positions."""
        return sum(self._samples(position) for position in positions)

    def _samples(self, at: int) -> int:
        if at in self._held:
            return int(self._held[at].arrays.counts.sum())
        return sum(self.form(at)[1][: self.lengths[at]])

    def failed(self, position: int, fault: ClientError) -> None:
        """A client failed, so its result will not come. Where nobody is skipped, the failure ends the round."""
        if self.failures is None or isinstance(fault, OutOfMemory):
            raise fault
        self.failures[position] = fault

    def release(self, positions: Iterable[int]) -> None:
        """Forget the rounds at these positions: they are done."""
        for position in positions:
            self._held.pop(position, None)


class ClientRounds:
    """Makes cohorts and their clients' rounds for an experiment."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._batches = BatchPlanner(experiment.scenario, experiment.federation.clients)
        self._initial_state = experiment.initial_client_state
        self._facts: dict[int, ClientFacts] = {}
        self._cohorts: dict[int, Cohort] = {}

    def cohort(self, round: int) -> Cohort:
        """The cohort of a round; the last one is remembered, for an executor that looks ahead."""
        if round not in self._cohorts:
            self._cohorts.clear()
            self._cohorts[round] = self._drawn(round)
        return self._cohorts[round]

    def _drawn(self, round: int) -> Cohort:
        experiment, scenario = self._experiment, self._experiment.scenario
        if experiment.attendance is not None:
            return self._played_again(experiment.attendance.cohort(round))
        invited = experiment.sampling.draw(round)
        if experiment.method.pooled:
            return Cohort(tuple(invited))
        places = scenario.cohort if scenario.over_selection else len(invited)

        def steps(client: int) -> int:
            return planned_steps(scenario, int(experiment.federation.sizes[client]))

        return cohort_of(scenario, invited, places, steps, round)

    def _played_again(self, cohort: Cohort) -> Cohort:
        """A cohort of another run, in which those are truncated that did less than all their steps here."""
        scenario, sizes = self._experiment.scenario, self._experiment.federation.sizes
        planned = [planned_steps(scenario, int(sizes[client])) for client in cohort.clients]
        return replace(cohort, truncated={at: count for at, count in cohort.truncated.items() if count < planned[at]})

    def facts(self, client: int) -> ClientFacts:
        """What is the same in all rounds of a client; it is remembered for the last clients. Copy before you change."""
        if client not in self._facts:
            if len(self._facts) == FACTS_AT_MOST:
                self._facts.clear()
            experiment = self._experiment
            rows = experiment.federation.clients[client]
            share = np.asarray(experiment.weight(client) / experiment.weight_total, self._float)
            counts = experiment.federation.class_counts(client)
            self._facts[client] = ClientFacts(rows, np.asarray(len(rows)), share, counts)
        return self._facts[client]

    def of(self, turn: Turn, state_of: StateOf) -> CohortRounds:
        """The rounds of a turn's clients, each to be made when it is asked for."""
        experiment, scenario = self._experiment, self._experiment.scenario
        sizes = experiment.federation.sizes[list(turn.clients)].tolist()
        steps = {size: planned_steps(scenario, size) for size in set(sizes)}
        lengths = [min(steps[size], turn.truncated.get(at, steps[size])) for at, size in enumerate(sizes)]

        def make(at: int) -> ClientRound:
            return self.client_round(turn, at, state_of(turn.clients[at]))

        def form(at: int) -> BatchForm:
            state = state_of(turn.clients[at]) if scenario.batches == "continued" else None
            cursor = 0 if state is None else int(state["cursor"])
            return sizes[at] if experiment.reads_whole else 0, tuple(batch_sizes(scenario, sizes[at], cursor).tolist())

        return CohortRounds(turn, lengths, make, form, skips=scenario.on_failure == "skip")

    def client_round(self, turn: Turn, at: int, state: ClientState | None) -> ClientRound:
        """The round of the client at a place of a turn: batches, rates, key, and its state or the initial one."""
        experiment, round, client = self._experiment, turn.round, turn.clients[at]
        held = self._initial_state if state is None else state
        batches = self._batches.plan(client, round, int(held.get("cursor", 0)), turn.repeat)
        words = random.key(experiment.scenario.seed, "client", round, client, *([turn.repeat] if turn.repeat else []))
        steps = min(len(batches), turn.truncated.get(at, len(batches)))
        facts = self.facts(client)
        arrays = ClientArrays(
            size=facts.size.copy(),
            share=facts.share.copy(),
            seen=np.asarray(state is not None),
            class_counts=facts.class_counts.copy(),
            rows=batches.rows[:steps],
            counts=batches.counts[:steps],
            rates=self._rates(round, batches.epochs)[:steps],
            steps=np.asarray(steps),
            key=np.asarray(words),
            whole=facts.rows if experiment.reads_whole else facts.rows[:0],
        )
        placed = moved(held, experiment.device) if experiment.has_client_state else held
        return ClientRound(client, arrays, float(turn.weights[at]), placed, steps, words)

    def prepare(self, round: int) -> None:
        """Make the batches of a round now, while a device is busy with the one before."""
        if round <= self._experiment.scenario.rounds:
            self._batches.prepare(round, self.cohort(round).clients)

    def stacked(self, round: int, room: int) -> tuple[Turn, HostArrays] | None:
        """A whole round's arrays as one, with a leading axis of clients, in the run's largest shapes.

        Only where up to `room` clients are all drawn once, keep nothing and take all their steps. The numbers are those
        of `client_round`; made for all at once, they take less time. Else the round's batches are prepared, and there
        is nothing to return.
        """
        experiment = self._experiment
        if round > experiment.scenario.rounds:
            return None
        cohort = self.cohort(round)
        clients = cohort.clients
        if not 0 < len(clients) <= room or experiment.has_client_state or cohort.truncated or len(cohort.turns) != 1:
            self.prepare(round)
            return None
        return Turn(round, clients, experiment.weights(clients)[0]), self._stack(round, clients)

    def _stack(self, round: int, clients: Sequence[int]) -> HostArrays:
        """The arrays of clients that keep nothing, with a leading axis of clients, in the run's largest shapes."""
        shapes, seed = self._experiment.shapes, self._experiment.scenario.seed
        facts = [self.facts(client) for client in clients]
        plans = [self._batches.plan(client, round, 0, 0) for client in clients]
        whole = _each(facts, "rows") if self._experiment.reads_whole else [facts[0].rows[:0]] * len(facts)

        def filled(name: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
            shape = shapes[name]
            return np.array([array if array.shape == shape else grown(array, shape) for array in arrays])

        return ClientArrays(
            size=np.array(_each(facts, "size")),
            share=np.array(_each(facts, "share")),
            seen=np.zeros(len(facts), bool),
            class_counts=np.array(_each(facts, "class_counts")),
            rows=filled("rows", _each(plans, "rows")),
            counts=filled("counts", _each(plans, "counts")),
            rates=filled("rates", self._rates_by_size(round, facts, plans)),
            steps=np.array(list(map(len, plans))),
            key=np.array([random.key(seed, "client", round, client) for client in clients]),
            whole=filled("whole", whole),
        )

    def _rates_by_size(self, round: int, facts: Sequence[ClientFacts], plans: Sequence[BatchPlan]) -> list[np.ndarray]:
        """η of each client's steps; clients of the same size share them."""
        sizes = [int(one.size) for one in facts]
        epochs = {size: plan.epochs for size, plan in zip(sizes, plans, strict=True)}
        rates = {size: self._rates(round, each) for size, each in epochs.items()}
        return [rates[size] for size in sizes]

    @property
    def _float(self) -> type[np.floating]:
        return np.float64 if self._experiment.dtype == torch.float64 else np.float32

    def _rates(self, round: int, epochs: np.ndarray) -> np.ndarray:
        """η of the schedule at each step, times d_e^e for its local epoch e."""
        scenario = self._experiment.scenario
        course, decay = schedule(scenario.schedule), scenario.rate_decay_epoch
        if course.over == "steps":
            rates = scenario.rate * course.shares(round, len(epochs), scenario.rounds, scenario.rate_decay)
            return (rates * decay**epochs).astype(self._float)
        first = self._experiment.rate(round)
        return np.full(len(epochs), first, self._float) if decay == 1 else (first * decay**epochs).astype(self._float)


def _each(records: Sequence[ClientFacts] | Sequence[BatchPlan], name: str) -> list[np.ndarray]:
    """The array of this name in each record."""
    return list(map(attrgetter(name), records))
