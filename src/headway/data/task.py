"""The task in words, for the line at the start of a run: what targets were taken for, the loss, the metrics."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.data import columns
from headway.data.federation import Federation
from headway.tasks.task import Task

_METRICS = {
    "rmse": "RMSE",
    "r2": "R²",
    "mae": "MAE",
    "bits_per_character": "bits a character",
    "exact_match": "exact match",
}


def task_in_words(federation: Federation, task: Task) -> str:
    """`classification of 10 classes, cross-entropy, accuracy`."""
    metrics = [_METRICS.get(metric.name, metric.name) for metric in task.metrics if metric.name != "loss"]
    if task.name == "regression":
        shape = columns.shapes(federation.train.y)
        subject = f"numbers of shape {shape}" if shape else "one number a sample"
        return f"{subject}, {task.loss_words}, {' and '.join(metrics)}, no accuracy"
    return f"{_subject(federation, task)}, {task.loss_words}, {', '.join(metrics)}"


def _subject(federation: Federation, task: Task) -> str:
    count = federation.classes
    of_classes = f" of {count} class{'es' if count != 1 else ''}" if count else ""
    return {
        "classification": f"classification{of_classes}",
        "tokens": f"tokens{of_classes}",
        "segmentation": f"segmentation{of_classes}",
        "multilabel": f"{federation.outputs} labels a sample",
        "binary": "yes or no a sample",
    }.get(task.name, "a task of your own")


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
