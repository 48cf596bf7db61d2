from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    update: Vector
    """Δ of the last round."""


@slot
class last_update:
    """Keeps Δ of the last round, 0 at first, for a broadcast that reads it (`broadcast.lookbehind`): FedGloSS's server.

    Caldarola et al. 2025, Alg. 1. Δ has the model's shapes and the sign of an update.
    """

    adds = True
    needs = ("upload:delta",)
    provides = ("server:update",)

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"update": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        return model, {"update": uploads.mean["delta"]}
