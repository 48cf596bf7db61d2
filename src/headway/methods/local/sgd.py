from __future__ import annotations

from headway.methods.arguments import slot
from headway.methods.slots import State, Step
from headway.vectors import Vector


@slot
class sgd:
    """w ← w − ηg: stochastic gradient descent, the clients of FedAvg (McMahan et al. 2017, Alg. 1)."""

    optimises = True
    provides = ("local:gradient_steps",)

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        return gradient, memory
