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
from torch.nn import functional as F

from headway.errors import UserError, is_short_of_memory, shown
from headway.errors import in_words as fault_in_words
from headway.records import MetricRecord
from headway.trees import leaves_of

IGNORED = -100
"""The label of tokens and pixels that do not count, as in torch's cross-entropy."""

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
    own_loss: bool = False
    """Whether the loss is the user's own: what its values are, and what the answer means, is then not known."""

    @property
    def logits(self) -> Tensor:
        """The answer where it is one tensor."""
        if not isinstance(self.answer, Tensor):
            raise UserError(
                "it reads one tensor of outputs, but the model answers with several: give a metric of your own"
            )
        return self.answer

    @property
    def labels(self) -> Tensor:
        """The target where it is one tensor."""
        if not isinstance(self.target, Tensor):
            raise UserError("it reads one tensor of targets, but a sample has several: give a metric of your own")
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

    def rows_of(self, judged: Judged) -> Rows:
        """What each sample of a batch contributes, where it is that: tensors with one row a sample."""
        try:
            with self._naming():
                found = self.rows(judged)
        except UserError as fault:
            raise fault if str(fault).startswith("metric '") else fault.at(f"metric '{self.name}'") from fault
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


def _classes(judged: Judged) -> tuple[Tensor, Tensor]:
    """Logits with a value for each class on `class_axis`, and labels; of a user's own loss this is looked at."""
    logits, labels, axis = judged.logits, judged.labels, judged.class_axis
    if judged.own_loss:
        if labels.dim() > 1 and judged.units is None:
            raise UserError(
                f"the loss is your own and a sample has targets of shape {tuple(labels.shape[1:])}, so that it is not "
                "known where the classes are: give a whole hw.Task with units and class_axis, or a metric of your own"
            )
        expected = list(logits.shape)
        classes = expected.pop(axis) if -logits.dim() <= axis < logits.dim() else 0
        if labels.is_floating_point() or expected != list(labels.shape) or classes < 2:
            raise UserError(
                f"the loss is your own, and outputs of shape {tuple(logits.shape)} for targets of shape "
                f"{tuple(labels.shape)} and type {labels.dtype} do not have one logit for each class on axis {axis}: "
                "give a metric of your own, f(output, target)"
            )
    return logits, labels


def _numbers(judged: Judged) -> tuple[Tensor, Tensor]:
    """Answers and targets, shape (batch, numbers): as many of one as of the other, so that none is broadcast."""
    answer, target = judged.logits, judged.labels
    if answer.numel() != target.numel():
        raise UserError(
            f"it compares each number of the answer with one of the target, but outputs have shape "
            f"{tuple(answer.shape)} and targets {tuple(target.shape)}: give a metric of your own, f(output, target)"
        )
    return answer.reshape(len(target), -1), target.reshape(len(target), -1)


def _hits(judged: Judged) -> Tensor:
    """Whether each sample's largest logit, or each unit's, is the right one."""
    logits, labels = _classes(judged)
    return _by_sample(logits.argmax(judged.class_axis) == labels, judged)


def _by_sample(hits: Tensor, judged: Judged) -> Tensor:
    """Hits as rows: of samples with several units, how many are right and how many count."""
    if judged.units is None:
        return hits
    return torch.stack([hits.flatten(1).sum(1).double(), _counted(judged)], dim=1)


def _counted(judged: Judged) -> Tensor:
    """How many labels of each sample are not `IGNORED`."""
    return (judged.labels != IGNORED).reshape(len(judged.labels), -1).sum(1).double()


def _right_sign(judged: Judged) -> Tensor:
    """The share of a sample's labels that the sign of the logit gets right."""
    target = judged.labels
    right = (judged.logits.reshape(target.shape) > 0) == (target > 0.5)
    return right if right.dim() == 1 else right.flatten(1).double().mean(1)


def _all_signs(judged: Judged) -> Tensor:
    answer, target = _numbers(judged)
    return ((answer > 0) == (target > 0.5)).all(1)


def _losses(judged: Judged) -> Tensor:
    """(loss · units, units) of each sample."""
    losses = judged.losses.double()
    units = torch.ones_like(losses) if judged.units is None else judged.units.double()
    return torch.stack([losses * units, units], dim=1)


def _surprises(judged: Judged) -> Tensor:
    """(Σ −log p of the true classes, how many count) of each sample: the loss, or beside a loss of the user's own."""
    if not judged.own_loss:
        return _losses(judged)
    logits, labels = _classes(judged)
    losses = F.cross_entropy(
        logits.movedim(judged.class_axis, 1), labels, reduction="none", ignore_index=IGNORED
    ).reshape(len(labels), -1)
    return torch.stack([losses.double().sum(1), _counted(judged)], dim=1)


def _absolute(judged: Judged) -> Tensor:
    answer, target = _numbers(judged)
    return (answer - target).abs().double().mean(1)


def _squares(judged: Judged) -> Tensor:
    """The mean of (ŷ − y)² over a sample's numbers: the loss, or beside a loss of the user's own."""
    if not judged.own_loss:
        return judged.losses.double()
    answer, target = _numbers(judged)
    return ((answer - target) ** 2).mean(1).double()


def _squares_and_ones(judged: Judged) -> Tensor:
    squares = _squares(judged)
    return torch.stack([squares, torch.ones_like(squares)], dim=1)


def _squares_and_targets(judged: Judged) -> Rows:
    return _squares(judged), judged.labels.double().reshape(len(judged.labels), -1)


def _r2(rows: Rows) -> float:
    """1 − Σ(ŷ − y)²/Σ(y − ȳ)², over all outputs together; not a number where the targets are all the same."""
    losses, targets = rows
    spread = float(targets.var(0, unbiased=False).mean())
    return 1 - float(losses.mean()) / spread if spread > 0 else math.nan


def top(k: int) -> Metric:
    """The share of samples whose true class is among the k largest logits."""

    def rows(judged: Judged) -> Tensor:
        (logits, labels), axis = _classes(judged), judged.class_axis
        largest = logits.topk(min(k, logits.shape[axis]), dim=axis).indices
        return _by_sample((largest == labels.unsqueeze(axis)).any(axis), judged)

    return Metric(f"top{k}", rows, mean_of, percent=True, tasks=("classification", "tokens", "segmentation"))


_CLASSES = ("classification", "tokens", "segmentation")
_SIGNS = ("binary", "multilabel")

accuracy = Metric("accuracy", _hits, mean_of, percent=True, tasks=_CLASSES)
label_accuracy = Metric("accuracy", _right_sign, mean_of, percent=True, tasks=_SIGNS)
exact_match = Metric("exact_match", _all_signs, mean_of, percent=True, tasks=("multilabel",))
rmse = Metric(
    "rmse", _squares_and_ones, lambda rows: math.sqrt(mean_of(rows)), higher_is_better=False, tasks=("regression",)
)
mae = Metric("mae", _absolute, mean_of, higher_is_better=False, tasks=("regression",))
r2 = Metric("r2", _squares_and_targets, _r2, tasks=("regression",))
perplexity = Metric(
    "perplexity",
    _surprises,
    lambda rows: math.exp(min(mean_of(rows), 700.0)),
    higher_is_better=False,
    tasks=("tokens",),
)
bits = Metric(
    "bits_per_character",
    _surprises,
    lambda rows: mean_of(rows) / math.log(2),
    higher_is_better=False,
    tasks=("tokens",),
)
loss = Metric("loss", _losses, mean_of, higher_is_better=False)

_OF_SUMS = (rmse, perplexity, bits)


def sums_of(metric: Metric, rows: Rows) -> tuple[float, float] | None:
    """The sums of some samples' rows, where the metric of many samples follows from these; else None.

    The metric is `metric.value` of one row that has the sums over all samples.
    """
    if not isinstance(rows, Tensor) or (metric.value is not mean_of and metric not in _OF_SUMS):
        return None
    if rows.dim() == 1:
        return float(rows.double().sum()), float(len(rows))
    first, second = rows.double().sum(0).tolist()
    return first, second


METRICS = {one.name: one for one in (accuracy, top(3), top(5), exact_match, rmse, mae, r2, perplexity, bits)}
"""The metrics that have a name; `topK` is one for every K, and `torchmetrics:NAME` one of that library's."""
