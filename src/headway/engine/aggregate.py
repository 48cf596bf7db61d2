"""Uploads added up: the weighted sums of a group of clients, and of a whole round as its groups arrive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import torch
from torch import Tensor

from headway.data.cohort import Cohort
from headway.engine.client_rounds import ClientRound, ClientState, CohortRounds, StateOf, Turn
from headway.engine.experiment import Experiment
from headway.engine.failures import Failures, diverged
from headway.engine.local_training import Upload
from headway.engine.network import Buffers
from headway.engine.nothing import nothing
from headway.engine.updates import ClientUpdates, measured
from headway.errors import Diverged
from headway.methods.slots import Message, States, Uploads
from headway.trees import conformed, copied, laid_out, leaves_of, nbytes, refill, row, tree_map
from headway.vectors import Vector, known

if TYPE_CHECKING:
    from headway.engine.forgetting import Forgetting
    from headway.engine.spread import Spread


class Averaged(TypedDict):
    """What is averaged over clients."""

    fields: dict[str, Vector]
    buffers: Buffers
    measures: dict[str, Tensor]


class TrainedClients(Averaged):
    """What clients sent, as the server decoded it, and what they keep. Leaves have a leading axis of clients."""

    state: States
    """What the clients' slots keep."""
    loss: Tensor
    steps: Tensor
    bytes: Tensor
    clipped: Tensor
    """How many of its steps had their gradient clipped."""


def trained_client(upload: Upload, fields: dict[str, Vector], kept: States) -> TrainedClients:
    """The result of one client's round: its decoded upload, and what it keeps. Leaves have no client axis.

    `bytes` counts the encoded fields; buffers travel beside them.
    """
    steps = upload.facts.steps
    return {
        "fields": fields,
        "buffers": upload.buffers,
        "measures": upload.measures,
        "state": kept,
        "loss": upload.loss,
        "steps": steps,
        "bytes": torch.full_like(steps, nbytes(upload.payloads)),
        "clipped": upload.clipped,
    }


class PartialAggregate(TypedDict):
    """The weighted sum of a group of clients, and a row of numbers from each. Both stay on the device."""

    sum: Averaged
    """Σ_i ω_i of everything that is averaged."""
    reports: Tensor
    """Shape (clients, 6): loss, largest number of the upload, steps, bytes, clipped steps, ‖Δ_i‖.

    The first two show what is not finite; the last is 0 where something else is sent in place of Δ_i.
    """


@dataclass(frozen=True)
class Group:
    """Clients that an executor trained together."""

    positions: tuple[int, ...]
    """Their places among the clients that the executor was given."""
    trained: TrainedClients
    computed: int
    """Samples that went through the network, those included that only filled a shape."""
    partial: PartialAggregate | None = None
    """Their weighted sum, where the executor has added them up itself."""


@dataclass(frozen=True)
class _Arrived:
    """Clients of a group whose uploads count, and their sum."""

    places: Sequence[int]
    """Their places in the cohort."""
    positions: tuple[int, ...]
    """Their positions among the clients that the executor was given."""
    trained: TrainedClients
    partial: PartialAggregate


def partial_aggregate(trained: TrainedClients, weights: Tensor) -> PartialAggregate:
    """The sum over a group's clients, with these weights ω_i, shape (clients,)."""
    averaged: Averaged = {
        "fields": trained["fields"],
        "buffers": trained["buffers"],
        "measures": trained["measures"],
    }
    sizes = [
        leaf.reshape(len(leaf), -1).abs().amax(1).double() for leaf in leaves_of(trained["fields"]) if leaf.numel()
    ]
    largest = torch.stack(sizes).amax(0)
    numbers = [trained[name].double() for name in ("steps", "bytes", "clipped")]
    reports = [trained["loss"].double(), largest, *numbers, _update_norms(trained)]
    return {"sum": _weighted_sum(weights, averaged), "reports": torch.stack(reports, dim=1)}


def _update_norms(trained: TrainedClients) -> Tensor:
    """‖Δ_i‖ of each client, shape (clients,), in float64."""
    delta = trained["fields"].get("delta")
    if delta is None:
        return torch.zeros_like(trained["loss"], dtype=torch.float64)
    rows = (leaf.reshape(len(leaf), -1) for leaf in delta.leaves.values() if leaf.numel())
    norms = [torch.linalg.vector_norm(row, dim=1, dtype=torch.float64) for row in rows]
    found: Tensor = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    return found


def _weighted_sum(weights: Tensor, averaged: Averaged) -> Averaged:
    """Σ_i ω_i · leaf[i] of each leaf; counters are averaged as float64."""
    leaves = [leaf if leaf.is_floating_point() else leaf.double() for leaf in leaves_of(averaged)]
    alone = known(weights[0]) if len(weights) == 1 else None
    if alone is not None and leaves:
        return refill(averaged, torch._foreach_mul([leaf[0] for leaf in leaves], alone))
    sums = [torch.tensordot(weights.to(leaf.dtype), leaf, dims=1) for leaf in leaves]
    return refill(averaged, sums)


def next_state(method: str, given: ClientRound, slots: States, steps: Tensor, buffers: Buffers) -> ClientState:
    """What a client of a method of this name keeps after a round: laid out as what it held before."""
    state: ClientState = {"slots": slots}
    if "cursor" in given.state:
        state["cursor"] = given.state["cursor"] + steps
    if "buffers" in given.state:
        state["buffers"] = buffers
    return laid_out(conformed(state, given.state, f"the client state of method '{method}'"), given.state)


class Aggregator:
    """Takes in the uploads of a round: one running weighted sum, and every upload only where the server needs each.

    Numbers stay on the device until `read`. What clients keep is handed out when the round is over: a round that fails
    leaves every client as it was.
    """

    def __init__(
        self,
        experiment: Experiment,
        cohort: Cohort,
        round: int,
        stored: StateOf,
        *,
        watched: bool = False,
        spread: Spread | None = None,
        forgetting: Forgetting | None = None,
    ) -> None:
        self.forgetting = forgetting
        """What counts the classes that local models forget, where that is asked for."""
        self.watched = watched
        """Whether each Δ_i is kept, to be measured."""
        self.spread = spread
        """Where clients are trained by several ranks, and this is one of them."""
        self.experiment, self.cohort, self.clients, self.round = experiment, cohort, cohort.clients, round
        self.weights, self.share = experiment.weights(self.clients)
        """ω_i of those that count, and the share of all clients' weight that they have together."""
        self.failures = Failures(self.clients, round)
        self.states: dict[int, ClientState] = {}
        """What clients keep after this round."""
        self._stored = stored
        self._skips = experiment.scenario.on_failure == "skip"
        self.total: Averaged | None = None
        """Σ ω_i of what has arrived."""
        self.parts: list[Averaged] = []
        """What waits for the running sum of the ranks before this one, where sums are chained."""
        self.each: dict[int, dict[str, Vector]] = {}
        """The fields of each client by its place, where they are kept."""
        self.reports: list[tuple[tuple[int, ...], Tensor]] = []
        """The rows of `PartialAggregate`, with the places of their clients."""
        self._room: Tensor | None = None
        """Where these rows are kept, one after another, and how many are there."""
        self._reported = 0
        self.places: Sequence[int] = range(len(self.clients))
        """The places in the cohort of those that count."""
        self._turn: tuple[Sequence[int], CohortRounds] | None = None
        """The places in the cohort of those that train now, and their rounds."""
        self.loss = 0.0
        self.client_steps: dict[int, int] = {}
        """K_i of each that counts, by place."""
        self.update_norms: dict[int, float] = {}
        """‖Δ_i‖ of each that counts, by place."""
        self.clipped = 0
        """How many of their steps had their gradient clipped."""
        self.steps = self.bytes_up = self.samples = self.computed = 0

    def state_of(self, client: int) -> ClientState | None:
        """What a client holds now: from its turn before in this round, else from before the round."""
        return self.states[client] if client in self.states else self._stored(client)

    def turns(self) -> Iterator[CohortRounds]:
        """The rounds of everybody's first draw, of everybody's second draw, …; `add` takes what comes of them.

        In the end, clients that failed are left out.
        """
        for repeat, places in enumerate(self.cohort.turns):
            for own in self._shares(repeat, places):
                rounds = self._rounds(repeat, own)
                self._turn = own, rounds
                yield rounds
                self.failures.faults |= {own[at]: fault for at, fault in (rounds.failures or {}).items()}
                if self.spread is not None:
                    self.spread.exchange(self)
        if self.spread is not None:
            self.spread.finish(self)
        if len(self.failures):
            self._leave_out()

    def _shares(self, repeat: int, places: Sequence[int]) -> Iterator[Sequence[int]]:
        """Of the places of a turn those that are trained here: all, or this rank's."""
        if self.spread is None:
            return iter([places])
        return self.spread.shares(self, places, self._rounds(repeat, places).lengths)

    def _rounds(self, repeat: int, places: Sequence[int]) -> CohortRounds:
        """The rounds of the clients at these places."""
        truncated = self.cohort.truncated
        turn = Turn(
            round=self.round,
            clients=tuple(self.clients[place] for place in places),
            weights=self.weights[list(places)],
            truncated={at: truncated[place] for at, place in enumerate(places) if place in truncated},
            repeat=repeat,
        )
        return self.experiment.client_rounds.of(turn, self.state_of)

    def add(self, group: Group) -> None:
        """Take in the results of a group of the clients that train now."""
        assert self._turn is not None
        turn, rounds = self._turn
        self.computed += group.computed
        arrived = _Arrived(
            places=[turn[position] for position in group.positions],
            positions=group.positions,
            trained=group.trained,
            partial=group.partial or self._summed(group.trained, rounds, group.positions),
        )
        if self._skips:
            arrived = self._without_diverged(arrived, rounds)
        if arrived.places:
            self._take(arrived, rounds)
        rounds.release(group.positions)

    def _without_diverged(self, arrived: _Arrived, rounds: CohortRounds) -> _Arrived:
        """The clients of a group whose numbers are finite, and the sum of these alone; the others have failed."""
        faults = self._diverged(arrived.places, arrived.partial["reports"])
        if not faults:
            return arrived
        self.failures.faults |= {arrived.places[at]: fault for at, fault in faults.items()}
        self.computed -= rounds.samples([arrived.positions[at] for at in faults])
        finite = [at for at in range(len(arrived.places)) if at not in faults]
        positions = tuple(arrived.positions[at] for at in finite)
        trained = tree_map(lambda leaf: leaf[finite], arrived.trained)
        partial = self._summed(trained, rounds, positions) if finite else arrived.partial
        return _Arrived([arrived.places[at] for at in finite], positions, trained, partial)

    def _take(self, arrived: _Arrived, rounds: CohortRounds) -> None:
        """Add a group to the sum, and keep of each upload what the server or the clients need."""
        trained, partial, places = arrived.trained, arrived.partial, arrived.places
        if self.spread is not None and self.spread.chains:
            self.parts.append(copied(partial["sum"]))
        elif self.total is None:
            self.total = copied(partial["sum"])
        elif more := leaves_of(partial["sum"]):
            torch._foreach_add_(leaves_of(self.total), more)
        alone = len(places) == len(self.clients)  # then no other group is written over these reports
        self.reports.append((tuple(places), partial["reports"] if alone else self._kept(partial["reports"])))
        self.samples += rounds.samples(arrived.positions)
        if self.forgetting is not None:
            self.forgetting.take(places, trained)
        if self.keeps_each:
            fields = {name: trained["fields"][name] for name in self.each_names or trained["fields"]}
            self.each |= {place: copied(row(fields, at)) for at, place in enumerate(places)}
        if self.experiment.has_client_state:
            for at, position in enumerate(arrived.positions):
                self._keep(rounds[position], trained, at)

    def _kept(self, rows: Tensor) -> Tensor:
        """A copy of a group's reports, in one room for the whole cohort.

        Small tensors that stay, each made between the large ones of two groups, would keep the allocator from using the
        large ones' memory again.
        """
        if self._room is None:
            self._room = rows.new_empty((len(self.clients), rows.shape[1]))
        kept = self._room[self._reported : self._reported + len(rows)]
        self._reported += len(rows)
        return kept.copy_(rows)

    @property
    def keeps_each(self) -> bool:
        """Whether fields of each client are kept: for the server, or to be measured."""
        return self.experiment.method.needs_each or self.watched

    @property
    def each_names(self) -> Sequence[str] | None:
        """Which fields of each client are kept, if not all."""
        return None if self.experiment.method.needs_each else ("delta",)

    def _summed(self, trained: TrainedClients, rounds: CohortRounds, positions: Sequence[int]) -> PartialAggregate:
        weights = [float(rounds.turn.weights[position]) for position in positions]
        return partial_aggregate(trained, torch.tensor(weights, dtype=torch.float64, device=self.experiment.device))

    def _keep(self, given: ClientRound, trained: TrainedClients, at: int) -> None:
        kept = row(trained["state"], at)
        name = self.experiment.method.name
        self.states[given.client] = next_state(name, given, kept, trained["steps"][at], row(trained["buffers"], at))

    def _leave_out(self) -> None:
        """Go on without the clients that failed: the weights of all others sum to 1 again."""
        self.places = self.failures.left()
        factor = 1 / float(self.weights[self.places].sum())
        self.total = tree_map(lambda leaf: leaf * factor, self.total)
        self.weights = self.weights.copy()
        self.weights[self.places], self.share = self.experiment.weights([self.clients[place] for place in self.places])

    @property
    def mean(self) -> Averaged:
        """Σ ω_i of everything that is averaged, over the clients that count."""
        assert self.total is not None, "nothing arrived"
        return self.total

    def uploads(self, message: Message) -> Uploads:
        """The round's uploads as the method's server gets them; `message` is what the clients received."""
        each = tuple(fields for _, fields in sorted(self.each.items()))
        return Uploads(
            mean=self.mean["fields"] if len(self.places) else nothing(self.experiment, message),
            sent=message,
            rate=self.experiment.rate(self.round),
            share=self.share,
            clients=tuple(self.clients[place] for place in self.places),
            weights=tuple(self.weights[self.places]),
            population=self.experiment.population,
            each=each if self.experiment.method.needs_each else None,
            wanted=self.experiment.wanted,
            normals=self.experiment.normals(self.round) if self.experiment.method.guards else None,
        )

    def updates(self) -> ClientUpdates:
        """Norms and cosines of the updates of the clients that count."""
        deltas = [fields["delta"] for _, fields in sorted(self.each.items())]
        return measured([self.clients[place] for place in self.places], self.weights[self.places], deltas)

    def read(self) -> None:
        """Read the clients' reports. A device that is still at work is waited for here; what diverged is an error."""
        for places, rows in self.reports:
            arrived = rows.cpu()
            for fault in self._diverged(places, arrived).values():
                raise fault
            reports = arrived.numpy()
            self.loss += float(self.weights[list(places)] @ reports[:, 0])
            self.client_steps |= dict(zip(places, map(int, reports[:, 2]), strict=True))
            self.steps += int(reports[:, 2].sum())
            self.bytes_up += int(reports[:, 3].sum())
            self.clipped += int(reports[:, 4].sum())
            self.update_norms |= dict(zip(places, map(float, reports[:, 5]), strict=True))
        self.reports.clear()

    def _diverged(self, places: Sequence[int], reports: Tensor) -> dict[int, Diverged]:
        clients = [self.clients[place] for place in places]
        advice = self.experiment.advice
        advice += "" if self._skips else "; --on-failure skip goes on without such clients"
        return diverged(reports.cpu().numpy(), clients, self.round, advice)
