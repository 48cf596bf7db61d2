"""`Task`: a loss for each sample, and the metrics of a model. The tasks that have a name are in `known`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from headway.errors import UserError
from headway.tasks.metrics import IGNORED, Answer, Judged, Metric, Target

__all__ = ["IGNORED", "Answer", "Target", "Task"]


@dataclass(frozen=True)
class Task:
    """What is learnt, and how it is judged."""

    name: str
    loss: Callable[[Answer, Target], Tensor]
    """(output, target) → the loss of each sample, shape (batch,); of several tokens or pixels their mean."""
    loss_words: str
    """What the loss is called."""
    metrics: tuple[Metric, ...] = ()
    """The first is the headline; without one, and none given to the run, the loss is."""
    units: Callable[[Target], Tensor] | None = None
    """How many tokens or pixels of each sample count, shape (batch,): a batch's loss is the mean over all of them.

    None where a batch's loss is the mean over its samples.
    """
    class_axis: int = 1
    """The axis of the output that has one logit for each class."""

    @property
    def headline(self) -> Metric:
        return self.metrics[0]

    def judged(self, answer: Answer, target: Target) -> Judged:
        """Samples with the network's answer, their losses and how many units these are means over."""
        units = None if self.units is None else self.units(target)
        own_loss = all(self.loss is not known for known in LOSSES)
        return Judged(answer, target, self.loss(answer, target), units, self.class_axis, own_loss)


def cross_entropy(output: Answer, target: Target) -> Tensor:
    """−log softmax(output)[class] of each sample; of tokens or pixels the mean over those that count."""
    logits, labels = _tensors(output, target)
    losses = F.cross_entropy(logits, labels, reduction="none", ignore_index=IGNORED)
    if losses.dim() == 1:
        return losses
    counted = (labels != IGNORED).flatten(1).sum(1)
    return losses.flatten(1).sum(1) / counted.clamp(min=1)


def token_cross_entropy(output: Answer, target: Target) -> Tensor:
    """Cross-entropy a token: logits (B, T, V), targets (B, T)."""
    logits, labels = _tensors(output, target)
    return cross_entropy(logits.transpose(1, -1), labels)


def squared_error(output: Answer, target: Target) -> Tensor:
    """The mean over outputs of (ŷ − y)²."""
    numbers, y = _tensors(output, target)
    return ((numbers.reshape(len(numbers), -1) - y.reshape(len(y), -1)) ** 2).mean(1)


def one_hot_error(output: Answer, target: Target) -> Tensor:
    """The mean over C outputs of (z − e_y)², e_y one-hot: linear regression whose largest output is its answer.

    FedNAG's Figure 4 has its loss and its accuracy.
    """
    logits, y = _tensors(output, target)
    return squared_error(logits, (y.unsqueeze(1) == torch.arange(logits.shape[1], device=y.device)).to(logits.dtype))


def binary_cross_entropy(output: Answer, target: Target) -> Tensor:
    """The mean over labels of −y log σ(z) − (1−y) log(1−σ(z)); one logit a label."""
    logits, y = _tensors(output, target)
    logits = logits.reshape(y.shape)
    losses = F.binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none")
    return losses if losses.dim() == 1 else losses.flatten(1).mean(1)


LOSSES = (cross_entropy, token_cross_entropy, squared_error, one_hot_error, binary_cross_entropy)
"""The losses of tasks with a name. Of any other, metrics do not take the values for their own."""


def counted(target: Target) -> Tensor:
    """How many tokens or pixels of each sample are not `IGNORED`."""
    if not isinstance(target, Tensor):
        raise UserError("this task has one tensor of targets, but a sample has several; give a loss of your own")
    return (target != IGNORED).flatten(1).sum(1)


def _tensors(output: Answer, target: Target) -> tuple[Tensor, Tensor]:
    """Both where each is one tensor."""
    if not isinstance(output, Tensor):
        raise UserError("the model answers with several tensors; give a loss of your own: task=my_loss")
    if not isinstance(target, Tensor):
        raise UserError("a sample has several targets; give a loss of your own: task=my_loss")
    return output, target
