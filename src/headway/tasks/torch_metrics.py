"""Metrics of torchmetrics: F1, AUROC, IoU and all others that take (outputs, targets)."""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from typing import Protocol, runtime_checkable

from torch import Tensor

from headway.errors import UserError, nearest
from headway.tasks.metrics import Judged, Metric, Rows


@runtime_checkable
class Updated(Protocol):
    """What is used of a metric of torchmetrics."""

    higher_is_better: bool | None

    def update(self, outputs: Tensor, targets: Tensor, /) -> None: ...
    def compute(self) -> Tensor: ...
    def reset(self) -> None: ...


_UNDEFINED = "meaningless"
"""Part of what torchmetrics says where it returns 0 for what does not exist, such as the AUROC of a single class."""


def adapted(metric: Updated, task: str, name: str | None = None, higher_is_better: bool | None = None) -> Metric:
    """A metric of torchmetrics; its rows are the outputs and targets themselves, which it is given all together.

    `higher_is_better` stands where torchmetrics does not say it.
    """
    called = name or type(metric).__name__
    rises = higher_is_better if metric.higher_is_better is None else metric.higher_is_better

    def rows(judged: Judged) -> Rows:
        return judged.logits, judged.labels

    def value(rows: Rows) -> float:
        outputs, targets = rows
        own = copy.deepcopy(metric)
        own.reset()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                own.update(*_as_expected(metric, task, outputs, targets))
                found = own.compute()
            except (ValueError, RuntimeError, TypeError, IndexError) as fault:
                if len(targets) == 1:  # R² and others need two samples; with these the metric was tried
                    return math.nan
                cause = (str(fault).splitlines() or [type(fault).__name__])[0]
                raise UserError(f"metric '{called}' of torchmetrics does not fit task {task}: {cause}") from fault
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise UserError(
                f"metric '{called}' computes more than one number; ask it for their mean, such as average='macro'"
            )
        if rises is None:
            raise UserError(
                f"metric '{called}': torchmetrics does not say whether a larger one is better; say it: "
                f"torchmetrics:{called}:higher_is_better=true or false (of an object in a class that extends its own)"
            )
        return math.nan if any(_UNDEFINED in str(one.message) for one in said) else float(found)

    return Metric(called, rows, value, higher_is_better=bool(rises))


def _as_expected(metric: Updated, task: str, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and targets in the form that torchmetrics takes: probabilities with classes on axis 1, labels as int64.

    It would take logits for probabilities where all of them happen to lie between 0 and 1. Metrics of texts, such as
    Perplexity, take the logits of tokens as they are, classes last.
    """
    outputs = outputs.double() if outputs.is_floating_point() else outputs
    if task in ("binary", "multilabel"):
        return outputs.reshape(targets.shape).sigmoid(), targets.long()
    if task == "regression":
        return outputs.reshape(targets.shape), targets.double()
    if task == "tokens":
        if type(metric).__module__.startswith("torchmetrics.text"):
            return outputs.float(), targets
        outputs = outputs.movedim(-1, 1)
    return (outputs.softmax(1) if task in ("classification", "tokens", "segmentation") else outputs), targets


def named(text: str, task: str) -> Metric:
    """`F1Score(task="multiclass", num_classes=10)` as `F1Score:task=multiclass:num_classes=10`."""
    try:
        import torchmetrics
    except ImportError as fault:
        raise UserError("metrics of torchmetrics need the package: pip install 'headway[metrics]'") from fault
    name, _, options = text.partition(":")
    kinds = {
        one: kind
        for one, kind in vars(torchmetrics).items()
        if inspect.isclass(kind) and issubclass(kind, torchmetrics.Metric)
    }
    if name not in kinds:
        raise UserError(f"torchmetrics has no metric '{name}'{nearest(name, kinds)}")
    arguments = dict(_option(name, one) for one in filter(None, options.split(":")))
    rises = arguments.pop("higher_is_better", None)
    if rises is not None and not isinstance(rises, bool):
        raise UserError(f"torchmetrics' {name}: higher_is_better is {rises}; it must be true or false")
    try:
        metric = kinds[name](**arguments)
    except (TypeError, ValueError) as fault:
        raise UserError(f"torchmetrics' {name} cannot be made: {str(fault).splitlines()[0]}") from fault
    assert isinstance(metric, Updated)
    return adapted(metric, task, name, rises)


def _option(metric: str, text: str) -> tuple[str, str | int | float | bool]:
    name, equals, value = (piece.strip() for piece in text.partition("="))
    if not equals or not value:
        raise UserError(f"torchmetrics' {metric}: option '{name}' has no value; write {name}=VALUE")
    if value in ("true", "false"):
        return name, value == "true"
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value
