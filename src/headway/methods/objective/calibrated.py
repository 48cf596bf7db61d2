from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from headway.methods.arguments import Weight, slot
from headway.methods.slots import Output, State, Step
from headway.vectors import Vector


@slot
class calibrated:
    """CE of the logits z_c − T·n_c^{−1/4}, in place of the task loss f: FedLC (Zhang et al. 2022, Eq. 11).

    z has shape (batch, classes), and n_c counts the client's samples of class c; a class that it does not have gets
    probability 0. With `others` the sum in the denominator leaves out the true class, as the paper prints it; the loss
    can then be negative. A client with one class would have an empty sum, and a loss of −∞ for every model; its loss
    is 0 without gradient, as it is without `others`.
    """

    temperature: Weight
    others: bool = False

    needs = ("model:classes",)

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Tensor:
        known = step.client.class_counts.to(output.logits.dtype)
        counts = F.pad(known, (0, output.logits.shape[1] - known.shape[0]))  # outputs beyond the classes count none
        margin = self.temperature * counts.clamp(min=1).pow(-0.25)
        logits = torch.where(counts > 0, output.logits - margin, -1e30)
        true = step.batch.true_class(logits.shape[1])
        own = torch.where(true, logits, 0.0).sum(1)
        if not self.others:
            return step.batch.mean(torch.logsumexp(logits, dim=1) - own)
        losses = torch.logsumexp(logits.masked_fill(true, -1e30), dim=1) - own
        return step.batch.mean(torch.where((counts > 0).sum() > 1, losses, 0.0))
