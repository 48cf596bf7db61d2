from __future__ import annotations

from typing import TypedDict

import torch

from headway.methods.arguments import Weight, slot
from headway.methods.slots import Client, End, Message, Step
from headway.vectors import Vector


class ClientState(TypedDict):
    last: Vector
    """φ as the client received it when it last took part."""


class Memory(TypedDict):
    ascent: Vector
    """ρ (φ_last − φ)/‖φ_last − φ‖."""


@slot
class lesam:
    """u = w + ρ (φ_last − φ)/‖φ_last − φ‖ ; the step takes g(u): FedLESAM's probe (Fan et al. 2024), one pass a step.

    φ_last is the model that the client received when it last took part, which it keeps; in its first round u = w. With
    all clients in every round the direction is −(θ_t − θ_{t−1}). Loss and BatchNorm's statistics are those at u.
    """

    rho: Weight = 0.05

    def client_state(self, model: Vector) -> ClientState:
        return {"last": model}

    def begin(self, received: Message, kept: ClientState, client: Client) -> Memory:
        away = kept["last"] - received["model"]
        ascent = away * (self.rho / away.norm().clamp(min=1e-12))
        return {"ascent": ascent.map(lambda leaf: torch.where(client.seen, leaf, 0.0))}

    def point(self, w: Vector, memory: Memory, step: Step) -> Vector:
        return w + memory["ascent"]

    def finish(self, end: End, memory: Memory, kept: ClientState) -> tuple[dict[str, Vector], ClientState]:
        return {}, {"last": end.received["model"]}
