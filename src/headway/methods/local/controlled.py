from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import slot
from headway.methods.slots import Client, End, Message, Step
from headway.vectors import Vector


class ClientState(TypedDict):
    c: Vector
    """c_i, its control variate."""


class Memory(TypedDict):
    shift: Vector
    """c − c_i."""


@slot
class controlled:
    """w ← w − η(g − c_i + c) ; c_i⁺ = c_i − c − Δ_i/(Σ_k η_k), c_i = 0 at first: SCAFFOLD's clients, option II.

    Karimireddy et al. 2020, Alg. 1. The control variates c_i (the client's) and c (received) have the model's shapes
    and the sign of a gradient: −Δ_i/(Σ_k η_k) is the mean corrected gradient of the round, which is summed up where an
    optimiser steps otherwise than along it. Uploads c_i⁺ − c_i as `control`.
    """

    needs = ("message:control", "local:mean_direction")
    provides = ("upload:control",)

    def client_state(self, model: Vector) -> ClientState:
        return {"c": model.zeros()}

    def begin(self, received: Message, kept: ClientState, client: Client) -> Memory:
        return {"shift": received["control"] - kept["c"]}

    def direction(self, w: Vector, gradient: Vector, memory: Memory, step: Step) -> tuple[Vector, Memory]:
        return gradient + memory["shift"], memory

    def finish(self, end: End, memory: Memory, kept: ClientState) -> tuple[dict[str, Vector], ClientState]:
        control = kept["c"] - end.received["control"] + end.mean_direction
        return {"control": control - kept["c"]}, {"c": control}
