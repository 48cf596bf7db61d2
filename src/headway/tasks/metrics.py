"""Metrics: what each sample contributes, and the number that many samples' contributions make.

A metric keeps one row a sample, so the same rows give its value on the whole test set and on each client's own part.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import SupportsFloat

import torch
from torch import Tensor

from headway.errors import UserError, is_short_of_memory, shown
from headway.errors import in_words as fault_in_words
from headway.records import MetricRecord
from headway.trees import leaves_of

Answer = Tensor | tuple[Tensor, ...] | Mapping[str, Tensor]
"""What a network answers for a batch: one tensor, or a tuple or a dictionary of tensors, each with one row a sample."""

Target = Tensor | tuple[Tensor, ...] | Mapping[str, Tensor]
"""What a batch should be answered with."""

Rows = Tensor | tuple[Tensor, ...]
"""What samples contribute to a metric: tensors with one row a sample."""


@dataclass(frozen=True)
class Judged:
    """Samples with a network's answer to them."""

    answer: Answer
    target: Target
    losses: Tensor
    """Shape (batch,): the task's loss of each sample."""
    units: Tensor | None
    """Shape (batch,): over how many tokens or pixels the loss of each sample is the mean; None where over one."""
    class_axis: int = 1
    """The axis of the answer that has one logit for each class."""

    @property
    def logits(self) -> Tensor:
        """The answer where it is one tensor."""
        if not isinstance(self.answer, Tensor):
            raise UserError("this metric reads one tensor of outputs, but the model answers with several")
        return self.answer

    @property
    def labels(self) -> Tensor:
        """The target where it is one tensor."""
        if not isinstance(self.target, Tensor):
            raise UserError("this metric reads one tensor of targets, but a sample has several")
        return self.target


@dataclass(frozen=True)
class Metric:
    """A number that says how good a model is on some samples."""

    name: str
    rows: Callable[[Judged], Rows]
    """What each sample of a batch contributes, on the device of the batch."""
    value: Callable[[Rows], float]
    """The metric of the samples with these rows, on the host."""
    higher_is_better: bool = True
    percent: bool = False
    """Whether it is a share, which tables show in percent."""
    tasks: tuple[str, ...] = ()
    """The tasks that it can judge; empty: any."""

    def __post_init__(self) -> None:
        """Refuse what could not be recorded or called, and a direction that is not one."""
        if not isinstance(self.name, str) or not self.name.strip() or "," in self.name:
            raise UserError(f"a metric's name is {shown(self.name)}; it must be a text without commas, a record's key")
        for what, function in (("rows", self.rows), ("value", self.value)):
            if not callable(function):
                raise UserError(f"metric '{self.name}': {what} is {shown(function)}; it must be a function")
        for what, flag in (("higher_is_better", self.higher_is_better), ("percent", self.percent)):
            if not isinstance(flag, bool):
                raise UserError(f"metric '{self.name}': {what} is {shown(flag)}; it must be True or False")

    def read(self, judged: Judged) -> Rows:
        """What each sample of a batch contributes, where it is that: tensors with one row a sample."""
        with self._naming():
            found = self.rows(judged)
        parts = leaves_of(found) if isinstance(found, Tensor | tuple | list) else []
        count = len(judged.losses)
        if not parts or not all(isinstance(part, Tensor) and part.shape[:1] == (count,) for part in parts):
            raise UserError(
                f"metric '{self.name}': its rows for {count} samples are {shown(found)}; they must be tensors with one "
                "row a sample"
            )
        return found

    def of(self, rows: Rows) -> float:
        """The metric of samples with these rows, as a number; not a number where they do not define it."""
        with self._naming():
            try:
                found: object = self.value(rows)
            except ArithmeticError:  # a division by their number, 0
                return math.nan
        if isinstance(found, SupportsFloat):
            with contextlib.suppress(TypeError, ValueError, RuntimeError):  # of several numbers
                return float(found)
        raise UserError(f"metric '{self.name}' came to {shown(found)}; its value must be one number")

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """An error inside is one of this metric."""
        try:
            yield
        except Exception as fault:
            if isinstance(fault, UserError) or is_short_of_memory(fault):
                raise
            raise UserError(f"metric '{self.name}' failed: {fault_in_words(fault)}") from fault


_WORDS = {
    "rmse": "RMSE",
    "r2": "R²",
    "mae": "MAE",
    "bits_per_character": "bits a character",
    "exact_match": "exact match",
}


def in_words(name: str) -> str:
    """A metric's name as tables and pictures have it."""
    return _WORDS.get(name, name)


def record_of(metric: Metric) -> MetricRecord:
    """How a metric is read, as records have it."""
    return {"name": metric.name, "higher_is_better": metric.higher_is_better, "percent": metric.percent}


def mean_of(rows: Rows) -> float:
    """The mean over samples; of rows (sum, count) the sum of the first by that of the second."""
    (only,) = leaves_of(rows)
    values: Tensor = only.double()
    if values.dim() == 1:
        return float(values.mean())
    sums = values.sum(0)
    return float(sums[0] / sums[1])


def _hits(judged: Judged) -> Tensor:
    """Whether each sample's largest logit, or each unit's, is the right one."""
    _check_logits(judged)
    return judged.logits.argmax(judged.class_axis) == judged.labels


def _check_logits(judged: Judged) -> None:
    """Refuse outputs that do not have one logit a class at each target: comparing them would broadcast."""
    form, wanted = tuple(judged.logits.shape), tuple(judged.labels.shape)
    axis = judged.class_axis % max(len(form), 1)
    if len(form) <= judged.class_axis or form[:axis] + form[axis + 1 :] != wanted:
        raise UserError(
            f"accuracy compares the largest of a sample's outputs with its class, but the outputs have shape "
            f"{form} and the targets {wanted}; give a metric of your own, a function of (output, target)"
        )


def _right(judged: Judged) -> Tensor:
    return _by_sample(_hits(judged), judged.units)


def _by_sample(hits: Tensor, units: Tensor | None) -> Tensor:
    """Hits as rows: of samples with several units, how many are right and how many count."""
    if units is None:
        return hits
    return torch.stack([hits.flatten(1).sum(1).double(), units.double()], dim=1)


def _right_sign(judged: Judged) -> Tensor:
    """The share of a sample's labels that the sign of the logit gets right."""
    target = judged.labels
    right = (judged.logits.reshape(target.shape) > 0) == (target > 0.5)
    return right if right.dim() == 1 else right.flatten(1).double().mean(1)


def _all_signs(judged: Judged) -> Tensor:
    target = judged.labels
    return ((judged.logits.reshape(target.shape) > 0) == (target > 0.5)).reshape(len(target), -1).all(1)


def _losses(judged: Judged) -> Tensor:
    """(loss · units, units) of each sample."""
    losses = judged.losses.double()
    units = torch.ones_like(losses) if judged.units is None else judged.units.double()
    return torch.stack([losses * units, units], dim=1)


def errors_of(output: Tensor, target: Tensor) -> Tensor:
    """ŷ − y, shape (batch, outputs); as many outputs as targets, for others would be broadcast."""
    if output.dim() == 0 or len(output) != len(target) or output.numel() != target.numel():
        raise UserError(
            f"outputs of shape {tuple(output.shape)} cannot be compared with targets of shape {tuple(target.shape)}: "
            "there must be as many"
        )
    return output.reshape(len(target), -1) - target.reshape(len(target), -1)


def _absolute(judged: Judged) -> Tensor:
    return errors_of(judged.logits, judged.labels).abs().double().mean(1)


def _squared(judged: Judged) -> Tensor:
    """The mean squared error of each sample, whatever the task's loss is."""
    return (errors_of(judged.logits, judged.labels) ** 2).mean(1).double()


def _squared_and_ones(judged: Judged) -> Tensor:
    squared = _squared(judged)
    return torch.stack([squared, torch.ones_like(squared)], dim=1)


def _squared_and_targets(judged: Judged) -> Rows:
    return _squared(judged), judged.labels.double().reshape(len(judged.labels), -1)


def _r2(rows: Rows) -> float:
    """1 − Σ(ŷ − y)²/Σ(y − ȳ)², over all outputs together; not a number where the targets are all the same."""
    losses, targets = rows
    spread = float(targets.var(0, unbiased=False).mean())
    return 1 - float(losses.mean()) / spread if spread > 0 else math.nan


def top(k: int) -> Metric:
    """The share of samples whose true class is among the k largest logits."""

    def rows(judged: Judged) -> Tensor:
        _check_logits(judged)
        logits, axis = judged.logits, judged.class_axis
        largest = logits.topk(min(k, logits.shape[axis]), dim=axis).indices
        return _by_sample((largest == judged.labels.unsqueeze(axis)).any(axis), judged.units)

    return Metric(f"top{k}", rows, mean_of, percent=True, tasks=("classification", "tokens", "segmentation"))


_CLASSES = ("classification", "tokens", "segmentation")
_SIGNS = ("binary", "multilabel")

accuracy = Metric("accuracy", _right, mean_of, percent=True, tasks=_CLASSES)
label_accuracy = Metric("accuracy", _right_sign, mean_of, percent=True, tasks=_SIGNS)
exact_match = Metric("exact_match", _all_signs, mean_of, percent=True, tasks=("multilabel",))
rmse = Metric(
    "rmse", _squared_and_ones, lambda rows: math.sqrt(mean_of(rows)), higher_is_better=False, tasks=("regression",)
)
mae = Metric("mae", _absolute, mean_of, higher_is_better=False, tasks=("regression",))
r2 = Metric("r2", _squared_and_targets, _r2, tasks=("regression",))
perplexity = Metric(
    "perplexity", _losses, lambda rows: math.exp(min(mean_of(rows), 700.0)), higher_is_better=False, tasks=("tokens",)
)
bits = Metric(
    "bits_per_character", _losses, lambda rows: mean_of(rows) / math.log(2), higher_is_better=False, tasks=("tokens",)
)
loss = Metric("loss", _losses, mean_of, higher_is_better=False)

METRICS = {one.name: one for one in (accuracy, top(3), top(5), exact_match, rmse, mae, r2, perplexity, bits)}
"""The metrics that have a name; `topK` is one for every K, and `torchmetrics:NAME` one of that library's."""
