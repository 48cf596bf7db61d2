"""The tasks that have a name, and a user's own."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from headway.errors import UserError, nearest
from headway.tasks import metrics as judged_by
from headway.tasks.named_metrics import metric_of, name_of
from headway.tasks.task import (
    Answer,
    Target,
    Task,
    binary_cross_entropy,
    counted,
    cross_entropy,
    one_hot_error,
    rows_of,
    squared_error,
    token_cross_entropy,
)

classification = Task("classification", cross_entropy, "cross-entropy", (judged_by.accuracy,))
squared_classification = Task(
    "classification", one_hot_error, "squared error to one-hot classes", (judged_by.accuracy,)
)
regression = Task("regression", squared_error, "squared error", (judged_by.loss, judged_by.rmse, judged_by.r2))
binary = Task("binary", binary_cross_entropy, "binary cross-entropy", (judged_by.label_accuracy,))
multilabel = Task(
    "multilabel", binary_cross_entropy, "binary cross-entropy", (judged_by.label_accuracy, judged_by.exact_match)
)
tokens = Task(
    "tokens",
    token_cross_entropy,
    "cross-entropy a token",
    (judged_by.perplexity, judged_by.bits, judged_by.accuracy),
    units=counted,
    class_axis=-1,
)
segmentation = Task("segmentation", cross_entropy, "cross-entropy a pixel", (judged_by.accuracy,), units=counted)

OwnTask = Task | Callable[[Answer, Target], Tensor]
"""A task of the user's own: its loss, or a whole `Task`."""

TASKS = {one.name: one for one in (classification, regression, binary, multilabel, tokens, segmentation)}


def task_of(given: OwnTask | str, metrics: Sequence[object] = (), squared: bool = False) -> Task:
    """A task by its name, as a user's loss or as it is; metrics that are given lead, the task's own follow."""
    task = squared_classification if squared and given == "classification" else _task(given)
    kind = task.name if task.name in TASKS else "own"
    named = [metric_of(one, kind) for one in metrics]
    names = [one.name for one in named]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"metrics has '{name}' twice")
    own = [one for one in (metric_of(one, kind) for one in task.metrics) if one.name not in names]
    return dataclasses.replace(task, metrics=(*named, *own) or (judged_by.loss,))


def _task(given: OwnTask | str) -> Task:
    if isinstance(given, Task):
        return given
    if isinstance(given, str):
        if given not in TASKS:
            raise UserError(f"there is no task '{given}'{nearest(given, TASKS)} (known: {', '.join(TASKS)})")
        return TASKS[given]
    if not callable(given) or inspect.isclass(given):
        raise UserError(
            f"task is of type {type(given).__name__}; give a name ({', '.join(TASKS)}), a loss f(output, target) that "
            "returns one number a sample, or a headway.Task"
        )
    return own(given)


def own(loss: Callable[[Answer, Target], Tensor]) -> Task:
    """A task with a user's loss f(output, target) → one number a sample, which is the headline."""
    name = name_of(loss)
    return Task("own", OwnLoss(name, loss), f"the loss '{name}'", (judged_by.loss,))


@dataclass(frozen=True)
class OwnLoss:
    """A user's loss, whose answer is checked."""

    name: str
    function: Callable[[Answer, Target], Tensor]

    def __call__(self, output: Answer, target: Target) -> Tensor:
        found = self.function(output, target)
        rows = rows_of(target)
        if not isinstance(found, Tensor) or found.shape != (rows,):
            got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise UserError(
                f"the loss '{self.name}' returned {got} for {rows} samples; it must return one number a sample, so "
                "with torch's losses write reduction='none' and take the mean over all axes but the first"
            )
        return found
