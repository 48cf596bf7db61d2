"""Whether a network and a task fit each other: one pass over two samples, before anything runs."""

from __future__ import annotations

import contextlib
import inspect

import torch
from torch import Tensor, nn

from headway.data import columns
from headway.data.federation import Federation, Samples
from headway.engine.network import Network
from headway.errors import NothingCounts, UserError, in_words
from headway.tasks.metrics import Answer
from headway.tasks.task import IGNORED, Task
from headway.trees import leaves_of, tree_map


def check_answer(network: Network, federation: Federation, task: Task, dtype: torch.dtype) -> None:
    """Refuse a model that does not take a sample, or whose answer the task has no loss for."""
    for samples, what in ((federation.train, "of the training samples"), (federation.test, "of the test samples")):
        check_counts(samples, task, what)
    answer = _answer(network, federation, dtype)
    if not leaves_of(answer) or not all(isinstance(part, Tensor) for part in leaves_of(answer)):
        raise UserError(f"the model answers with a {type(answer).__name__}; it must return tensors")
    if task.name in _CHECKS:
        if not isinstance(answer, Tensor):
            raise UserError(
                f"the model answers with a {type(answer).__name__} of {len(leaves_of(answer))} tensors; it must return "
                "one tensor, or a dictionary with 'logits' (or give a loss that reads several: task=my_loss)"
            )
        _CHECKS[task.name](answer, federation)
    targets = tree_map(lambda y: y.to(dtype) if y.is_floating_point() else y, _two(federation)[1])
    with torch.no_grad():
        judged = task.judged(tree_map(lambda part: part.to(dtype), answer), targets)
        for metric in task.metrics:
            rows = metric.rows_of(judged)
            with contextlib.suppress(ArithmeticError):  # of two samples alone it may not be defined
                metric.of(rows)


def check_counts(samples: Samples, task: Task, what: str) -> None:
    """Refuse samples without a token or pixel that counts: the mean over nothing is no number."""
    counts = task.counts(samples.y) if len(samples) else None
    if counts is not None and not counts.any():
        raise NothingCounts(f"no target {what} counts: all of them are {IGNORED}")


def _two(federation: Federation) -> tuple[columns.Tensors, columns.Tensors]:
    """Two samples of the test set, or its only one."""
    return federation.test.read(slice(2))


def _count(federation: Federation) -> int:
    """How many samples the pass is over."""
    return len(leaves_of(_two(federation)[1])[0])


def _answer(network: Network, federation: Federation, dtype: torch.dtype) -> Answer:
    sample = federation.inputs(_two(federation)[0], dtype)
    try:
        with torch.no_grad():
            return network.evaluate(network.parameters, network.buffers, sample)
    except Exception as fault:
        several = _inputs(network.original)
        if len(several) > 1 and isinstance(sample, Tensor):
            raise UserError(
                f"the model takes several inputs ({', '.join(several)}), and a sample is one tensor; give samples as "
                f"a tuple in that order or as a dictionary with these names"
            ) from fault
        own = not isinstance(fault, RuntimeError | ValueError | TypeError | IndexError)
        cause = in_words(fault) if own else (str(fault).splitlines() or [type(fault).__name__])[0]
        numbers = any(part.is_floating_point() for part in leaves_of(sample))
        advice = "" if numbers else " (whole numbers are taken as tokens; give features as float32)"
        raise UserError(
            f"the model does not take samples of shape {federation.sample_shape}: {cause}{advice}"
        ) from fault


def _inputs(module: nn.Module) -> list[str]:
    """The names of what a module cannot be called without."""
    parameters = inspect.signature(module.forward).parameters.values()
    return [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]


def _check_classes(answer: Tensor, federation: Federation) -> None:
    """One logit a class."""
    count = _count(federation)
    if answer.dim() != 2 or len(answer) != count or answer.shape[1] < federation.classes:
        raise UserError(
            f"the model answers {count} samples with shape {tuple(answer.shape)}, "
            f"but there are {federation.classes} classes"
        )


def _check_numbers(answer: Tensor, federation: Federation) -> None:
    """Refuse answers with more or fewer numbers than a target has, which would be broadcast against each other."""
    count = _count(federation)
    if answer.dim() == 0 or len(answer) != count or answer.numel() != count * federation.outputs:
        raise UserError(
            f"the model answers {count} samples with shape {tuple(answer.shape)}, but a target is "
            f"{federation.outputs} number{'s' if federation.outputs > 1 else ''}"
        )


def _check_tokens(answer: Tensor, federation: Federation) -> None:
    """Logits (batch, T, V) for targets (batch, T)."""
    y = _two(federation)[1]
    assert isinstance(y, Tensor)
    if answer.shape[:-1] != y.shape or answer.shape[-1] < federation.classes:
        raise UserError(
            f"the model answers {len(y)} samples with shape {tuple(answer.shape)}; for tokens {tuple(y.shape)} of "
            f"{federation.classes} kinds it must be {(*y.shape, federation.classes)}"
        )


def _check_pixels(answer: Tensor, federation: Federation) -> None:
    """Logits (batch, C, height, width) for targets (batch, height, width)."""
    y = _two(federation)[1]
    assert isinstance(y, Tensor)
    if answer.dim() < 2 or (answer.shape[0], *answer.shape[2:]) != y.shape or answer.shape[1] < federation.classes:
        raise UserError(
            f"the model answers {len(y)} samples with shape {tuple(answer.shape)}; for segments {tuple(y.shape)} of "
            f"{federation.classes} classes it must be {(y.shape[0], federation.classes, *y.shape[1:])}"
        )


_CHECKS = {
    "classification": _check_classes,
    "regression": _check_numbers,
    "binary": _check_numbers,
    "multilabel": _check_numbers,
    "tokens": _check_tokens,
    "segmentation": _check_pixels,
}
