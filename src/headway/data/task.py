"""The task in words, for the line at the start of a run: what targets were taken for, the loss, the metrics."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.data import columns
from headway.data.federation import Federation
from headway.tasks.metrics import in_words
from headway.tasks.task import Task


def task_in_words(federation: Federation, task: Task) -> str:
    """`classification of 10 classes, cross-entropy, accuracy`."""
    headline, *others = [in_words(metric.name) for metric in task.metrics]
    metrics = [f"{headline} (headline)", *others] if others else [headline] if headline != "loss" else []
    return ", ".join([_subject(federation, task), task.loss_words, *metrics])


def _subject(federation: Federation, task: Task) -> str:
    count = federation.classes
    of_classes = f" of {count} class{'es' if count != 1 else ''}" if count else ""
    shape = columns.shapes(federation.train.y)
    numbers = f"{federation.outputs} numbers" if shape else "one number"
    return {
        "classification": f"classification{of_classes}",
        "tokens": f"tokens{of_classes}",
        "segmentation": f"segmentation{of_classes}",
        "multilabel": f"{federation.outputs} labels a sample",
        "binary": "yes or no a sample",
        "regression": f"regression of {numbers} a sample",
    }.get(task.name, "a task of your own" if task.name == "own" else f"your own task '{task.name}'")


def doubt(federation: Federation) -> str | None:
    """A warning where targets that were taken for numbers may be classes; None where nothing suggests that."""
    y = federation.train.y
    if federation.classes or not isinstance(y, Tensor) or not _whole(y):
        return None
    is_binary = bool(((y == 0) | (y == 1)).all())
    found = "0 or 1" if is_binary else "whole numbers"
    if y[0].numel() == 1:
        named = "; if they are yes and no: task=binary" if is_binary else ""
        return (
            f"targets are all {found}, but of type {_type(y)}: they are learnt as numbers; if they are classes, give "
            f"whole numbers of shape (n,): y.long(){named}"
        )
    return (
        f"targets are all {found}: they are learnt as numbers; if a sample has one class, give it as a whole number; "
        "if it has several labels: task=multilabel"
    )


def _whole(y: Tensor) -> bool:
    """Whether no target has a fraction. Counts and grades have none either, so such targets are not refused."""
    return bool((y == torch.round(y)).all())


def _type(y: Tensor) -> str:
    return str(y.dtype).removeprefix("torch.")
