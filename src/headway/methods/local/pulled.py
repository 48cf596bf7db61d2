from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import Momentum, slot
from headway.methods.slots import Client, Message, State, Step
from headway.vectors import Vector


class Memory(TypedDict):
    pull: Vector
    """βm/K_i."""


@slot
class pulled:
    """w ← w − η(g + β_l m/K), m the received momentum: FedADC's clients, heavy-ball form (Ozfatura et al. 2021).

    m, received as `pull`, has the model's shapes and the sign of a gradient, and is in units of a gradient times K
    (`server.drift_momentum`). K is the client's own number of steps.
    """

    momentum: Momentum

    needs = ("message:pull", "local:gradient_steps")

    def begin(self, received: Message, kept: State, client: Client) -> Memory:
        return {"pull": received["pull"] * self.momentum / client.steps}

    def direction(self, w: Vector, gradient: Vector, memory: Memory, step: Step) -> tuple[Vector, Memory]:
        return gradient + memory["pull"], memory
