from __future__ import annotations

import dataclasses
from typing import TypedDict

from torch import Tensor

from headway.methods.arguments import Weight, slot
from headway.methods.slots import Facts, Fields, Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    now: Vector
    """θ of this round."""
    before: Vector
    """θ of the round before."""
    rate: Vector
    """η_g of the last round."""


@slot
class extrapolation:
    """Δ ← max(1, Σω_i‖Δ_i‖²/(2(‖Δ‖² + ε)))·Δ ; output: the mean of the last two θ: FedExP (Jhunjhunwala et al. 2023).

    Alg. 1 there. The factor, η_g, is near 1 where clients agree and grows as their updates cancel. It stands before the
    base, which moves the model by what is left: so it joins a momentum or a correction too. ‖Δ_i‖² is that of the
    update as it arrived, one number of each client, made on the server. The last two iterates lie on both sides of a
    minimum, so their mean is what is evaluated and handed over; clients start at θ.
    """

    eps: Weight

    adds = True
    scales_delta = True
    needs = ("upload:delta",)

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"now": model, "before": model, "rate": Vector({"rate": model.norm() * 0 + 1})}

    def derive(self, fields: Fields, facts: Facts) -> dict[str, Vector]:
        return {"square": Vector({"square": fields["delta"].square()})}

    def prepare(self, uploads: Uploads, state: ServerState) -> tuple[Uploads, ServerState]:
        delta = uploads.mean["delta"]
        own = uploads.mean["square"].leaves["square"]
        rate = (0.5 * own / (delta.square() + self.eps).clamp(min=1e-30)).clamp(min=1)
        scaled = dataclasses.replace(uploads, mean={**uploads.mean, "delta": delta * rate})
        return scaled, {**state, "rate": Vector({"rate": rate})}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        return model, {**state, "now": model, "before": state["now"]}

    def output(self, model: Vector, state: ServerState) -> Vector:
        return (model + state["before"]) * 0.5

    def measures(self, state: ServerState) -> dict[str, Tensor]:
        """η_g of this round."""
        return {"server_rate": state["rate"].leaves["rate"]}
