"""The vocabulary of slots: what they are handed, and which hooks they may have.

A slot value is any object with the hooks of its place; `hooks.py` has them as protocols. Client-side hooks are pure and
written for one client; the engine stacks clients around them. Only the first hook of each list is required.

    broadcast   message(model, server) → {name: Vector}; an addition returns further named vectors
    objective   value(w, output, memory, step) → scalar
                slope(w, memory, step) → the gradient of an addition that is a value of w alone (its `output` is None)
                client_state(model), begin(received, kept, client), finish(end, memory, kept)
    local       direction(w, gradient, memory, step) → (direction, memory): a correction, or the optimiser
                point(w, memory, step) or point_from(w, gradient, memory, step) → where the gradient is taken: a probe
                start(received, kept, client) → w₀, where the client begins in place of φ
                client_state, begin, finish as above
    server      update(model, uploads, state) → (model, state)
                output(model, state) → the model that is evaluated and handed over in place of θ
                server_state(model, population), derive(fields, facts), prepare(uploads, state) before any update,
                bound(fields): what of one upload may enter the mean, after every derive; its prepare is the first
                heading(model, state) → the server's momentum in the sign of an update, which diagnostics compare with Δ
    wire        a Wire of two codes, each with encode(vector, key) → payload and decode(payload, like) → vector

A function, a `functools.partial` or another object that can be called stands for a value without state: broadcast
f(model, server), objective f(w, output, step), local f(w, gradient, step), server f(model, uploads).

Three lifetimes of state. *step*: `begin` returns a memory that `direction` passes on within one client's round.
*client*: `client_state` is what it holds before its first round; `finish` returns `(upload fields, client state)`.
*server*: `server_state` is where it begins; `update` returns its successor. What is returned without the hook that says
where it begins, or under other names, is refused: it would be lost.

Attributes, all optional: `needs` and `provides` (names such as `server:momentum`, `message:control`, `upload:control`,
`model:stages`, `model:full_gradient`, `model:classes` for logits, `local:gradient_steps` for an optimiser that is plain
SGD, or `local:mean_direction` to read `end.mean_direction` under any other), `adds` (this value joins the slot's base
instead of being it), `needs_each` (a server that must see every client's upload and not only the weighted mean),
`needs_clients` (a server that must know who took part), `mirrors_clients` (a server whose state is meant to be the mean
of what all clients keep), `owns` (names of server state that it changes in place, for memories too large to copy),
`replaces_delta` (a local value that
uploads something in place of Δ_i), `optimises` (a local value that makes the step itself, after all others),
`couples_decay` (an optimiser that takes weight decay for a part of the gradient), `keeps_best` (the output is the
iterate of least global loss), `suggests` (a participation where the user gives none). Further hooks: `measures(memory,
end)` of clients, where `end` may be left out, or `measures(state)` of the server → {name: scalar}, recorded each round;
of any slot `fits(population, cohort)`, which refuses what cannot work.

Hooks never write into what they are given. Public names that are almost a hook's are refused when a method is made; a
class calls what is its own `_name`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn, Protocol, TypeVar

import torch
from torch import Tensor

from headway.errors import UserError
from headway.random import Normals
from headway.tasks.task import Answer, Target
from headway.trees import register_record
from headway.vectors import Vector

State = dict[str, Vector]
"""Named vectors that one slot value keeps, and what the hooks of a value that keeps nothing are given.

A value that keeps tensors of other shapes too, or whose names a type checker should know, declares a `TypedDict`
beside it; hooks are generic over it.
"""

States = dict[str, Mapping[str, object]]
"""What the values of a method keep, by the name of the value. Only a value itself knows what is in its own."""

Message = Mapping[str, Vector]
"""What a client receives: `model` is φ, further names are what the broadcast added."""

Fields = Mapping[str, Vector]
"""What a client uploads: `delta` is Δ_i = θ_i − φ, local − received, everywhere."""


@dataclass(frozen=True)
class Client:
    """What a client knows of itself. Tensors are scalars."""

    size: Tensor
    """n_i, its number of samples."""
    share: Tensor
    """p_i: its aggregation weight among all N clients, Σ_N p_i = 1."""
    seen: Tensor
    """Whether it took part before (its kept state is its own and not the initial one)."""
    class_counts: Tensor
    """Shape (classes,): how many samples of each class it holds."""
    population: int
    """N."""
    mean_size: float
    """Σ_N n_i / N."""
    steps: Tensor
    """K_i, the local steps that it is to do in this round."""
    sum_rates: Callable[[], Tensor]

    @property
    def rate_sum(self) -> Tensor:
        """Σ_k η_k over these steps: ηK where the rate is constant."""
        return self.sum_rates()


@dataclass(frozen=True)
class Batch:
    """One local batch. Rows of weight 0 are padding and have no effect."""

    x: Answer
    """One tensor, or a tuple or a dictionary of tensors, as the network takes them."""
    y: Target
    weight: Tensor
    """Shape (batch,): 1 for a sample, 0 for padding."""
    units: Tensor | None = None
    """Shape (batch,): how many tokens or pixels of each sample count; None where a sample counts once."""

    @property
    def share(self) -> Tensor:
        """Shape (batch,): what each sample weighs in a mean."""
        return self.weight if self.units is None else self.weight * self.units

    def mean(self, values: Tensor) -> Tensor:
        """The mean of per-sample values, shape (batch,): over samples, or over the tokens that their values stand for.

        A value of a sample with several tokens is the mean over these, and weighs as many of them as count.
        """
        return (values * self.share).sum() / self.share.sum().clamp(min=1)

    def true_class(self, classes: int) -> Tensor:
        """Shape (batch, classes): whether a class is the sample's own."""
        assert isinstance(self.y, Tensor), "a slot that asks for classes needs model:classes"
        return self.y[:, None] == torch.arange(classes, device=self.y.device)


class _Undeclared(tuple[NoReturn, ...]):
    """What stands where stages would be: empty, and a mistake to look into."""

    def __getitem__(self, place: object) -> NoReturn:
        raise UserError('the stages of the model are asked for and not declared; add needs = ("model:stages",)')

    def __iter__(self) -> Iterator[NoReturn]:
        return self[0]


@dataclass(frozen=True)
class Output:
    """What one pass through the network gives."""

    logits: Tensor
    stages: tuple[Tensor, ...] = _Undeclared()
    """The outputs of the stages before the last, where the method needs `model:stages`; the last is the feature."""
    branches: tuple[int, ...] = _Undeclared()
    """The stages after which another model's stages can take over: those that learn, but for the last."""


@dataclass(frozen=True)
class Step:
    """The place of one local step: everything a rule or an objective may ask for."""

    batch: Batch
    client: Client
    received: Message
    rate: Tensor
    """η of this step."""
    index: Tensor
    """k, counted from 0."""
    round: Tensor
    """t, counted from 1."""
    draw_key: Callable[[], Tensor]
    losses: Callable[[Tensor], Tensor]
    """Per-sample task losses of logits on this batch."""
    forward: Callable[[Vector], Output]
    """This batch through the network at any parameters, buffers unchanged."""
    resume: Callable[[Vector, int, Tensor], Tensor]
    """Logits from the output of stage l: the stages after l, at any parameters."""
    grad_at: Callable[[Vector], Vector]
    """The gradient of this batch's whole objective at any parameters, unclipped."""
    clip: Callable[[Vector], Vector]
    """A gradient, clipped as the run clips the one that it hands to the local slot."""

    def moved(self, w: Vector) -> Vector:
        """w − φ: how far a point is from the received model."""
        return w - self.received["model"]

    @property
    def key(self) -> Tensor:
        """The random key of (seed, round, client, step)."""
        return self.draw_key()


@dataclass(frozen=True)
class End:
    """The end of one client's round."""

    received: Message
    model: Vector
    """θ_i."""
    delta: Vector
    """Δ_i = θ_i − φ."""
    steps: Tensor
    """K_i, the steps that were done."""
    rate: Tensor
    """η at the round's first local step."""
    rate_sum: Tensor
    """Σ_k η_k over the client's own steps: ηK where the rate is constant."""
    client: Client
    full_grad_at: Callable[[Vector], Vector]
    """The gradient of the task loss over the client's whole data, without augmentation."""
    direction_sum: Callable[[], Vector]
    """Σ_k η_k d_k, d_k the corrected gradient that the optimiser is given: w₀ − θ_i where w ← w − ηd."""

    @property
    def mean_direction(self) -> Vector:
        """Σ_k η_k d_k/(Σ_k η_k): the mean over the round's steps of the corrected gradient.

        It is (w₀ − θ_i)/(ηK) where the optimiser is plain SGD, w₀ the client's start, which is φ unless a value has a
        `start`. Under another one it is summed up during the round, for values
        with `needs = ("local:mean_direction",)`.
        """
        return self.direction_sum() / self.rate_sum


@register_record
@dataclass(frozen=True)
class Facts:
    """The numbers that travel beside an upload: with its fields all that the server knows of a client's round."""

    steps: Tensor
    """K_i."""
    rate_sum: Tensor
    """Σ_k η_k over the client's own steps: ηK where the rate is constant."""
    size: Tensor
    """n_i, its number of samples."""


@dataclass(frozen=True)
class Uploads:
    """What reaches the server in one round."""

    mean: Fields
    """Σ_i ω_i · field_i with Σ_S ω_i = 1."""
    sent: Message
    """The broadcast as the clients received it; `sent["model"]` is φ."""
    rate: float
    """η at the round's first local step."""
    share: float
    """Σ_S p_i: so Σ_S p_i Δ_i = share · mean["delta"], and |S|/N under uniform weights. S has a client drawn twice
    twice."""
    clients: tuple[int, ...]
    weights: tuple[float, ...]
    population: int
    each: tuple[Fields, ...] | None = None
    """One entry for each client, in the order of `clients`, where the server asks for it."""
    wanted: float | None = None
    """How many clients a round is planned to have, whoever came: |S|, or qN where each comes with probability q."""
    normals: Normals | None = None
    """Standard normal numbers of this round, for a server that adds noise."""


class _Hidden(tuple[NoReturn, ...]):
    """What stands where the clients would be: a mistake to look into."""

    def __getitem__(self, place: object) -> NoReturn:
        raise UserError("who took part is asked for, which differential privacy hides; leave out +dp, or do not ask")

    def __iter__(self) -> Iterator[NoReturn]:
        return self[0]

    def __len__(self) -> int:
        return self[0]

    def __contains__(self, client: object) -> bool:
        return self[0]


def anonymous(uploads: Uploads) -> Uploads:
    """The uploads without whose they are: a slot that looks is refused."""
    return replace(uploads, clients=_Hidden(), weights=_Hidden(), each=None)


Payload = TypeVar("Payload")


class Code(Protocol[Payload]):
    """How a vector is written on the wire: as a payload, which is a tree of tensors."""

    def encode(self, vector: Vector, key: Tensor) -> Payload: ...
    def decode(self, payload: Payload, like: Vector) -> Vector: ...
