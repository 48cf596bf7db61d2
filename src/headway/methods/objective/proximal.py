from __future__ import annotations

from torch import Tensor

from headway.methods.arguments import Weight, slot
from headway.methods.slots import Output, State, Step
from headway.vectors import Vector


@slot
class proximal:
    """+ β/2 ‖w − φ‖²: a pull back to the received model, gradient +β(w − φ).

    FedProx (Li et al. 2020); FedACG Alg. 1, where the anchor φ is θ + λm. Without `half` it is β‖w − φ‖², as the
    public FedACG program writes it (its 0.001 is β = 0.002 here).
    """

    beta: Weight
    half: bool = True

    adds = True

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Tensor:
        away = w - step.received["model"]
        return (0.5 if self.half else 1.0) * self.beta * away.dot(away)
