from __future__ import annotations

from headway.methods.arguments import Rate, slot
from headway.methods.slots import State, Uploads
from headway.vectors import Vector


@slot
class interpolation:
    """θ′ = τ·Σω_iθ_i + (1−τ)φ = φ + τΔ ; m ← θ′ − θ ; θ ← θ′: FedAGM's server, V = −m.

    Kim et al. 2022 (FedAGM), Alg. 2. Their Lemma 4.1 follows when φ = θ + λm: m ← λm + τΔ.
    """

    server_rate: Rate = 1.0

    provides = ("server:momentum",)

    def server_state(self, model: Vector, population: int) -> State:
        return {"momentum": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        moved = uploads.sent["model"] + self.server_rate * uploads.mean["delta"]
        return moved, {"momentum": moved - model}
