from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from headway.methods.arguments import Rate, Weight, slot
from headway.methods.slots import Output, State, Step
from headway.vectors import Vector


@slot
class branches:
    """f + λ₁·mean_l CE(b_l) + λ₂·mean_l KL(softmax(b_l/T) ‖ softmax(z/T)): FedMLB (Kim et al. 2022, Eq. 4–6).

    z are the logits, and b_l those of branch l, both of shape (batch, classes): the local stages up to l, then those
    of the received model, frozen. Gradients flow through both arguments of the KL and through the frozen stages into
    the local features. `cross` is λ₁, `distil` λ₂.
    """

    cross: Weight = 1.0
    distil: Weight = 1.0
    temperature: Rate = 1.0

    adds = True
    needs = ("model:stages", "model:classes")

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Tensor:
        frozen = step.received["model"]
        log_z = F.log_softmax(output.logits / self.temperature, dim=1)
        total = output.logits.new_zeros(())
        for stage in output.branches:
            path = step.resume(frozen, stage, output.stages[stage])
            log_b = F.log_softmax(path / self.temperature, dim=1)
            divergence = (log_b.exp() * (log_b - log_z)).sum(1)
            total = total + step.batch.mean(self.cross * step.losses(path) + self.distil * divergence)
        return total / len(output.branches)
