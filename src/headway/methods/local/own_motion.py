from __future__ import annotations

from typing import Annotated, TypedDict

import torch

from headway.methods.arguments import Weight, Within, slot
from headway.methods.slots import Client, End, Message, Step
from headway.vectors import Vector


class ClientState(TypedDict):
    last: Vector
    """φ as the client received it when it last took part."""


class Memory(TypedDict):
    push: Vector
    """βM/Σ_kη_k."""


@slot
class own_motion:
    """w ← w − η(g + βM/Σ_kη_k) ; M = C(φ_last − φ), 0 in a client's first round: LocalGHBM's clients.

    Zaccone et al. 2025, Alg. 2. φ_last is the model that the client received when it last took part, which it keeps. C
    is the `share` of the clients that take part in a round: a client that comes every 1/C rounds has in M the model's
    mean motion of a round, turned back. M has the model's shapes and the sign of a gradient; nothing more is sent.
    """

    beta: Weight
    share: Annotated[float, Within(0, 1, open_left=True)]

    def client_state(self, model: Vector) -> ClientState:
        return {"last": model.zeros()}

    def begin(self, received: Message, kept: ClientState, client: Client) -> Memory:
        motion = (kept["last"] - received["model"]) * (self.beta * self.share / client.rate_sum)
        return {"push": motion.map(lambda leaf: torch.where(client.seen, leaf, 0.0))}

    def direction(self, w: Vector, gradient: Vector, memory: Memory, step: Step) -> tuple[Vector, Memory]:
        return gradient + memory["push"], memory

    def finish(self, end: End, memory: Memory, kept: ClientState) -> tuple[dict[str, Vector], ClientState]:
        return {}, {"last": end.received["model"]}
