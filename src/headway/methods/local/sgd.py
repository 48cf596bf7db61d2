from __future__ import annotations

from headway.methods.arguments import slot
from headway.methods.slots import State, Step
from headway.vectors import Vector


@slot
class sgd:
    """w ← w − ηg: the direction is the gradient itself."""

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        return gradient, memory
