from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    control: Vector
    """c."""


@slot
class control_mean:
    """c ← c + Σ_S p_i (c_i⁺ − c_i), c = 0 at first: the server of SCAFFOLD (Karimireddy et al. 2020, Alg. 1) and FedDC.

    c = Σ_N p_i c_i is the mean of all clients' control variates. Like these it has the model's shapes and the sign of
    a gradient. The uploads `control` are the changes c_i⁺ − c_i.
    """

    adds = True
    mirrors_clients = True
    needs = ("upload:control",)
    provides = ("server:control",)

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"control": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        return model, {"control": state["control"] + uploads.share * uploads.mean["control"]}
