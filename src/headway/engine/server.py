"""The server's half of a round, as pure functions: what it sends, how it reads an upload, how it moves the model.

    global state ─broadcast→ message … uploads ─decode→ fields … their weighted mean ─update→ global state

Nothing here knows of executors, files or clients' memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headway import random
from headway.engine.experiment import Experiment
from headway.engine.local_training import Upload
from headway.engine.network import Buffers
from headway.errors import SlotError, UserError, in_words
from headway.methods import returned
from headway.methods.method import Method
from headway.methods.parts import part_name
from headway.methods.slots import Message, States, Uploads
from headway.trees import conformed, copied, laid_out, nbytes
from headway.vectors import Vector


@dataclass(frozen=True)
class GlobalState:
    """Everything the server holds between rounds."""

    theta: Vector
    buffers: Buffers
    server: States
    """What slots keep on the server, by the name of the slot's value."""


@dataclass(frozen=True)
class ServerMessage:
    """What the server sends to each client of a round: named arrays, which could travel over a network."""

    payloads: dict[str, object]
    """φ and what slots add, each as the wire's code wrote it."""
    buffers: Buffers
    nbytes: int
    """What it takes to send it to one client."""


@dataclass(frozen=True)
class ServerUpdate:
    """What an update made of the global state; the numbers beside it stay on the device."""

    state: GlobalState
    norm: Tensor
    """‖θ_{t+1} − θ_t‖, in float64."""
    measures: dict[str, Tensor]


def initial_state(experiment: Experiment) -> GlobalState:
    """What the server holds before the first round."""
    theta = experiment.network.parameters.copy()
    server = experiment.method.server_state(theta, experiment.population)
    return GlobalState(theta, copied(experiment.network.buffers), _kept(experiment.method, server, server))


def broadcast(experiment: Experiment, state: GlobalState, round: int) -> ServerMessage:
    """What every client of a round is sent."""
    with _in_round(round), _model_unchanged(experiment.method, state.theta, round, "broadcast"):
        message = experiment.method.message(state.theta, state.server)
    code, seed = experiment.method.wire.down, experiment.scenario.seed
    payloads = {
        name: code.encode(vector, torch.tensor(random.key(seed, "down", round, number)))
        for number, (name, vector) in enumerate(message.items())
    }
    buffers = 0 if experiment.scenario.buffers == "keep-local" else nbytes(state.buffers)
    return ServerMessage(payloads, state.buffers, nbytes(payloads) + buffers)


def received(method: Method, sent: ServerMessage, like: Vector) -> Message:
    """The message as clients read it; `like` has the shapes and types of the model's parameters."""
    return {name: method.wire.down.decode(payload, like) for name, payload in sent.payloads.items()}


def decode(method: Method, upload: Upload, like: Vector) -> dict[str, Vector]:
    """The fields of one upload as the server reads them, and what its slots derive from them."""
    fields = {name: method.wire.up.decode(payload, like) for name, payload in upload.payloads.items()}
    return method.derive(fields, upload.facts)


def update(experiment: Experiment, state: GlobalState, uploads: Uploads, round: int) -> ServerUpdate:
    """θ_t, server state, uploads → θ_{t+1}, server state. Buffers stay as they are."""
    method = experiment.method
    with _in_round(round), _model_unchanged(method, state.theta, round, "server"):
        theta, server = method.update(state.theta, uploads, state.server)
        server = conformed(server, state.server, f"the server state of method '{method.name}'")
        measures = method.server_measures(server)
    norm = (theta - state.theta).norm(torch.float64)
    after = replace(state, theta=laid_out(theta, state.theta), server=_kept(method, server, state.server))
    return ServerUpdate(after, norm, measures)


def handed_over(method: Method, state: GlobalState) -> GlobalState:
    """The state with the model that is evaluated and handed over, which is θ unless a server value has an `output`."""
    model = state.theta
    for name, part in method.parts("server"):
        if hasattr(part, "output"):
            place = f"server slot {part_name(part)} of method '{method.name}'"
            model = returned.point(place, "output", part.output(model, state.server.get(name, {})), model)
    return state if model is state.theta else replace(state, theta=model)


def heading(experiment: Experiment, state: GlobalState, round: int) -> Vector | None:
    """The momentum that the server holds, in the sign of an update; None where it holds none."""
    for name, part in experiment.method.parts("server"):
        if hasattr(part, "heading"):
            with _in_round(round):
                place = f"server slot {part_name(part)} of method '{experiment.method.name}'"
                found = part.heading(state.theta, state.server.get(name, {}))
                return returned.point(place, "heading", found, state.theta)
    return None


def averaged(buffers: Buffers, like: Buffers) -> Buffers:
    """The clients' mean buffers in their own types, as a copy; counters are rounded."""
    return {
        name: (mean if like[name].is_floating_point() else mean.round()).to(like[name].dtype, copy=True)
        for name, mean in buffers.items()
    }


def _kept(method: Method, server: States, like: States) -> States:
    """The server's states as copies laid out as others, but for what a slot says that it changes in place."""
    copies = laid_out(_without_owned(method, server), _without_owned(method, like))
    return {
        part: {name: copies[part].get(name, value) for name, value in state.items()} for part, state in server.items()
    }


def _without_owned(method: Method, server: States) -> States:
    owned = method.owned
    return {
        part: {name: value for name, value in state.items() if name not in owned.get(part, ())}
        for part, state in server.items()
    }


@contextmanager
def _in_round(round: int) -> Iterator[None]:
    """Failures of hooks that are not a client's, with the round."""
    try:
        yield
    except UserError as mistake:
        raise mistake.at(f"round {round}") from mistake
    except Exception as fault:
        raise SlotError(f"round {round}: {in_words(fault)}") from fault


@contextmanager
def _model_unchanged(method: Method, theta: Vector, round: int, slot: str) -> Iterator[None]:
    """Refuse hooks that write into θ: the round's update is measured from what they were given.

    Writes that torch counts are seen in every round, others (through `.data` or NumPy) in the first.
    """
    leaves = list(theta.leaves.values())
    before = [leaf._version for leaf in leaves]
    copies = [leaf.nan_to_num() for leaf in leaves] if round == 1 else []
    yield
    written = [leaf._version for leaf in leaves] != before
    if written or not all(torch.equal(leaf.nan_to_num(), copy) for leaf, copy in zip(leaves, copies, strict=False)):
        names = " and ".join(part_name(part) for _, part in method.parts(slot))
        raise UserError(
            f"{slot} slot {names} of method '{method.name}' changed the model that it was given; return a new "
            "Vector, such as model + delta, and write into copies only (model.copy())"
        )
