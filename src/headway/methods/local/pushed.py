from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import Weight, slot
from headway.methods.slots import Client, Message, State, Step
from headway.vectors import Vector


class Memory(TypedDict):
    push: Vector
    """βM/Σ_kη_k."""


@slot
class pushed:
    """w ← w − η(g + βM/Σ_kη_k), M the received motion: GHBM's clients (Zaccone et al. 2025, Alg. 1).

    M has the model's shapes and the sign of a gradient. Over a round it moves a client by −βM, whatever its number of
    steps K_i: in the paper, with a constant rate, it stands as β/(ηK)·M.
    """

    beta: Weight

    needs = ("message:motion",)

    def begin(self, received: Message, kept: State, client: Client) -> Memory:
        return {"push": received["motion"] * (self.beta / client.rate_sum)}

    def direction(self, w: Vector, gradient: Vector, memory: Memory, step: Step) -> tuple[Vector, Memory]:
        return gradient + memory["push"], memory
