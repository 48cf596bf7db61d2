"""One client after another, eager: the reference that every other executor is tested against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from headway import random
from headway.engine import server
from headway.engine.aggregate import Group, TrainedClients, trained_client
from headway.engine.client_arrays import DeviceArrays, placed
from headway.engine.client_rounds import ClientRound, CohortRounds
from headway.engine.compile import as_after_a_step, compiled
from headway.engine.executor import RoundInput, located
from headway.engine.experiment import Experiment
from headway.engine.local_training import Carry, LocalTraining, Program, Upload
from headway.engine.padding import padded
from headway.errors import ClientError, UserError
from headway.methods.slots import Message, States
from headway.trees import leaves_of, tree_map


class Step(Protocol):
    """A local step of one client on a batch of `width` rows."""

    def __call__(
        self, carry: Carry, message: Message, arrays: DeviceArrays, index: Tensor, round: Tensor, width: int
    ) -> Carry: ...


class ClientTrainer:
    """Trains one client on its own batches; or with `compiled` by one program for the largest shapes of the run.

    Where rows that fill a batch would change the others, the program takes only batches of the size it was made for,
    and all others are stepped without it.
    """

    def __init__(self, experiment: Experiment, *, compiled: bool, coupled: bool = False) -> None:
        self.training = LocalTraining(experiment, coupled=coupled)
        self.compiled = compiled
        self._program: Program | None = None

    @property
    def experiment(self) -> Experiment:
        return self.training.experiment

    def upload(
        self, given: RoundInput, client: ClientRound, enough: Callable[[int], bool] = lambda steps: False
    ) -> tuple[Upload, States]:
        """What a client sends back, and the states of slots that it keeps; a failure carries client, round and step.

        It ends early where `enough(steps)` says so after a step.
        """
        training, device, message = self.training, self.training.device, given.message
        with located(given.round, [client.client]) as place, random.isolated(client.words, device):
            buffers, before = client.state.get("buffers", given.buffers), _writes(message)
            own, filled = self._arrays(client)
            carry = training.begin(message, buffers, client.state["slots"], own)
            carry = as_after_a_step(carry) if self.compiled else carry
            round = torch.tensor(given.round, device=device)
            step = self._step(carry, message, filled, round) if self.compiled else training.step
            for index, width in enumerate(client.arrays.counts.tolist()):
                if index and enough(index):
                    break
                place.step = index
                carry = step(carry, message, filled, torch.tensor(index, device=device), round, width)
            place.step = None
            upload, kept = training.upload(carry, message, client.state["slots"], own)
            _check_unwritten(message, before)
            return upload, kept

    def decoded(self, given: RoundInput, client: ClientRound, upload: Upload, kept: States) -> TrainedClients:
        """What a client sent, as the server reads it, with what the client keeps. Leaves have no client axis."""
        with located(given.round, [client.client]):
            fields = server.decode(self.experiment.method, upload, given.message["model"])
        return trained_client(upload, fields, kept)

    def _arrays(self, client: ClientRound) -> tuple[DeviceArrays, DeviceArrays]:
        """The client's arrays as they are, and as a step takes them."""
        device = self.training.device
        own = placed(client.arrays, device)
        return own, placed(padded([client.arrays], self.experiment.shapes)[0], device) if self.compiled else own

    def _step(self, carry: Carry, message: Message, arrays: DeviceArrays, round: Tensor) -> Step:
        """The compiled step, for batches of one size; it is compiled once, at the first client."""
        most = int(arrays.rows.shape[1])
        if self._program is None:
            training = replace(self.training, functional=True)
            given = (carry, message, arrays, torch.tensor(0, device=round.device), round)
            self._program = compiled(lambda *place: training.step(*place), given)
        program = self._program

        def step(
            carry: Carry, message: Message, arrays: DeviceArrays, index: Tensor, round: Tensor, width: int
        ) -> Carry:
            if self.training.coupled and width < most:
                return self.training.step(carry, message, arrays, index, round, width)
            return program(carry, message, arrays, index, round)

        return step

    def computed(self, client: ClientRound) -> int:
        """How many samples went through the network, those included that filled a shape."""
        if self.compiled and not self.training.coupled:
            return client.steps * self.experiment.shapes["rows"][1]
        return int(client.arrays.counts.sum())


def _writes(message: Message) -> list[int]:
    """How often each tensor of the message was written into, as torch counts it."""
    return [leaf._version for leaf in leaves_of(dict(message))]


def _check_unwritten(message: Message, before: list[int]) -> None:
    """Refuse hooks that wrote into the message, which is the same for all clients of the round."""
    if _writes(message) != before:
        raise UserError(
            "a hook changed the message that the client received (or w, which begins as its model) in place; return a "
            "new Vector, and write into copies only (w.copy())"
        )


def group_of_one(position: int, result: TrainedClients, computed: int) -> Group:
    """One client's result as that of a group, after `computed` samples."""
    return Group((position,), tree_map(lambda leaf: leaf.unsqueeze(0), result), computed)


class Serial:
    """One client after another."""

    def __init__(self, experiment: Experiment, *, compiled: bool = False, coupled: bool = False) -> None:
        self.name = "serial:compiled" if compiled else "serial"
        self._trainer = ClientTrainer(experiment, compiled=compiled, coupled=coupled)

    def run(self, given: RoundInput, rounds: CohortRounds) -> Iterator[Group]:
        for position in range(len(rounds)):
            client = rounds[position]
            try:
                upload, kept = self._trainer.upload(given, client)
                result = self._trainer.decoded(given, client, upload, kept)
            except ClientError as fault:
                rounds.failed(position, fault)
                continue
            yield group_of_one(position, result, self._trainer.computed(client))

    def prefetch(self, round: int) -> None:
        if self._trainer.training.device.type != "cpu":
            self._trainer.experiment.client_rounds.prepare(round)

    def close(self) -> None:
        pass


def executor(experiment: Experiment, forms: Sequence[str], coupled: bool) -> Serial:
    """The executor that the table of `headway/executors.py` names."""
    return Serial(experiment, compiled="compiled" in forms, coupled=coupled)
