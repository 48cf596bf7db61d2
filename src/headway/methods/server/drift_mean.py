from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    drift: Vector
    """h̄."""


@slot
class drift_mean:
    """h̄ ← h̄ + Σ_S p_i Δ_i ; θ ← θ + h̄, h̄ = 0 at first: FedDC's server (Gao et al. 2022, Alg. 1).

    h̄ = Σ_N p_i h_i is the mean of the drifts h_i ← h_i + Δ_i of all N clients (`objective.drift`), of the model's
    shapes. It follows from the updates, so no drift is uploaded. A mean over the round's clients S only would diverge.
    """

    adds = True
    mirrors_clients = True
    needs = ("upload:delta",)

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"drift": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        drift = state["drift"] + uploads.share * uploads.mean["delta"]
        return model + drift, {"drift": drift}
