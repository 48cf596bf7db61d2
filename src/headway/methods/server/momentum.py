from __future__ import annotations

from headway.methods.arguments import Momentum, Rate, slot
from headway.methods.slots import State, Uploads
from headway.vectors import Vector


@slot
class momentum:
    """m ← λm + Δ ; θ ← θ + η_g m, m₀ = 0: heavy ball on the mean update (FedAvgM; FedACG Alg. 1, where η_g = 1).

    It provides m, which a lookahead broadcast reads.
    """

    momentum: Momentum
    server_rate: Rate = 1.0

    provides = ("server:momentum",)

    def server_state(self, model: Vector, population: int) -> State:
        return {"momentum": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        m = self.momentum * state["momentum"] + uploads.mean["delta"]
        return model + self.server_rate * m, {"momentum": m}
