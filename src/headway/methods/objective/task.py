from __future__ import annotations

from torch import Tensor

from headway.methods.arguments import Weight, slot
from headway.methods.slots import Output, State, Step
from headway.vectors import Vector


@slot
class task:
    """α·f(w), f the mean of the task's loss over the batch: the objective of FedAvg, α = 1 (McMahan et al. 2017).

    FedAGM has another α (Kim et al. 2022, Alg. 2).
    """

    alpha: Weight = 1.0

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Tensor:
        return self.alpha * step.batch.mean(step.losses(output.logits))
