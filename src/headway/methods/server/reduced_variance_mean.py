from __future__ import annotations

import dataclasses
from typing import TypedDict

from headway.methods.arguments import slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    latest: Vector
    """ȳ."""


@slot
class reduced_variance_mean:
    """Δ = ȳ + Σ_S ω_i (Δ_i − y_i) ; ȳ ← ȳ + Σ_S p_i (Δ_i − y_i), ȳ = 0 at first: FedVARP's server.

    Jhunjhunwala et al. 2022, Alg. 2. y_i is a client's latest update and ȳ = Σ_N p_i y_i their mean over all N, of the
    model's shapes. The base moves the model by Δ: unlike MIFA's mean of old updates it has no bias where clients are
    drawn uniformly. The uploads `change` are Δ_i − y_i.
    """

    adds = True
    mirrors_clients = True
    needs = ("upload:change",)

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"latest": model.zeros()}

    def prepare(self, uploads: Uploads, state: ServerState) -> tuple[Uploads, ServerState]:
        change = uploads.mean["change"]
        delta = state["latest"] + change
        after: ServerState = {"latest": state["latest"] + uploads.share * change}
        return dataclasses.replace(uploads, mean={**uploads.mean, "delta": delta}), after

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        return model, state
