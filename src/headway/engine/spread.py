"""A round over ranks: who trains whom, where clients' states are, and everybody's results on every rank.

    shares → each rank trains its own → exchange: reports, failures, sums

`Aggregator` takes in the clients of this rank as it does without ranks; after each turn `exchange` puts what came of
the others' clients beside it, in the order of the cohort. What follows is computed on every rank, from equal numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from headway.engine.client_rounds import ClientState
from headway.engine.fold import ChainedSum, reduced
from headway.engine.ranks import Ranks, Told, raised_by
from headway.engine.shares import blocks, longest_first, waves
from headway.engine.states import ClientStates, from_row, row_bytes
from headway.engine.sum_form import SumForm, fill, flattened
from headway.errors import ClientError, Diverged, MachineError, shared
from headway.trees import leaves_of, moved, nbytes

if TYPE_CHECKING:
    from headway.engine.aggregate import Aggregator
    from headway.engine.experiment import Experiment

HELD_AT_MOST = 1 << 28
"""Bytes of uploads that wait on a rank for the running sum, in deterministic mode."""


class Spread:
    """The clients of a run over ranks. What it keeps from round to round is the same on every rank."""

    def __init__(self, experiment: Experiment, ranks: Ranks, store: ClientStates) -> None:
        self.experiment, self.ranks, self.store = experiment, ranks, store
        self.holders = np.full(experiment.population if experiment.has_client_state else 0, -1, np.int16)
        """The rank that holds the state of each client; −1 for one that never took part."""
        self._form: SumForm | None = None
        """The form of the sum."""
        self._form_of_each: SumForm | None = None
        """The form of one client's fields, where the server needs each."""
        self._begin()
        if experiment.has_client_state:
            for rank, told in enumerate(ranks.tell({"clients": list(store.clients())})):
                self.holders[np.array(told["clients"], np.int64)] = rank

    def _begin(self) -> None:
        """Forget the round before."""
        self._where: dict[int, int] = {}
        """Where the states of this round's clients are by now."""
        self._borrowed: dict[int, ClientState] = {}
        """States that other ranks have sent."""
        self._wave: Sequence[int] = ()
        self._trainers: dict[int, int] = {}
        """The rank that trains each place of the cohort."""
        self._chain = ChainedSum(self.ranks) if self.experiment.scenario.deterministic else None
        self._counted = 0, 0
        self._reports: list[tuple[tuple[int, ...], Tensor]] = []
        """Everybody's reports of the turns before, in the order of the cohort."""

    @property
    def chains(self) -> bool:
        """Whether the running sum goes from rank to rank."""
        return self._chain is not None

    def held(self, client: int) -> ClientState | None:
        """What a client holds before this round's training of it on this rank."""
        return self._borrowed[client] if client in self._borrowed else self.store.get(client)

    def anywhere(self, client: int) -> ClientState | None:
        """What a client holds, from the rank that has it. Every rank asks at the same time."""
        if not len(self.holders) or self.holders[client] < 0:
            return None
        self.ranks.tell({})
        state = self.store.get(client)
        like = self.experiment.initial_client_state
        content = bytearray(nbytes(like)) if state is None else bytearray(row_bytes(state))
        flat = torch.frombuffer(content, dtype=torch.uint8)
        self.ranks.spread(flat, int(self.holders[client]))
        return state or moved(from_row(flat.numpy().tobytes(), like), self.experiment.device)

    def shares(self, uploads: Aggregator, places: Sequence[int], lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """The places that this rank trains, at once or wave after wave; states come to where they are needed."""
        steps = dict(zip(places, lengths, strict=True))
        for wave in waves(places, self._at_once) if self._chain else [places]:
            clients = [uploads.clients[place] for place in wave]
            own = [steps[place] for place in wave]
            if self._chain is not None:
                ranks = blocks(own, self.ranks.size)
            else:
                holders = [self._place_of(client) for client in clients] if len(self.holders) else None
                ranks = longest_first(own, self.ranks.size, holders)
            self._wave, self._counted = wave, (uploads.samples, uploads.computed)
            self._trainers |= dict(zip(wave, ranks, strict=True))
            if len(self.holders):
                self._move(uploads, clients, ranks)
            yield tuple(place for place, rank in zip(wave, ranks, strict=True) if rank == self.ranks.rank)

    @property
    def _at_once(self) -> int:
        """Clients of a wave, so that the uploads that wait on a rank for the running sum fit into memory."""
        return max(HELD_AT_MOST // max(nbytes(self.experiment.network.parameters), 1), 1) * self.ranks.size

    def _place_of(self, client: int) -> int:
        return self._where.get(client, int(self.holders[client]))

    def _move(self, uploads: Aggregator, clients: Sequence[int], ranks: Sequence[int]) -> None:
        """Send the states of these clients from where they are to the ranks that train them."""
        pairs: dict[tuple[int, int], list[int]] = {}
        for client, target in zip(clients, ranks, strict=True):
            source = self._place_of(client)
            if source not in (-1, target):
                pairs.setdefault((source, target), []).append(client)
        if not pairs:
            return
        parcels = {
            target: _parcel([uploads.state_of(client) for client in several])
            for (source, target), several in pairs.items()
            if source == self.ranks.rank
        }
        self.ranks.tell({})  # the states were read: a disk that fails is heard of before anybody waits for a parcel
        waiting = []
        for (source, target), several in sorted(pairs.items()):
            if source == self.ranks.rank:
                waiting.append(self.ranks.send(parcels[target], target))
            elif target == self.ranks.rank:
                self._unpack(several, source)
        for wait in waiting:
            wait()

    def _unpack(self, clients: Sequence[int], source: int) -> None:
        """Receive the states of these clients from a rank."""
        like = self.experiment.initial_client_state
        size = nbytes(like)
        flat = torch.empty(size * len(clients), dtype=torch.uint8)
        self.ranks.receive(flat, source)
        content = flat.numpy().tobytes()
        for at, client in enumerate(clients):
            state = from_row(content[at * size : (at + 1) * size], like)
            self._borrowed[client] = moved(state, self.experiment.device)

    def exchange(self, uploads: Aggregator) -> None:
        """Everybody's reports and failures of the turn, in the order of the cohort; in deterministic mode the sum."""
        rows = {
            place: row for places, rows in uploads.reports for place, row in zip(places, rows.tolist(), strict=True)
        }
        own = [place for place in self._wave if self._trainers[place] == self.ranks.rank]
        forms = _forms(uploads)
        faults = {place: uploads.failures.faults[place] for place in own if place in uploads.failures.faults}
        told = self.ranks.tell(
            {
                "rows": [[place, *rows[place]] for place in own if place in rows],
                "faults": [[place, type(fault).__name__, str(fault)] for place, fault in faults.items()],
                "samples": uploads.samples - self._counted[0],
                "computed": uploads.computed - self._counted[1],
                "forms": [form.digest for form in forms],
                "right": [[place, *right] for place, right in _judged(uploads, own).items()],
            }
        )
        if uploads.forgetting is not None:
            every = [row for one in told for row in cast(list[list[float]], one["right"])]
            uploads.forgetting.after |= {int(row[0]): row[1:] for row in every}
        self._agree_on_forms(forms, [cast(list[str], one["forms"]) for one in told])
        self._take_over(uploads, told)
        if self._chain is not None:
            if self._form is not None:
                self._chain.add(uploads.parts, self._form, self.experiment.device)
            uploads.parts.clear()

    def _agree_on_forms(self, own: Sequence[SumForm], digests: Sequence[Sequence[str]]) -> None:
        """The forms are those of the first rank that has any, also for those that have had no client yet.

        They are told anew where a round's uploads have others than those of the round before.
        """
        known = [form.digest for form in (self._form, self._form_of_each) if form is not None]
        found = {rank: list(theirs) for rank, theirs in enumerate(digests) if theirs}
        if all(theirs == known for theirs in found.values()):
            return
        first = next(iter(found))
        odd = next((rank for rank, theirs in found.items() if theirs != found[first]), None)
        if odd is not None or self._reports:
            raise shared(
                MachineError(
                    f"rank {first if odd is None else odd} has other fields or shapes than those before it: the method "
                    "or the model differs"
                )
            )
        told = self.ranks.tell({"forms": [form.written for form in own]})
        written = cast(list[str], told[first]["forms"])
        self._form = SumForm(written[0])
        self._form_of_each = SumForm(written[1]) if len(written) > 1 else None

    def _take_over(self, uploads: Aggregator, told: Sequence[Told]) -> None:
        """Put what all ranks have told beside each other."""
        rows: dict[int, list[float]] = {}
        for one in told:
            rows |= {int(row[0]): row[1:] for row in cast(list[list[float]], one["rows"])}
            for place, kind, text in cast(list[tuple[int, str, str]], one["faults"]):
                fault = raised_by(0, {"kind": kind, "text": text, "signal": 0})
                assert isinstance(fault, ClientError | Diverged)
                uploads.failures.faults[place] = fault
        arrived = [place for place in self._wave if place in rows]
        every = torch.tensor([rows[place] for place in arrived], dtype=torch.float64)
        self._reports += [((place,), every[at : at + 1]) for at, place in enumerate(arrived)]
        uploads.reports[:] = self._reports
        samples, computed = self._counted
        uploads.samples = samples + sum(cast(int, one["samples"]) for one in told)
        uploads.computed = computed + sum(cast(int, one["computed"]) for one in told)
        if len(self.holders):
            self._follow(uploads)

    def _follow(self, uploads: Aggregator) -> None:
        """A client's state is now where it was trained, unless that failed."""
        for place in self._wave:
            client, trainer = uploads.clients[place], self._trainers[place]
            if place in uploads.failures.faults:
                continue
            if trainer != self.ranks.rank:
                uploads.states.pop(client, None)  # of an earlier turn
            self._where[client] = trainer
            self._borrowed.pop(client, None)

    def finish(self, uploads: Aggregator) -> None:
        """The sum of the whole cohort on every rank, and each upload where the server needs them all."""
        if self._form is None or not uploads.reports:
            return  # nothing arrived
        device = self.experiment.device
        if self._chain is not None:
            uploads.total = self._chain.total(self._form, device)
        else:
            uploads.total = reduced(self.ranks, uploads.total, self._form, device)
        if uploads.keeps_each:
            self._gather_each(uploads)

    def _gather_each(self, uploads: Aggregator) -> None:
        """Each client's fields, from the rank that trained it."""
        assert self._form_of_each is not None
        device = self.experiment.device
        arrived = [place for place in sorted(self._trainers) if place not in uploads.failures.faults]
        for source in range(self.ranks.size):
            places = [place for place in arrived if self._trainers[place] == source]
            rooms = {place: self._form_of_each.room(device)["fields"] for place in places}
            if source == self.ranks.rank:
                rooms = {place: uploads.each[place] for place in places}
            if not leaves_of(rooms):
                continue
            flat = flattened(rooms)
            for numbers in flat.values():
                self.ranks.spread(numbers, source)
            fill(rooms, flat)
            uploads.each |= rooms

    def settle(self, cohort: Sequence[int]) -> None:
        """The round is over: states that were trained elsewhere are no longer this rank's."""
        for client in dict.fromkeys(cohort):
            if client in self._where and self._where[client] != self.ranks.rank:
                self.store.drop(client)
        for client, rank in self._where.items():
            self.holders[client] = rank
        self._begin()


def _forms(uploads: Aggregator) -> list[SumForm]:
    """The form of this rank's sum and, where the server needs each upload, that of one; none before its first client.

    One upload may have whole numbers, which the sum has not.
    """
    first = uploads.parts[0] if uploads.parts else uploads.total
    if first is None:
        return []
    if not uploads.keeps_each:
        return [SumForm.of(first)]
    one = next(iter(uploads.each.values()))
    return [SumForm.of(first), SumForm.of({"fields": one, "buffers": {}, "measures": {}})]


def _judged(uploads: Aggregator, places: Sequence[int]) -> dict[int, list[float]]:
    """What the local models of the clients at these places get right, by class, where that is counted."""
    after = {} if uploads.forgetting is None else uploads.forgetting.after
    return {place: after[place] for place in places if place in after}


def _parcel(states: Sequence[ClientState | None]) -> Tensor:
    """The bytes of several clients' states."""
    content = b"".join(row_bytes(state) for state in states if state is not None)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
