"""The line at the start of a run that says what is learnt: what targets were taken for, the loss, the measures."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.data.federation import Federation


def task_in_words(federation: Federation, squared: bool = False) -> str:
    """`classification of 10 classes, cross-entropy, accuracy`. `squared`: classes are learnt by squared error."""
    if federation.classes:
        plural = "es" if federation.classes != 1 else ""
        loss = "squared error to one-hot classes" if squared else "cross-entropy"
        return f"classification of {federation.classes} class{plural}, {loss}, accuracy"
    shape = tuple(federation.train.y.shape[1:])
    numbers = f"numbers of shape {shape}" if shape else "one number a sample"
    return f"{numbers}, squared error, RMSE and R², no accuracy"


def doubt(federation: Federation) -> str | None:
    """A warning where targets that were taken for numbers may be classes; None where nothing suggests that."""
    y = federation.train.y
    if federation.classes or not _whole(y):
        return None
    found = "0 or 1" if bool(((y == 0) | (y == 1)).all()) else "whole numbers"
    if y[0].numel() == 1:
        return (
            f"targets are all {found}, but of type {_type(y)}: they are learnt as numbers; if they are classes, give "
            "whole numbers of shape (n,): y.long()"
        )
    return (
        f"targets are all {found}: they are learnt as numbers; if a sample has one class, give it as a whole number; "
        "several labels a sample are learnt by squared error only"
    )


def _whole(y: Tensor) -> bool:
    """Whether no target has a fraction. Counts and grades have none either, so such targets are not refused."""
    return bool((y == torch.round(y)).all())


def _type(y: Tensor) -> str:
    return str(y.dtype).removeprefix("torch.")
