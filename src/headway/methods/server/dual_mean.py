from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import Rate, slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    h: Vector


@slot
class dual_mean:
    """h ← h − α Σ_S p_i Δ_i ; θ ← θ − h/α, h = 0 at first: FedDyn's server (Acar et al. 2021, Alg. 1).

    h = Σ_N p_i h_i is the mean of all clients' dual variables h_i ← h_i − αΔ_i (`objective.dual`), of the model's
    shapes. It follows from the updates, so no h_i is uploaded.
    """

    alpha: Rate

    adds = True
    mirrors_clients = True
    needs = ("upload:delta",)

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"h": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        h = state["h"] - self.alpha * uploads.share * uploads.mean["delta"]
        return model - h / self.alpha, {"h": h}
