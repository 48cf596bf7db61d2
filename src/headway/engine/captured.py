"""Local training and evaluation as captured CUDA graphs.

Two layouts of the same work. `streams`: every client has its own memory, graphs and stream, and clients run side by
side. `stacked`: a group of clients is one program under `torch.func.vmap`. Both call the functions of
`local_training.py`, compiled by torch's compiler where that is asked for. Shapes are the largest of the run, so what is
captured once serves every round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor
from torch.func import vmap

from headway.data.columns import Tensors
from headway.engine import server
from headway.engine.aggregate import Group, PartialAggregate, TrainedClients, partial_aggregate, trained_client
from headway.engine.client_arrays import DeviceArrays
from headway.engine.client_rounds import ClientState, CohortRounds
from headway.engine.compile import Options, traced
from headway.engine.cuda_graphs import captured, fill, fixed_copy, new_stream, room_for, write
from headway.engine.executor import RoundInput
from headway.engine.experiment import Experiment
from headway.engine.local_training import Carry, LocalTraining
from headway.engine.network import Buffers
from headway.engine.pinned import PinnedArrays
from headway.engine.scoring import Scored, score
from headway.methods.slots import Message, States
from headway.trees import copied, leaves_of, row, stack, tree_map
from headway.vectors import Vector

AT_ONCE = {"streams": 10, "stacked": 128}
"""Clients that are trained at the same time; a larger cohort is trained in several groups."""
SEPARATE: Options = {"triton.persistent_reductions": False}
"""Options of torch's compiler for clients on streams: where channels lie together in memory, the sums of a group
normalisation over an image go faster in steps than at once."""
TOGETHER: Options = {"combo_kernels": True}
"""Options of torch's compiler for stacked clients: small kernels of a step are put together."""
STEPS_IN_ONE_GRAPH = 16
"""Steps up to which a stack's whole round is one graph: small networks leave the device waiting for the host."""
WHOLE_GRAPHS = 4
"""Numbers of steps for which such a graph is kept."""


class Place(TypedDict):
    """Fixed memory of one client, or of a stack of clients."""

    message: dict[str, Vector]
    buffers: Buffers
    slots: States
    arrays: DeviceArrays
    round: Tensor
    index: Tensor
    carry: Carry


_EMPTY: Carry = {}  # type: ignore[typeddict-item]
"""A carry that is not made yet: its form is known once a client has begun."""


class _Functions:
    """Begin, step and finish over a place, for one client or stacked."""

    def __init__(self, training: LocalTraining, layout: str, own_buffers: bool) -> None:
        def end(carry: Carry, message: Message, slots: States, arrays: DeviceArrays) -> TrainedClients:
            upload, kept = training.upload(carry, message, slots, arrays)
            return trained_client(upload, server.decode(training.experiment.method, upload, message["model"]), kept)

        self._begin: Callable[..., Carry] = training.begin
        self._step: Callable[..., Carry] = training.step
        self._end: Callable[..., TrainedClients] = end
        if layout == "stacked":
            self._begin = vmap(training.begin, in_dims=(None, 0 if own_buffers else None, 0, 0))
            self._step = vmap(training.step, in_dims=(0, None, 0, None, None))
            self._end = vmap(end, in_dims=(0, None, 0, 0))

    def begun(self, place: Place) -> Carry:
        return self._begin(place["message"], place["buffers"], place["slots"], place["arrays"])

    def finished(self, place: Place) -> TrainedClients:
        return self._end(place["carry"], place["message"], place["slots"], place["arrays"])

    def begin(self, place: Place) -> None:
        write(place["carry"], self.begun(place))
        place["index"].zero_()

    def step(self, place: Place) -> None:
        carry = place["carry"]
        write(carry, self._step(carry, place["message"], place["arrays"], place["index"], place["round"]))
        place["index"].add_(1)

    def finish(self, place: Place, result: TrainedClients) -> None:
        write(result, self.finished(place))


def _add_up(trained: TrainedClients, weights: Tensor, result: PartialAggregate) -> None:
    """Write a group's weighted sum into `result`.

    A place without a client has weight 0. Its buffers may be infinite, as a mask is, and 0 · ∞ is not a number.
    """

    def used(buffer: Tensor) -> Tensor:
        return torch.where((weights > 0).reshape(-1, *[1] * (buffer.dim() - 1)), buffer, torch.zeros_like(buffer))

    finite: TrainedClients = {**trained, "buffers": tree_map(used, trained["buffers"])}
    write(result, partial_aggregate(finite, weights))


class _Programs(NamedTuple):
    """Begin, step and finish, traced for the places of one form."""

    begin: Callable[[Place], None]
    step: Callable[[Place], None]
    finish: Callable[[Place, TrainedClients], None]


class ClientGraphs:
    """The graphs of one client, or of a stack of clients, with the place and the stream that they work on."""

    def __init__(self, programs: _Programs, place: Place, result: TrainedClients) -> None:
        self.place, self.result, self.stream = place, result, new_stream()
        self.programs = programs
        self._begin = captured(lambda: programs.begin(place), self.stream)
        self._step = captured(lambda: programs.step(place), self.stream, before=place["index"].zero_)
        self._finish = captured(lambda: programs.finish(place, result), self.stream)

    def load(self, state: ClientState) -> None:
        """Write what the client holds from before into the place."""
        fill(self.place["slots"], state["slots"])
        if "buffers" in state:
            fill(self.place["buffers"], state["buffers"])

    def begin(self) -> None:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self._begin.replay()

    def step(self) -> None:
        with torch.cuda.stream(self.stream):
            self._step.replay()

    def finish(self) -> None:
        with torch.cuda.stream(self.stream):
            self._finish.replay()

    def whole(self, steps: int, then: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """A whole round, and what comes after it, as one graph."""

        def all_of_it() -> None:
            self.programs.begin(self.place)
            for _ in range(steps):
                self.programs.step(self.place)
            self.programs.finish(self.place, self.result)
            then()

        return captured(all_of_it, self.stream, warm_up=0)


class CapturedCohort:
    """The graphs of all clients that train at the same time, and what they share: the broadcast, and their sum."""

    def __init__(
        self, training: LocalTraining, layout: str, compiled: bool, given: RoundInput, rounds: CohortRounds
    ) -> None:
        experiment = training.experiment
        self.stacked, self.device = layout == "stacked", experiment.device
        self.size = min(AT_ONCE[layout], len(rounds))
        """How many clients there are places for."""
        self.message, self.buffers = fixed_copy(dict(given.message)), fixed_copy(given.buffers)
        clients = rounds.at(range(self.size))
        self.has_state = bool(leaves_of(clients[0].state))
        self.arrays = PinnedArrays(clients[0].arrays, experiment.shapes, self.size, self.device)
        self.arrays.load(rounds, range(self.size))
        functions = _Functions(training, layout, "buffers" in clients[0].state)
        states = self._states([client.state for client in clients])
        places = [self._place(functions, number, state) for number, state in enumerate(states)]
        self.result = room_for(functions.finished(places[0]), None if self.stacked else self.size)
        results = [self.result] if self.stacked else [row(self.result, number) for number in range(self.size)]
        options = TOGETHER if self.stacked else {**TOGETHER, **SEPARATE}
        programs = _Programs(
            begin=traced(functions.begin, (places[0],), compiled=compiled, options=options),
            step=traced(functions.step, (places[0],), compiled=compiled, options=options),
            finish=traced(functions.finish, (places[0], results[0]), compiled=compiled, options=options),
        )
        self.graphs = [ClientGraphs(programs, place, into) for place, into in zip(places, results, strict=True)]
        summed = (self.result, self.arrays.weights)
        self.partial = room_for(partial_aggregate(*summed))
        add_up = traced(_add_up, (*summed, self.partial), compiled=compiled, options=options)
        self._add_up = lambda: add_up(*summed, self.partial)
        self._sum = captured(self._add_up, new_stream())
        self._wholes: dict[int, torch.cuda.CUDAGraph] = {}

    def _states(self, states: Sequence[ClientState]) -> list[ClientState]:
        """The state of each place; a stack has one, in which places without a client repeat the first."""
        if not self.stacked:
            return list(states)
        first = states[0]
        return [stack([*states, *[first] * (self.size - len(states))]) if leaves_of(first) else first]

    def _place(self, functions: _Functions, number: int, state: ClientState) -> Place:
        place: Place = {
            "message": self.message,
            "buffers": fixed_copy(state["buffers"]) if "buffers" in state else self.buffers,
            "slots": fixed_copy(state["slots"]),
            "arrays": self.arrays.clients if self.stacked else row(self.arrays.clients, number),
            "round": self.arrays.round,
            "index": torch.zeros((), dtype=torch.int64, device=self.device),
            "carry": _EMPTY,
        }
        place["carry"] = fixed_copy(functions.begun(place))
        return place

    def train(self, given: RoundInput, rounds: CohortRounds, positions: tuple[int, ...]) -> Group:
        """Train a group of clients, no more than there are places for. Each group is written over the one before."""
        fill(self.message, dict(given.message))
        fill(self.buffers, given.buffers)
        self.arrays.load(rounds, positions)
        steps = [rounds.lengths[position] for position in positions]
        longest = max(steps)
        steps = [longest] if self.stacked else steps
        used = self.graphs[: len(steps)]
        if self.has_state:
            states = self._states([client.state for client in rounds.at(positions)])
            for graphs, state in zip(used, states, strict=True):
                graphs.load(state)
        whole = self._whole(longest)
        if whole is None:
            self._replay(used, steps)
            self._sum.replay()
        else:
            whole.replay()
        partial: PartialAggregate = {**self.partial, "reports": self.partial["reports"][: len(positions)]}
        return Group(positions, self.result, self._computed(steps), partial)

    def _replay(self, graphs: Sequence[ClientGraphs], steps: Sequence[int]) -> None:
        """This many steps of each client, launched in turns: else the last one waits for the launches of all others."""
        for one in graphs:
            one.begin()
        for step in range(max(steps)):
            for one, count in zip(graphs, steps, strict=True):
                if step < count:
                    one.step()
        for one in graphs:
            one.finish()
            torch.cuda.current_stream().wait_stream(one.stream)

    def _computed(self, steps: Sequence[int]) -> int:
        """Samples of this many steps at each place, in use or not."""
        batch = int(self.arrays.clients.rows.shape[-1])
        return batch * sum(steps) * (self.size if self.stacked else 1)

    def _whole(self, steps: int) -> torch.cuda.CUDAGraph | None:
        """The graph of a stack's whole round of this many steps, where one is kept."""
        wanted = self.stacked and steps <= STEPS_IN_ONE_GRAPH and steps not in self._wholes
        if wanted and len(self._wholes) < WHOLE_GRAPHS:
            self._wholes[steps] = self.graphs[0].whole(steps, self._add_up)
        return self._wholes.get(steps)


Given = tuple[Vector, Buffers, Tensors, Tensors]
"""What a captured evaluation reads: w, buffers, x and y."""


class CapturedEvaluation:
    """A captured pass in evaluation mode over a number of samples."""

    def __init__(self, experiment: Experiment, layout: str, compiled: bool, given: Given) -> None:
        self.place = fixed_copy(given)
        options = SEPARATE if layout == "streams" else {}
        function = traced(lambda *place: score(experiment, *place), self.place, compiled=compiled, options=options)
        self.result = room_for(function(*self.place))
        self.graph = captured(lambda: fill(self.result, function(*self.place)), new_stream())

    def replay(self, given: Given) -> Scored:
        fill(self.place, given)
        self.graph.replay()
        return copied(self.result)
