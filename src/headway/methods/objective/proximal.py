from __future__ import annotations

from torch import Tensor

from headway.methods.arguments import Weight, slot
from headway.methods.slots import Output, State, Step
from headway.vectors import Vector


@slot
class proximal:
    """f + β/2 ‖w − φ‖²: a pull back to the received model, gradient +β(w − φ).

    FedProx (Li et al. 2020, Alg. 2); FedACG (Kim et al. 2024, Alg. 1), where φ is θ + λm. w and φ are over all
    parameters. Without `half` it is β‖w − φ‖², as in FedACG's public program (its 0.001 is β = 0.002 here).
    """

    beta: Weight
    half: bool = True

    adds = True

    @property
    def factor(self) -> float:
        return self.beta if self.half else 2.0 * self.beta

    def value(self, w: Vector, output: Output | None, memory: State, step: Step) -> Tensor:
        return 0.5 * self.factor * step.moved(w).square()

    def slope(self, w: Vector, memory: State, step: Step) -> Vector:
        return step.moved(w) * self.factor
