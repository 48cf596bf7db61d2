from __future__ import annotations

from typing import Annotated, TypedDict

import torch
from torch import Tensor

from headway.methods.arguments import Within, slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    models: Vector
    """θ of the last τ rounds: leaves have a leading axis of τ, of which `place` is the oldest."""
    place: Tensor
    rounds: Tensor
    """How many rounds were played."""
    motion: Vector
    """M."""


@slot
class past_motion:
    """M = (θ_{t−τ} − θ_t)/τ, 0 until τ rounds were played: the momentum of GHBM's server (Zaccone et al. 2025, Alg. 1).

    M, provided as `motion`, has the model's shapes and the sign of a gradient: the model's mean motion over τ rounds,
    turned back. With τ about N/|S| it has seen every client. The server keeps the last τ models,
    and changes them in place.
    """

    tau: Annotated[int, Within(1, 1000)]

    adds = True
    owns = ("models",)
    provides = ("server:motion",)

    def server_state(self, model: Vector, population: int) -> ServerState:
        zero = torch.zeros((), dtype=torch.int64)
        rows = model.map(lambda leaf: leaf.expand(self.tau, *leaf.shape).clone())
        return {"models": rows, "place": zero, "rounds": zero.clone(), "motion": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        place, played = int(state["place"]), int(state["rounds"]) + 1
        oldest = state["models"].map(lambda rows: rows[place])  # before this round's model takes its place
        motion = (oldest - model) / self.tau if played >= self.tau else model.zeros()
        for name, rows in state["models"].leaves.items():
            rows[place] = model.leaves[name]
        return model, {
            "models": state["models"],
            "place": torch.full_like(state["place"], (place + 1) % self.tau),
            "rounds": torch.full_like(state["rounds"], played),
            "motion": motion,
        }

    def heading(self, model: Vector, state: ServerState) -> Vector:
        return -state["motion"]
