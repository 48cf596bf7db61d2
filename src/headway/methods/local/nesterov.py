from __future__ import annotations

from typing import Annotated, TypedDict

from headway.methods.arguments import Within, slot
from headway.methods.slots import Client, End, Message, State, Step
from headway.vectors import Vector


class Memory(TypedDict):
    velocity: Vector
    """v."""


@slot
class nesterov:
    """v ← γv − ηg ; w ← w + γv − ηg, v as received at first: FedNAG's clients (Yang et al. 2022, Eq. 2–3). Uploads v.

    v has the model's shapes and the sign of an update. As a direction u with w ← w − ηu it is u = g − (γ/η)v with the
    new v. γ = 1 is allowed: the paper shows that it diverges.
    """

    gamma: Annotated[float, Within(0, 1)]

    optimises = True
    needs = ("message:velocity",)
    provides = ("upload:velocity",)

    def begin(self, received: Message, kept: State, client: Client) -> Memory:
        return {"velocity": received["velocity"]}

    def direction(self, w: Vector, gradient: Vector, memory: Memory, step: Step) -> tuple[Vector, Memory]:
        velocity = self.gamma * memory["velocity"] - step.rate * gradient
        return gradient - (self.gamma / step.rate) * velocity, {"velocity": velocity}

    def finish(self, end: End, memory: Memory, kept: State) -> tuple[dict[str, Vector], State]:
        return {"velocity": memory["velocity"]}, {}
