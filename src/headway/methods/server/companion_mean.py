from __future__ import annotations

from typing import ClassVar, TypedDict

from headway.methods.arguments import slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    companion: Vector
    """w."""


@slot
class companion_mean:
    """w ← w + Σ_S ω_i (w_i − w), w = θ⁰ at first: the second sequence of FedAc's server (Yuan & Ma 2020, Alg. 1).

    The model θ is w^ag, which is averaged as any model is; w has its shapes. The uploads `companion` are w_i − w. In
    the paper all clients take part.
    """

    adds = True
    needs = ("upload:companion",)
    provides = ("server:companion",)
    suggests: ClassVar[dict[str, float]] = {"participation": 1.0}

    def server_state(self, model: Vector, population: int) -> ServerState:
        return {"companion": model}

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        return model, {"companion": state["companion"] + uploads.mean["companion"]}
