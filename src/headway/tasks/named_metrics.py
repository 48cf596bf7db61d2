"""Metrics by their names, as a user's functions, or as those of torchmetrics."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from headway.errors import UserError, nearest, shown
from headway.tasks import torch_metrics
from headway.tasks.metrics import METRICS, Answer, Judged, Metric, Target, label_accuracy, mean_of, top


def metric_of(given: object, task: str) -> Metric:
    """A metric by its name, as a function of (output, target), as one of torchmetrics', or as it is."""
    found = _metric(given, task)
    if found.tasks and task not in (*found.tasks, "own"):
        raise UserError(f"metric '{found.name}' judges {' or '.join(found.tasks)}, but the task is {task}")
    return found


def _metric(given: object, task: str) -> Metric:
    if isinstance(given, Metric):
        return given
    if isinstance(given, str):
        return _named(given, task)
    if isinstance(given, torch_metrics.Updated) and not inspect.isclass(given):
        return torch_metrics.adapted(given, task)
    if callable(given) and not inspect.isclass(given):
        return own(given)
    raise UserError(
        f"metrics has {given!r:.60}; give a name ({', '.join(METRICS)}), a function of (output, target), a "
        "headway.Metric or a metric of torchmetrics"
    )


def _named(name: str, task: str) -> Metric:
    if name.startswith("torchmetrics:"):
        return torch_metrics.named(name.removeprefix("torchmetrics:"), task)
    number = name.removeprefix("top").removeprefix("-")
    if name.startswith("top") and number.isascii() and number.isdigit() and 0 < int(number) < 10**6:
        return top(int(number))
    if name == "accuracy" and task in label_accuracy.tasks:
        return label_accuracy
    if name not in METRICS:
        raise UserError(
            f"there is no metric '{name}'{nearest(name, METRICS)} (known: {', '.join(METRICS)}; topK for any K; "
            "torchmetrics:NAME)"
        )
    return METRICS[name]


def own(function: Callable[[Answer, Target], Tensor]) -> Metric:
    """A user's function of (output, target) → one number a sample; the metric is their mean.

    An attribute `higher_is_better = False` of the function says that less is better.
    """
    name = name_of(function)
    for attribute in vars(function) if hasattr(function, "__dict__") else ():
        if attribute != _DIRECTION and (attribute in _OF_OTHERS or nearest(attribute, [_DIRECTION])):
            raise UserError(
                f"metric '{name}' has {attribute}, which is not read; write {_DIRECTION} = True or {_DIRECTION} = False"
            )
    direction: object = getattr(function, _DIRECTION, True)
    if not isinstance(direction, bool):
        raise UserError(f"metric '{name}': {_DIRECTION} is {shown(direction)}; it must be True or False")
    return Metric(name, OwnRows(name, function), mean_of, higher_is_better=direction)


_DIRECTION = "higher_is_better"
_OF_OTHERS = ("lower_is_better", "greater_is_better", "maximize", "minimize", "mode")
"""What other libraries call the direction of a metric."""


def name_of(function: object) -> str:
    """What a user's function is called: of a `functools.partial` the name of its function."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return str(getattr(function, "__name__", type(function).__name__))


@dataclass(frozen=True)
class OwnRows:
    """What samples contribute to a user's metric: what its function returns for each of them."""

    name: str
    function: Callable[[Answer, Target], Tensor]

    def __call__(self, judged: Judged) -> Tensor:
        found = self.function(judged.answer, judged.target)
        if not isinstance(found, Tensor) or found.shape != judged.losses.shape:
            got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise UserError(f"it returned {got} for {len(judged.losses)} samples; it must return one number a sample")
        return found
