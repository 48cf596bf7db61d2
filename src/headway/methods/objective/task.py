from __future__ import annotations

from torch import Tensor

from headway.methods.arguments import Weight, slot
from headway.methods.slots import Output, State, Step
from headway.vectors import Vector


@slot
class task:
    """α · f(w): the task's loss, averaged over the batch. FedAGM weighs it with α (its Alg. 2); elsewhere α = 1."""

    alpha: Weight = 1.0

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Tensor:
        return self.alpha * step.batch.mean(step.losses(output.logits))
