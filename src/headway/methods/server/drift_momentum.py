from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import Momentum, Rate, slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    pull: Vector
    """m."""


@slot
class drift_momentum:
    """m ← −Δ/η + (β_g − β_l)m ; θ ← θ − η_s ηm, m = 0 at first: FedADC's server (Ozfatura et al. 2021, Alg. 2).

    m, provided as `pull`, has the model's shapes and the sign of a gradient; it is in units of a gradient times K.
    Clients add β_l m/K to each gradient (`local.pulled`), so the mean update already contains β_l m, and the server
    adds what is missing to β_g m. η is the rate of the round's first step.
    """

    momentum: Momentum
    local_momentum: Momentum
    server_rate: Rate = 1.0

    provides = ("server:pull",)

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"pull": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        m = uploads.mean["delta"] * (-1 / uploads.rate) + (self.momentum - self.local_momentum) * state["pull"]
        return model.plus(-self.server_rate * uploads.rate, m), {"pull": m}

    def heading(self, model: Vector, state: ServerState) -> Vector:
        return -state["pull"]
