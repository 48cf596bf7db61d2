from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import Momentum, Rate, slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    v: Vector


@slot
class nesterov:
    """v⁺ = θ + η_g Δ ; θ ← v⁺ + β(v⁺ − v) ; v ← v⁺, v₀ = θ⁰: Nesterov's method on the mean update.

    FedMom (Huo et al. 2020); the outer optimiser of DiLoCo (Douillard et al. 2023). It is `torch.optim.SGD` with
    `nesterov` on −Δ. v has the model's shapes. Clients start at θ, where the momentum has already led: with η_g = 1
    this is FedACG's iteration without the pull, whose lookahead is θ here and whose model is v.
    """

    momentum: Momentum
    server_rate: Rate = 1.0

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"v": model}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        v = model.plus(self.server_rate, uploads.mean["delta"])
        return v + self.momentum * (v - state["v"]), {"v": v}

    def heading(self, model: Vector, state: ServerState) -> Vector:
        """θ − v = β(v − v of the round before): 0 before the first round, and always where β is 0."""
        return model - state["v"]
