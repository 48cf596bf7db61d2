from __future__ import annotations

from typing import TypedDict

import torch

from headway.methods.arguments import Momentum, Rate, slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    m: Vector
    v: Vector


@slot
class adagrad:
    """m ← β₁m + (1−β₁)Δ ; v ← v + Δ² ; θ ← θ + η_g m/(√v + ε), v₀ = ε²: FedAdagrad (Reddi et al. 2021, Alg. 2).

    m and v have the model's shapes, m = 0 at first. v never falls, so steps become shorter.
    """

    beta1: Momentum
    eps: Rate
    server_rate: Rate

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"m": model.zeros(), "v": model.map(lambda leaf: torch.full_like(leaf, self.eps**2))}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        delta = uploads.mean["delta"]
        m = self.beta1 * state["m"] + (1 - self.beta1) * delta
        v = state["v"] + delta.map(torch.square)
        step = m.zip(v, lambda first, second: first / (second.sqrt() + self.eps))
        return model + self.server_rate * step, {"m": m, "v": v}

    def heading(self, model: Vector, state: ServerState) -> Vector:
        return state["m"]
