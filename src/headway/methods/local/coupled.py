from __future__ import annotations

from typing import Annotated, TypedDict

from headway.methods.arguments import Rate, Within, slot
from headway.methods.slots import Client, End, Message, State, Step
from headway.vectors import Vector


class Memory(TypedDict):
    companion: Vector
    """w."""


@slot
class coupled:
    """u = w/β + (1 − 1/β)w^ag ; w^ag ← u − ηg(u) ; w ← (1 − 1/α)w + u/α − γηg(u): FedAc's clients (Yuan & Ma 2020).

    Alg. 1 there. w^ag is the local model, and its start the received one; w, the `companion`, starts as received and is
    uploaded as w_i − w. Both have the model's shapes. γ is in units of the local rate η, so that a falling rate shrinks
    both. The gradient is taken at u, known before any: one pass. Weight decay is added to the step of w^ag.
    """

    gamma: Rate
    alpha: Annotated[float, Within(1)]
    beta: Annotated[float, Within(1)]

    optimises = True
    needs = ("message:companion",)
    provides = ("upload:companion",)

    def begin(self, received: Message, kept: State, client: Client) -> Memory:
        return {"companion": received["companion"]}

    def point(self, w: Vector, memory: Memory, step: Step) -> Vector:
        return memory["companion"] * (1 / self.beta) + w * (1 - 1 / self.beta)

    def direction(self, w: Vector, gradient: Vector, memory: Memory, step: Step) -> tuple[Vector, Memory]:
        u = self.point(w, memory, step)
        moved = memory["companion"] * (1 - 1 / self.alpha) + u * (1 / self.alpha)
        after: Memory = {"companion": moved.plus(-self.gamma * step.rate, gradient)}
        return gradient.plus(1 / step.rate, w - u), after

    def finish(self, end: End, memory: Memory, kept: State) -> tuple[dict[str, Vector], State]:
        return {"companion": memory["companion"] - end.received["companion"]}, {}
