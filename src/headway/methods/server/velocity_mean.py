from __future__ import annotations

from typing import ClassVar, TypedDict

from headway.methods.arguments import slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    velocity: Vector
    """v."""


@slot
class velocity_mean:
    """v ← Σ_S ω_i v_i, v = 0 at first: FedNAG's server (Yang et al. 2022, Eq. 4).

    v_i is the velocity with which client i ended its round, of the model's shapes and the sign of an update. In the
    paper all clients take part, and its output is the iterate of least global loss.
    """

    adds = True
    needs = ("upload:velocity",)
    provides = ("server:velocity",)
    keeps_best = True
    suggests: ClassVar[dict[str, float]] = {"participation": 1.0}

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"velocity": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        return model, {"velocity": uploads.mean["velocity"]}

    def heading(self, model: Vector, state: ServerState) -> Vector:
        return state["velocity"]
