from __future__ import annotations

from typing import ClassVar, TypedDict

import torch
from torch import Tensor

from headway.methods.arguments import slot
from headway.methods.slots import Client, End, Message, Step
from headway.vectors import Vector


class ClientState(TypedDict):
    h: Vector
    """h_i, its shift."""
    last: Vector
    """x̂_i: the model with which it ended its last round."""
    rate_sum: Tensor
    """Σ_k η_k of that round."""


class Memory(TypedDict):
    shift: Vector
    """h_i."""


@slot
class shifted:
    """w ← w − η(g − h_i) ; h_i ← h_i + (x̄ − x̂_i)/(Σ_kη_k), h_i = 0 at first: Scaffnew's clients.

    ProxSkip (Mishchenko et al. 2022, Alg. 2) with communication after a fixed number of steps K in place of a coin of
    probability p = 1/K. x̂_i is the model with which the client ended its last round and x̄ what the server made of
    all: the model that it receives next. So the shift is brought up to date when a round begins, and nothing but the
    model travels. h_i has the model's shapes and the sign of a gradient. All clients must take part, with equal K.
    """

    needs = ("local:gradient_steps",)
    trusts_mean = True
    suggests: ClassVar[dict[str, float]] = {"participation": 1.0}

    def client_state(self, model: Vector) -> ClientState:
        like = next(iter(model.leaves.values()))
        return {
            "h": model.zeros(),
            "last": model.zeros(),
            "rate_sum": torch.ones((), dtype=like.dtype, device=like.device),
        }

    def begin(self, received: Message, kept: ClientState, client: Client) -> Memory:
        missing = (received["model"] - kept["last"]) / kept["rate_sum"]
        return {"shift": kept["h"].zip(missing, lambda h, more: torch.where(client.seen, h + more, h))}

    def direction(self, w: Vector, gradient: Vector, memory: Memory, step: Step) -> tuple[Vector, Memory]:
        return gradient - memory["shift"], memory

    def finish(self, end: End, memory: Memory, kept: ClientState) -> tuple[dict[str, Vector], ClientState]:
        return {}, {"h": memory["shift"], "last": end.model, "rate_sum": end.rate_sum.to(kept["rate_sum"].dtype)}
