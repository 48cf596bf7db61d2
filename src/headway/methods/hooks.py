"""The hooks and the attributes of each slot, as protocols: what a value there must have, may have, and is asked for.

A slot value fits by having the methods; nothing is subclassed. The first hook of each slot is required, all others and
all attributes are optional. A public name that is almost one of these, or that is one of another slot's, is refused
when a method is made, for it would do nothing; what a class needs for itself begins with an underscore.

The protocols are generic over what a value keeps: `Server[State]` keeps named vectors, and a value that keeps other
tensors too has its own `TypedDict`, of which a type checker knows every name. `Method` takes values of any state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from torch import Tensor

from headway.methods.slots import Client, Code, End, Facts, Fields, Message, Output, Step, Uploads
from headway.vectors import Vector

Memory = TypeVar("Memory")
"""What `begin` makes and `direction` passes on within one client's round."""
Remembered = TypeVar("Remembered", contravariant=True)
"""The same memory, where it is only read."""
ClientState = TypeVar("ClientState")
"""What a client keeps between its rounds."""
Kept = TypeVar("Kept", contravariant=True)
"""The same, where it is only read."""
ServerState = TypeVar("ServerState")
"""What the server keeps between rounds."""


class Broadcast(Protocol):
    """What do clients receive?"""

    def message(self, model: Vector, server: Message, /) -> Message:
        """`{"model": φ}` and perhaps further named vectors; an addition returns further ones only.

        `server` has the state of every server value by name.
        """


class Objective(Protocol[Remembered]):
    """What does a client minimise?"""

    def value(self, w: Vector, output: Output, memory: Remembered, step: Step, /) -> Tensor:
        """One number for the batch. A base stands in place of the task loss, an addition beside it."""


class Sloped(Protocol[Remembered]):
    """An addition to the objective that is a function of w alone: its value needs no output of the network."""

    def slope(self, w: Vector, memory: Remembered, step: Step, /) -> Vector:
        """The gradient at w."""


class Local(Protocol[Memory]):
    """How does a client step?"""

    def direction(self, w: Vector, gradient: Vector, memory: Memory, step: Step, /) -> tuple[Vector, Memory]:
        """u of w ← w − ηu, and the memory for the next step, with the names that `begin` gave it.

        Of several values each is given the direction of the one before it; the first is given the clipped gradient.
        """


class Probe(Protocol[Remembered]):
    """Where is the gradient taken? Known before any gradient: one pass."""

    def point(self, w: Vector, memory: Remembered, step: Step, /) -> Vector:
        """The point at which the gradient is taken in place of w."""


class ProbeAfter(Protocol[Remembered]):
    """Where is the gradient taken? Known from the gradient at w: two passes."""

    def point_from(self, w: Vector, gradient: Vector, memory: Remembered, step: Step, /) -> Vector:
        """The point at which the gradient is taken in place of w; `gradient` is that of the whole objective at w."""


class Start(Protocol[Kept]):
    """Where does a client begin?"""

    def start(self, received: Message, kept: Kept, client: Client, /) -> Vector:
        """w₀, in place of φ = `received["model"]`. What it uploads is Δ_i = θ_i − φ all the same."""


class OnClients(Protocol[ClientState, Memory]):
    """Hooks of objectives and local rules: a memory for one round of a client, and a state between its rounds."""

    def client_state(self, model: Vector, /) -> ClientState:
        """What a client holds before its first round."""

    def begin(self, received: Message, kept: ClientState, client: Client, /) -> Memory:
        """The memory that the first step is given."""

    def finish(self, end: End, memory: Memory, kept: ClientState, /) -> tuple[dict[str, Vector], ClientState]:
        """What is uploaded beside Δ_i, and what the client keeps, with the names of `client_state`."""

    def measures(self, memory: Memory, end: End, /) -> dict[str, Tensor]:
        """Scalars to record, after the last step; clients' are averaged by weight. `end` may be left out."""


class Server(Protocol[ServerState]):
    """What does the server do with the uploads?"""

    def update(self, model: Vector, uploads: Uploads, state: ServerState, /) -> tuple[Vector, ServerState]:
        """The next model and state. An addition is given the model that those before it made."""


class OnServer(Protocol[ServerState]):
    """Hooks of server values: the state they keep between rounds, and what they do before the update."""

    def server_state(self, model: Vector, population: int, /) -> ServerState:
        """What the server holds before the first round."""

    def derive(self, fields: Fields, facts: Facts, /) -> dict[str, Vector]:
        """Further named vectors, made of one client's upload before the mean.

        They may have any shape: `{"square": Vector({"square": fields["delta"].square()})}` is one number of a client.
        """

    def bound(self, fields: Fields, /) -> dict[str, Vector]:
        """All of one client's upload as it may enter the mean: under the same names, after every `derive`.

        A value with this hook stands between the clients and all other server values: its `prepare` is the first.
        """

    def prepare(self, uploads: Uploads, state: ServerState, /) -> tuple[Uploads, ServerState]:
        """The uploads as the updates of all server values see them."""

    def output(self, model: Vector, state: ServerState, /) -> Vector:
        """The model that is evaluated and handed over in place of θ; clients still receive what the broadcast says."""

    def measures(self, state: ServerState, /) -> dict[str, Tensor]:
        """Scalars to record of the state after the round."""

    def heading(self, model: Vector, state: ServerState, /) -> Vector:
        """The momentum that the server holds beside θ, in the sign of an update, of any length above 0.

        Rounds record the cosine of Δ with it as `cosine_momentum`.
        """


class OfAny(Protocol):
    """Attributes that a value in any slot may have."""

    needs: tuple[str, ...]
    """What others must give, such as `server:momentum`, `message:control`, `upload:control`, `model:stages` or
    `model:full_gradient`."""
    provides: tuple[str, ...]
    """What it gives to others, of the kinds `server`, `message` and `upload`."""
    adds: bool
    """Whether it joins the slot's base instead of being it."""
    keeps_best: bool
    """Whether the run's output is the iterate of least global loss."""
    suggests: Mapping[str, float]
    """`participation`, where the user gives none."""

    def for_model(self, roles: Mapping[str, str], /) -> object:
        """The same value for a model whose parameters have these roles: embedding, matrix, head or vector, by name."""

    def fits(self, population: int, cohort: int) -> None:
        """Raise a `UserError` where it cannot work with this many clients."""


class OfLocal(Protocol):
    """Attributes that a value in the local slot may have."""

    optimises: bool
    """Whether it makes the step itself: it comes last, and there is one such value only."""
    couples_decay: bool
    """Whether an optimiser takes weight decay as a part of the gradient that it is given, and not of the step."""

    replaces_delta: bool
    """Whether it uploads something in place of Δ_i."""
    trusts_mean: bool
    """Whether it takes the model that it receives for the mean of what clients sent, so that another one breaks it."""


class OfServer(Protocol):
    """Attributes that a server value may have."""

    needs_each: bool
    """Whether it must see every client's upload (`uploads.each`) and not only the weighted mean."""
    needs_clients: bool
    """Whether it must know who took part (`uploads.clients`, `uploads.weights`)."""
    scales_delta: bool
    """Whether its `prepare` changes the mean of Δ_i in size: a value that sums up Δ_i as clients do must not see it."""
    mirrors_clients: bool
    """Whether its state is meant to be the mean of what all clients keep, so that a mean that is changed breaks it."""
    owns: tuple[str, ...]
    """Names of state that it changes in place, for memories too large to copy."""


Value = TypeVar("Value")
Given: TypeAlias = Value | tuple[Value, ...] | None
"""What may be given for a slot: a value, its base and additions, or nothing for FedAvg's. A function is a value too."""

BroadcastSlot = Given[Broadcast | Callable[[Vector, Message], Message]]
ObjectiveSlot = Given[Objective[Any] | Callable[[Vector, Output, Step], Tensor]]
LocalSlot = Given[Local[Any] | Probe[Any] | ProbeAfter[Any] | Start[Any] | Callable[[Vector, Vector, Step], Vector]]
ServerSlot = Given[Server[Any] | Callable[[Vector, Uploads], Vector]]

PROTOCOLS: dict[str, tuple[type, ...]] = {
    "broadcast": (Broadcast, OfAny),
    "objective": (Objective, Sloped, OnClients, OfAny),
    "local": (Local, Probe, ProbeAfter, Start, OnClients, OfLocal, OfAny),
    "server": (Server, OnServer, OfServer, OfAny),
    "wire": (Code,),
}

HOOKS: dict[str, dict[str, Callable[..., object]]] = {
    slot: {
        name: hook
        for one in protocols
        for name, hook in vars(one).items()
        if inspect.isfunction(hook) and not name.startswith("_")
    }
    for slot, protocols in PROTOCOLS.items()
}
"""The hooks of each slot by name, the required one first."""

ATTRIBUTES: dict[str, frozenset[str]] = {
    slot: frozenset(name for one in protocols for name in inspect.get_annotations(one))
    for slot, protocols in PROTOCOLS.items()
}


def required(slot: str) -> str:
    """The hook without which a value cannot stand in a slot."""
    return next(iter(HOOKS[slot]))


def entrances(slot: str) -> tuple[str, ...]:
    """The hooks of which a value must have one to stand in a slot."""
    return ("direction", "point", "point_from", "start") if slot == "local" else (required(slot),)


def call(slot: str, hook: str) -> str:
    """A hook with its arguments, as in `update(model, uploads, state)`."""
    return f"{hook}({', '.join(arguments(slot, hook))})"


def arguments(slot: str, hook: str) -> list[str]:
    """The names of what a hook is called with."""
    return list(inspect.signature(HOOKS[slot][hook]).parameters)[1:]
