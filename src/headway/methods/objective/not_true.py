from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from headway.methods.arguments import Rate, Weight, slot
from headway.methods.slots import Output, State, Step
from headway.vectors import Vector


@slot
class not_true:
    """f + β·KL(q_φ ‖ q_w), q the softmax of logits/T over all classes but the true one: FedNTD.

    Lee et al. 2022, Eq. 5. q_φ, of the received model, is without gradient. Both are of shape (batch, classes). The
    paper has a further factor T², which is 1 at its T = 1.
    """

    beta: Weight
    temperature: Rate

    adds = True
    needs = ("model:classes",)

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Tensor:
        teacher = step.forward(step.received["model"]).logits
        true = step.batch.true_class(output.logits.shape[1])
        others = (logits.masked_fill(true, -1e30) / self.temperature for logits in (teacher, output.logits))
        log_teacher, log_student = (F.log_softmax(logits, dim=1) for logits in others)
        terms = (log_teacher.exp() * (log_teacher - log_student)).masked_fill(true, 0.0)
        return self.beta * step.batch.mean(terms.sum(1))
