from __future__ import annotations

from typing import TypedDict

import torch

from headway.methods.arguments import Momentum, Rate, slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    m: Vector
    v: Vector
    top: Vector
    """v̂."""


@slot
class ams:
    """m ← β₁m + (1−β₁)Δ ; v ← β₂v + (1−β₂)Δ² ; v̂ ← max(v̂, v) ; θ ← θ + η_g m/(√v̂ + ε): FedAMS (Wang et al. 2022).

    Alg. 1 there, option 2. m, v and v̂ have the model's shapes and are 0 at first; v̂ never falls, coordinate by
    coordinate. There is no bias correction.
    """

    beta1: Momentum
    beta2: Momentum
    eps: Rate
    server_rate: Rate

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"m": model.zeros(), "v": model.zeros(), "top": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        delta = uploads.mean["delta"]
        m = self.beta1 * state["m"] + (1 - self.beta1) * delta
        v = self.beta2 * state["v"] + (1 - self.beta2) * delta.map(torch.square)
        top = state["top"].zip(v, torch.maximum)
        step = m.zip(top, lambda first, second: first / (second.sqrt() + self.eps))
        return model + self.server_rate * step, {"m": m, "v": v, "top": top}

    def heading(self, model: Vector, state: ServerState) -> Vector:
        return state["m"]
