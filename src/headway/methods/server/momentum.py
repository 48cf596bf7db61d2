from __future__ import annotations

from typing import NotRequired, TypedDict

import torch
from torch import Tensor

from headway.methods.arguments import Momentum, Rate, slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    momentum: Vector
    """m."""
    rate: NotRequired[Tensor]
    """η of the round before, with `rate_ratio`."""


@slot
class momentum:
    """m ← λm + Δ ; θ ← θ + η_g m, m₀ = 0: heavy ball on the mean update.

    FedAvgM (Hsu et al. 2019); FedACG (Kim et al. 2024, Alg. 1), where η_g = 1. m, which a lookahead broadcast reads,
    has the model's shapes and the sign of an update. With `rate_ratio` it is kept in units of the local rate, as in
    SlowMo (Wang et al. 2020) and in the 2021 program of the FedAGM authors: m ← λ(η_t/η_{t−1})m + Δ, so that a
    decaying rate shrinks the past too.
    """

    momentum: Momentum
    server_rate: Rate = 1.0
    rate_ratio: bool = False

    provides = ("server:momentum",)

    def server_state(self, model: Vector, population: int) -> ServerState:
        state: ServerState = {"momentum": model.zeros()}
        return {**state, "rate": torch.ones((), dtype=torch.float64)} if self.rate_ratio else state

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        kept = self.momentum * (uploads.rate / float(state["rate"])) if self.rate_ratio else self.momentum
        m = kept * state["momentum"] + uploads.mean["delta"]
        after: ServerState = {**state, "momentum": m}
        if self.rate_ratio:
            after["rate"] = torch.full_like(state["rate"], uploads.rate)
        return model.plus(self.server_rate, m), after

    def heading(self, model: Vector, state: ServerState) -> Vector:
        return state["momentum"]
