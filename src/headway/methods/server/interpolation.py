from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import Rate, slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    momentum: Vector
    """m."""


@slot
class interpolation:
    """θ′ = τ·Σω_iθ_i + (1−τ)φ = φ + τΔ ; m ← θ′ − θ ; θ ← θ′, τ the server_rate: FedAGM's server.

    Kim et al. 2022, Alg. 2. m, which a lookahead broadcast reads, has the model's shapes and the sign of an update, m =
    0 at first; the paper's V is −m. With φ = θ + λm it follows that m ← λm + τΔ (its Lemma 4.1).
    """

    server_rate: Rate = 1.0

    provides = ("server:momentum",)

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"momentum": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        moved = uploads.sent["model"] + self.server_rate * uploads.mean["delta"]
        return moved, {"momentum": moved - model}

    def heading(self, model: Vector, state: ServerState) -> Vector:
        return state["momentum"]
