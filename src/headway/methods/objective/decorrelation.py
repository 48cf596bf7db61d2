from __future__ import annotations

import torch
from torch import Tensor

from headway.methods.arguments import Weight, slot
from headway.methods.slots import Output, State, Step
from headway.vectors import Vector


@slot
class decorrelation:
    """f + β·‖K‖_F²/d², K the correlation matrix of the features over the batch: FedDecorr (Shi et al. 2023, Eq. 6).

    K = XᵀX/(B−1) has shape (d, d); X, of shape (batch, d), are the features (the last stage's input), centred and
    divided by √(unbiased variance + 1e-8), and B counts the samples of the batch. With `program` the form of the
    FedACG authors: the mean of the squared off-diagonal entries of XᵀX, divided by B. A batch of one sample gives 0.
    As the samples of a batch are coupled here, padding rows have weight 0 in every statistic.
    """

    beta: Weight
    program: bool = False

    adds = True
    needs = ("model:stages",)

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Tensor:
        weight = step.batch.weight[:, None]
        count = weight.sum().clamp(min=1)
        features = output.stages[-1].flatten(1)
        centred = (features - (features * weight).sum(0) / count) * weight
        variance = (centred**2).sum(0) / (count - 1).clamp(min=1)
        x = centred * torch.rsqrt(variance + 1e-8)
        products = x.T @ x
        size = features.shape[1]
        if self.program:
            off = products - torch.diag(torch.diagonal(products))
            penalty = (off**2).sum() / (size * (size - 1)) / count
        else:
            penalty = ((products / (count - 1).clamp(min=1)) ** 2).sum() / size**2
        return self.beta * torch.where(count > 1, penalty, 0.0)
