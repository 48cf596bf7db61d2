"""The cohort stacked and trained together: `torch.func.vmap` around the functions of `local_training.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor
from torch.func import vmap

from headway.engine import server
from headway.engine.aggregate import Group, TrainedClients, trained_client
from headway.engine.client_arrays import DeviceArrays, placed
from headway.engine.client_rounds import BatchForm, ClientRound, CohortRounds
from headway.engine.compile import as_after_a_step, compiled
from headway.engine.executor import CannotExecute, RoundInput, located
from headway.engine.experiment import Experiment
from headway.engine.local_training import Carry, LocalTraining, Program
from headway.engine.network import Buffers
from headway.engine.padding import stacked
from headway.errors import ClientError
from headway.methods.slots import Message, States
from headway.trees import stack

_REFUSALS = ("vmap", "functorch", "doesn't have storage")
"""What torch says where an operation cannot be stacked."""
STACKED_AT_MOST = 64
"""Clients in one stack; a larger cohort is trained in several."""


@dataclass(frozen=True)
class _Stack:
    """Clients that are trained together, their arrays stacked."""

    clients: Sequence[ClientRound]
    own: DeviceArrays
    """Their arrays, in the largest shapes of these clients alone."""
    filled: DeviceArrays
    """As a step takes them: in the largest shapes of the run where the step is compiled."""

    @property
    def batch(self) -> int:
        return int(self.filled.rows.shape[2])

    @property
    def longest(self) -> ClientRound:
        return max(self.clients, key=lambda client: client.steps)

    @property
    def ids(self) -> list[int]:
        return [client.client for client in self.clients]


class Batched:
    """Trains stacks of clients. With `compiled` a stack's step is one program, made for the first stack's size."""

    def __init__(self, experiment: Experiment, *, compiled: bool = False, coupled: bool = False) -> None:
        self.name = "batched:compiled" if compiled else "batched"
        self.training = LocalTraining(experiment, functional=True, masked=True, coupled=coupled)
        self.compiled = compiled
        self._program: tuple[int, Program] | None = None

    def run(self, given: RoundInput, rounds: CohortRounds) -> Iterator[Group]:
        """Train clients of like length together, so that few wait for others."""
        order = sorted(range(len(rounds)), key=rounds.lengths.__getitem__)
        for group in alike(rounds) if self.training.coupled else [order]:
            for start in range(0, len(group), STACKED_AT_MOST):
                yield from self._trained(given, rounds, tuple(group[start : start + STACKED_AT_MOST]))

    def _trained(self, given: RoundInput, rounds: CohortRounds, positions: tuple[int, ...]) -> Iterator[Group]:
        """A group's result. Where clients that fail are skipped, a group that failed is trained one by one."""
        try:
            trained, computed = self._train(given, self._stack(rounds.at(positions)))
        except ClientError as fault:
            if len(positions) == 1 or rounds.failures is None:
                rounds.failed(positions[0], fault)
                return
        else:
            yield Group(positions, trained, computed)
            return
        for position in positions:
            yield from self._trained(given, rounds, (position,))

    def _stack(self, clients: Sequence[ClientRound]) -> _Stack:
        arrays, device = [client.arrays for client in clients], self.training.device
        if not self.compiled:
            own = placed(stacked(arrays), device)
            return _Stack(clients, own, own)
        filled = placed(stacked(arrays, self.training.experiment.shapes), device)
        return _Stack(clients, placed(stacked(arrays), device) if self.training.coupled else filled, filled)

    def _train(self, given: RoundInput, group: _Stack) -> tuple[TrainedClients, int]:
        """What the group's clients sent and keep, and how many samples went through the network."""
        equal = len({client.steps for client in group.clients}) == 1
        training = self.training if self.compiled else replace(self.training, masked=not equal)
        message = given.message
        state = stack([client.state for client in group.clients])
        local_buffers = "buffers" in state

        def begin(buffers: Buffers, slots: States, arrays: DeviceArrays) -> Carry:
            return training.begin(message, buffers, slots, arrays)

        def end(carry: Carry, slots: States, arrays: DeviceArrays) -> TrainedClients:
            upload, kept = training.upload(carry, message, slots, arrays)
            return trained_client(upload, server.decode(training.experiment.method, upload, message["model"]), kept)

        with located(given.round, group.ids) as place, _stackable():
            buffers = state["buffers"] if local_buffers else given.buffers
            carry = vmap(begin, in_dims=(0 if local_buffers else None, 0, 0))(buffers, state["slots"], group.own)
            carry = as_after_a_step(carry) if self.compiled else carry
            widths = self._widths(group)
            steps, round = self._steps(training, given, group, carry), self._scalar(given.round)
            for index, width in enumerate(widths):
                place.step = index
                carry = steps(width)(carry, message, group.filled, self._scalar(index), round)
            place.step = None
            return vmap(end)(carry, state["slots"], group.own), len(group.clients) * sum(widths)

    def _scalar(self, number: int) -> Tensor:
        return torch.tensor(number, device=self.training.device)

    def _widths(self, group: _Stack) -> list[int]:
        """Rows in the batch of each step: as many as it has samples where no batch is filled."""
        longest = group.longest
        return longest.arrays.counts.tolist() if self.training.coupled else [group.batch] * longest.steps

    def _steps(
        self, training: LocalTraining, given: RoundInput, group: _Stack, carry: Carry
    ) -> Callable[[int], Program]:
        """The step of a stack of as many clients as this one, for batches of a number of rows."""

        @cache
        def eager(width: int) -> Program:
            def step(carry: Carry, message: Message, arrays: DeviceArrays, index: Tensor, round: Tensor) -> Carry:
                return training.step(carry, message, arrays, index, round, width)

            return vmap(step, in_dims=(0, None, 0, None, None))

        count, most = len(group.clients), group.batch
        if self.compiled and self._program is None:
            arguments = (carry, given.message, group.filled, self._scalar(0), self._scalar(given.round))
            self._program = count, compiled(eager(most), arguments)
        if not self._program or self._program[0] != count:
            return eager
        program = self._program[1]
        return lambda width: program if width == most else eager(width)

    def prefetch(self, round: int) -> None:
        if self.training.device.type != "cpu":
            self.training.experiment.client_rounds.prepare(round)

    def close(self) -> None:
        self._program = None


@contextmanager
def _stackable() -> Iterator[None]:
    """Around a stack's training: where torch cannot stack an operation, this executor cannot take the model."""
    try:
        yield
    except RuntimeError as fault:
        if "data-dependent control flow" in str(fault):
            raise CannotExecute("its code chooses what it does by the numbers of a batch") from fault
        if any(word in str(fault) for word in _REFUSALS):
            raise CannotExecute(str(fault).strip().splitlines()[0]) from fault
        raise


def alike(rounds: CohortRounds) -> list[list[int]]:
    """Groups of clients whose batches are equally large in every step that both take, the longest groups first.

    In a group they stand by their lengths. Where slots read a client's samples as a whole, those are equally many.
    """
    forms = [rounds.form(at) for at in range(len(rounds))]
    groups: dict[BatchForm, list[int]] = {}
    for form in sorted(set(forms), key=lambda form: -len(form[1])):
        whole, sizes = form
        place = next((one for one in groups if one[0] == whole and one[1][: len(sizes)] == sizes), form)
        groups.setdefault(place, []).extend(at for at, other in enumerate(forms) if other == form)
    return [sorted(group, key=rounds.lengths.__getitem__) for group in sorted(groups.values(), key=len, reverse=True)]


def executor(experiment: Experiment, forms: Sequence[str], coupled: bool) -> Batched:
    """The executor that the table of `headway/executors.py` names."""
    return Batched(experiment, compiled="compiled" in forms, coupled=coupled)
