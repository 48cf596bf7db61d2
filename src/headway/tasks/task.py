"""`Task`: a loss for each sample, and the metrics of a model. The tasks that have a name are in `known`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from headway.errors import UserError, in_words, is_short_of_memory, shown
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

    def __post_init__(self) -> None:
        """Refuse what could not be called or recorded."""
        if not isinstance(self.name, str) or not isinstance(self.loss_words, str):
            raise UserError("a task's name and loss_words are texts: headway.Task('mine', my_loss, 'my loss', metrics)")
        for what, function in (("loss", self.loss), ("units", self.units)):
            if not callable(function) and not (what == "units" and function is None):
                raise UserError(f"task '{self.name}': {what} is {shown(function)}; it must be a function")
        if not isinstance(self.metrics, tuple | list):
            raise UserError(f"task '{self.name}': metrics is {shown(self.metrics)}; give a tuple of them")
        if type(self.class_axis) is not int:
            raise UserError(f"task '{self.name}': class_axis is {shown(self.class_axis)}; it must be a whole number")

    @property
    def headline(self) -> Metric:
        return self.metrics[0]

    def judged(self, answer: Answer, target: Target) -> Judged:
        """Samples with the network's answer, their losses and how many units these are means over."""
        losses = self._of_samples("loss", lambda: self.loss(answer, target), target)
        own_loss = all(self.loss is not known for known in LOSSES)
        return Judged(answer, target, losses, self.counts(target), self.class_axis, own_loss)

    def counts(self, target: Target) -> Tensor | None:
        """How many units of each sample count, checked; None where a batch's loss is the mean over its samples."""
        units = self.units
        return None if units is None else self._of_samples("units", lambda: units(target), target)

    def _of_samples(self, what: str, ask: Callable[[], Tensor], target: Target) -> Tensor:
        """What a task says of each sample, if it is one number of each; an error in it says what failed."""
        try:
            found: object = ask()
        except Exception as fault:
            if isinstance(fault, UserError) or is_short_of_memory(fault):
                raise
            raise UserError(f"the {what} of task '{self.name}' failed: {in_words(fault)}") from fault
        rows = rows_of(target)
        if isinstance(found, Tensor) and found.shape == (rows,):
            return found
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise UserError(
            f"the {what} of task '{self.name}' returned {got} for {rows} samples; it must return one number a sample"
        )


def rows_of(target: Target) -> int:
    """How many samples a batch of targets has."""
    if isinstance(target, Tensor):
        return len(target)
    return len(next(iter(target.values() if isinstance(target, Mapping) else target)))


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
