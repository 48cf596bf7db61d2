from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import Momentum, slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    statistics: Vector
    """m."""


@slot
class gradient_momentum:
    """m ← βm + (1−β) Σ_S ω_i ∇f_i(φ), m = 0 at first: MimeLite's server (Karimireddy et al. 2021, Alg. 1).

    m is a momentum of full gradients at the received model, of the model's shapes. The paper calls it the optimizer's
    statistics, and so do the message that carries it and its name among the server's states.
    """

    momentum: Momentum

    adds = True
    needs = ("upload:gradient",)
    provides = ("server:statistics",)

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"statistics": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        fresh = (1 - self.momentum) * uploads.mean["gradient"]
        return model, {"statistics": self.momentum * state["statistics"] + fresh}

    def heading(self, model: Vector, state: ServerState) -> Vector:
        return -state["statistics"]
