from __future__ import annotations

from headway.methods.arguments import Rate, slot
from headway.methods.slots import State, Uploads
from headway.vectors import Vector


@slot
class average:
    """θ ← θ + η_g Δ with Δ = Σ ω_i Δ_i: FedAvg's server (McMahan et al. 2017, Alg. 1).

    Δ = Σ_S ω_i θ_i − φ, local − received, so η_g = 1, as in the papers here, makes θ the mean of the clients' models.
    """

    server_rate: Rate = 1.0

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        return model.plus(self.server_rate, uploads.mean["delta"]), state
