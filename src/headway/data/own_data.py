"""A user's own data, one dataset for each client and test data, joined as a `Federation`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from headway.data import columns
from headway.data.columns import Tensors
from headway.data.federation import ClientTests, Federation, Samples
from headway.data.held_out import one_after_another
from headway.data.own_samples import Padding, Reading, check_padded, check_padding, samples_of, type_of
from headway.data.own_tests import OwnClients, given_tests, named_clients
from headway.errors import UserError
from headway.tasks.task import IGNORED
from headway.trees import leaves_of

MOST_CLASSES = 1_000_000
"""The most classes: a network answers with one number for each, so larger labels are identifiers or numbers."""


def federate(clients: OwnClients, test: object, *, task: str = "auto", padding: Padding = None) -> Federation:
    """A federation of the user's own data: a dataset or pair (x, y) for each client, and test data.

    `test` is one set for all clients or one for each (`own_tests`); with None the test set is empty. `task` decides
    whether whole numbers are classes or numbers.
    """
    check_padding(padding)
    given = named_clients(clients)
    samples = [samples_of(one, Reading(name, padding)) for name, one in zip(given.names, given.datasets, strict=True)]
    check_padded(padding, samples[0])
    tests = given_tests(test, given, samples[0], padding)
    names, every = [*given.names, *tests.names], _of_one_length([*samples, *tests.sets], padding)
    for number, (name, one) in enumerate(zip(names, every, strict=True)):
        _check_task(one, task, name)
        _check_alike(name, one, every[0], apart=number >= len(samples))
    _check_tests_alike(tests.names, every[len(samples) :])
    every = [Samples(one.x, _targets(one.y, task)) for one in every]
    own, tested = every[: len(samples)], every[len(samples) :]
    train = _one_set(own)
    whole = _one_set(tested) if tested else train.rows(np.arange(0))
    by_client = None if tests.of is None else ClientTests(whole, one_after_another(tests.sizes(len(own))))
    return Federation(
        train=train,
        test=whole,
        clients=one_after_another(list(map(len, own))),
        classes=_classes(every),
        client_tests=by_client,
    )


def judged_by(given: object, federation: Federation, *, task: str, padding: Padding = None) -> Samples:
    """Further samples that a model of this federation can be judged by, in any form that a test set has."""
    what = "the data to evaluate"
    check_padding(padding)
    read = given if isinstance(given, Samples) else samples_of(given, Reading(what, padding))
    _check_task(read, task, what)
    samples = Samples(read.x, _targets(read.y, task))
    scaled = (federation.mean, federation.std) == (0.0, 1.0)
    _check_alike(what, samples, federation.train.rows(np.arange(1)), apart=scaled)
    classes = _classes([samples])
    if federation.classes and classes > federation.classes:
        raise UserError(f"{what} has the label {classes - 1}, but there are {federation.classes} classes")
    return samples


def _one_set(parts: list[Samples]) -> Samples:
    """Samples one set after another; a single set is not copied."""
    if len(parts) == 1:
        return parts[0]
    return Samples(_joined([one.inputs for one in parts]), _joined([one.y for one in parts]))


# ── all of them together ─────────────────────────────────────────────────────────────────────────────────────────────


def _of_one_length(every: list[Samples], padding: Padding) -> list[Samples]:
    """Samples of all clients in the same shape, where a padding is stated; else as they are."""
    if padding is None:
        return every
    inputs = _widened_sides([one.inputs for one in every], padding, "input")
    targets = _widened_sides([one.y for one in every], padding, "target")
    return [Samples(x, y) for x, y in zip(inputs, targets, strict=True)]


def _widened_sides(sides: list[Tensors], padding: Padding, role: str) -> list[Tensors]:
    """The inputs or the targets of all clients, each part as long as its longest."""
    parts = [columns.parts(side) for side in sides]
    for name in parts[0]:
        same = [one[name] for one in parts if name in one and one[name].dim() == parts[0][name].dim()]
        reading = Reading("the data of all clients together", padding)
        if len(same) < len(parts) or reading.fill(role, name) is None:
            continue  # what differs is refused later
        longest = [max(part.shape[axis] for part in same) for axis in range(1, same[0].dim())]
        for one in parts:
            one[name] = reading.widened(one[name], [len(one[name]), *longest], role, name)
    return [columns.of_form(side, one) for side, one in zip(sides, parts, strict=True)]


def _joined(sides: list[Tensors]) -> Tensors:
    every = [columns.parts(side) for side in sides]
    return columns.of_form(sides[0], {name: torch.cat([one[name] for one in every]) for name in every[0]})


# ── targets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


NUMERIC = ("regression", "binary", "multilabel")
"""The tasks whose targets are numbers."""


def _targets(y: Tensors, task: str) -> Tensors:
    """Targets in the type of the task: numbers as floats, classes as int64, which cross-entropy takes."""
    if not isinstance(y, Tensor) or y.is_floating_point():
        return y
    return y.float() if task in NUMERIC else y.long()


def for_task(federation: Federation, task: str) -> Federation:
    """Named data with the targets of a task: labels become numbers where it learns numbers."""
    y = federation.train.y
    if task not in NUMERIC or not isinstance(y, Tensor):
        return federation
    for samples, what in ((federation.train, "the training set"), (federation.test, "the test set")):
        _check_task(samples, task, what)
    if y.is_floating_point():
        return federation
    train, test = (Samples(one.x, _targets(one.y, task)) for one in (federation.train, federation.test))
    tests = federation.client_tests
    own = None if tests is None else ClientTests(Samples(tests.samples.x, _targets(tests.samples.y, task)), tests.rows)
    return replace(federation, train=train, test=test, classes=0, client_tests=own)


def _check_task(samples: Samples, task: str, what: str) -> None:
    """Refuse targets that the task does not learn."""
    y = samples.y
    if not isinstance(y, Tensor):
        if task != "own":
            raise UserError(f"{what} has several targets a sample; give a loss that reads them: task=my_loss")
    elif task in NUMERIC:
        wrong = y[(y != 0) & (y != 1)] if task != "regression" else y[:0]
        if wrong.numel():
            raise UserError(f"{what} has the target {wrong[0].item():g}; the targets of task {task} are 0 and 1")
    elif not y.is_floating_point():
        _check_labels(y, "tokens" if task == "auto" and samples.are_texts else task, what)
    elif task not in ("auto", "own"):
        found = type_of(y)
        raise UserError(f"{what} has targets of type {found}; task {task} takes classes: whole numbers, y.long()")


def _check_labels(y: Tensor, task: str, what: str) -> None:
    """Refuse labels that are not classes, and several a sample where no task says what they are."""
    if y.dim() != 1 and task in ("auto", "classification"):
        raise UserError(
            f"{what} has labels of shape {tuple(y.shape)}; give one label a sample, or say what is learnt: "
            "task='tokens', 'segmentation' or 'multilabel'"
        )
    if task == "own":
        return
    kept = y[y != IGNORED] if task in ("tokens", "segmentation") else y
    if kept.numel() and int(kept.min()) < 0:
        raise UserError(f"{what}: label {int(kept.min())} is out of range; labels are whole numbers from 0 on")
    if kept.numel() and int(kept.max()) >= MOST_CLASSES:
        raise UserError(
            f"{what}: label {int(kept.max())} is out of range; labels go from 0 to at most {MOST_CLASSES - 1:,}, "
            "one for each class (give numbers that are to be learnt as floats)"
        )


def _classes(every: list[Samples]) -> int:
    """One more than the largest label; 0 where targets are numbers, or several a sample."""
    targets = [one.y for one in every]
    whole = [y for y in targets if isinstance(y, Tensor) and not y.is_floating_point()]
    return int(max(int(y.max()) for y in whole)) + 1 if whole else 0


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


def _check_alike(what: str, samples: Samples, first: Samples, apart: bool = False) -> None:
    """Refuse samples and targets whose shape or kind is not client 0's: joining them would change their type silently.

    `apart`: they are not joined, so that bytes on one side and the same divided by 255 on the other are allowed.
    """
    for role, mine, its in (("samples", samples.inputs, first.inputs), ("targets", samples.y, first.y)):
        own, other = columns.parts(mine), columns.parts(its)
        if own.keys() != other.keys():
            raise UserError(f"{what} has {role} of {_names_of(own)}, client 0 of {_names_of(other)}; give all alike")
        for name, part in own.items():
            called = role + (f" '{name}'" if name else "")
            _check_shape(what, called, part, other[name])
            if role == "samples":
                _check_kind(what, called, part, other[name], apart)
            else:
                _check_targets(what, part, other[name])


def _check_tests_alike(names: list[str], tests: list[Samples]) -> None:
    """Refuse test sets of clients of which some have bytes and others numbers: they are joined."""
    for name, one in zip(names, tests, strict=True):
        for part, other in zip(leaves_of(one.inputs), leaves_of(tests[0].inputs), strict=True):
            if _kind(part) != _kind(other):
                raise UserError(
                    f"{name} has samples of type {type_of(part)}, {names[0]} of type {type_of(other)}; give all alike "
                    "(uint8 is divided by 255, other types are not)"
                )


def _names_of(parts: Mapping[str, object]) -> str:
    return "one tensor" if "" in parts else f"several ({', '.join(parts)})"


def _check_shape(what: str, called: str, part: Tensor, first: Tensor) -> None:
    if part.shape[1:] != first.shape[1:]:
        raise UserError(
            f"{what} has {called} of shape {tuple(part.shape[1:])}, client 0 of shape {tuple(first.shape[1:])}"
        )


def _check_kind(what: str, called: str, x: Tensor, first: Tensor, apart: bool) -> None:
    if _kind(x) != _kind(first) and not (apart and _both_scaled(x, first)):
        raise UserError(
            f"{what} has {called} of type {type_of(x)}, client 0 of type {type_of(first)}; give all alike"
            " (uint8 is divided by 255, other types are not)"
        )


def _check_targets(what: str, y: Tensor, first: Tensor) -> None:
    if y.is_floating_point() != first.is_floating_point():
        own, its = ("numbers" if one.is_floating_point() else "labels" for one in (y, first))
        raise UserError(
            f"{what} has {own} for targets ({type_of(y)}), client 0 has {its} ({type_of(first)}); give all alike"
        )


def _kind(samples: Tensor) -> str:
    """How samples are read: bytes are normalised, whole numbers are tokens, other numbers are taken as they are."""
    if samples.dtype == torch.uint8:
        return "bytes"
    return "numbers" if samples.is_floating_point() else "complex" if samples.is_complex() else "tokens"


def _both_scaled(*samples: Tensor) -> bool:
    """Whether some samples are bytes and the others numbers from 0 to 1, which are bytes divided by 255."""
    numbers = [x for x in samples if _kind(x) == "numbers"]
    return {_kind(x) for x in samples} == {"bytes", "numbers"} and all(x.min() >= 0 and x.max() <= 1 for x in numbers)
