from __future__ import annotations

from typing import Annotated

from headway.methods.arguments import Within, slot
from headway.methods.slots import State, Step
from headway.vectors import Vector


@slot
class mixed:
    """w ← w − η(αg + (1−α)D), D the received mean direction of the last round: FedCM's clients.

    Xu et al. 2021, Alg. 2. D has the model's shapes and the sign of a gradient; it is 0 in the first round. α = 1 is
    SGD.
    """

    alpha: Annotated[float, Within(0, 1, open_left=True)]

    needs = ("local:gradient_steps", "message:direction")

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        return self.alpha * gradient + (1 - self.alpha) * step.received["direction"], memory
