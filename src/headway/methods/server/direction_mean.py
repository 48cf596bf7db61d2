from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import slot
from headway.methods.slots import Facts, Fields, Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    direction: Vector
    """D."""


@slot
class direction_mean:
    """D ← −Σ_S ω_i Δ_i/(Σ_k η_k), D = 0 at first: the mean direction of a local step, FedCM's server.

    Xu et al. 2021, Alg. 2. D has the model's shapes and the sign of a gradient: clients step along −D. The server
    derives it from each update and the client's rates η_k, so nothing more is uploaded.
    """

    adds = True
    needs = ("local:gradient_steps",)
    provides = ("server:direction",)

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"direction": model.zeros()}

    def derive(self, fields: Fields, facts: Facts) -> dict[str, Vector]:
        return {"direction": -fields["delta"] / facts.rate_sum}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        return model, {"direction": uploads.mean["direction"]}

    def heading(self, model: Vector, state: ServerState) -> Vector:
        return -state["direction"]
