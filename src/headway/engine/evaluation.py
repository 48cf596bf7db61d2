"""The server's model θ_t (never the lookahead) on the test set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from headway.data.federation import Samples
from headway.engine.executor import Executor
from headway.engine.experiment import Experiment
from headway.engine.scoring import outputs
from headway.engine.scoring import score as score_samples
from headway.engine.server import GlobalState
from headway.errors import ServerDiverged, UserError

CHUNK = {"cpu": 1000, "cuda": 2500}
"""Samples that are scored at once, at most, by kind of device: on a GPU every chunk has costs of its own."""


@dataclass(frozen=True)
class Scores:
    loss: float
    accuracy: float | None
    """Share of test samples whose largest logit is right; None where targets are numbers."""
    rmse: float | None
    """√loss, where targets are numbers."""
    r2: float | None
    """1 − Σ(ŷ − y)²/Σ(y − ȳ)², where targets are numbers."""
    client_accuracy_std: float | None
    """Spread over clients: the deviation of their accuracies, each on the test set weighted by its class mix.

    None where no client has a class of the test set.
    """
    client_accuracy_low: float | None
    """The mean of the lowest tenth of these."""
    global_loss: float | None
    """On all clients' data, where it is asked for."""


def _scored(
    experiment: Experiment, state: GlobalState, samples: Samples, executor: Executor | None
) -> tuple[Tensor, Tensor]:
    """(losses, whether the largest logit is right) of each sample of a samples on the device, in order, on the host."""
    joint = experiment.network.joint
    size = _even(len(samples), CHUNK["cpu" if joint else experiment.device.type])
    own = None if joint else getattr(executor, "score", None)
    if own and len(samples) % size and experiment.scores_jointly:
        own = None  # its last chunk would be filled
    score = own or partial(score_samples, experiment)
    losses, right = [], []
    for start in range(0, len(samples), size):
        # what is captured takes whole chunks: a last one is filled with samples scored before, which count once
        first = min(start, len(samples) - size) if own else start
        part = slice(first, first + size)
        some, correct = score(state.theta, state.buffers, samples.x[part], samples.y[part])
        losses.append(some[start - first :])
        right.append(correct[start - first :])
    return torch.cat(losses).cpu(), torch.cat(right).cpu()


def _even(count: int, most: int) -> int:
    """The length of chunks of at most `most`, as few and as equal as can be."""
    return -(-count // -(-count // most))


def _global_loss(experiment: Experiment, state: GlobalState, executor: Executor | None, round: int) -> float:
    """F(θ) = Σ_i p_i F_i(θ) over all clients' own samples."""
    losses, _ = _scored(experiment, state, experiment.samples, executor)
    loss = float((losses * experiment.sample_weights).sum())
    if not math.isfinite(loss):
        raise _not_finite(experiment, state, losses, experiment.samples, "the clients' data", round)
    return loss


def _not_finite(
    experiment: Experiment, state: GlobalState, losses: Tensor, samples: Samples, where: str, round: int
) -> UserError:
    """Why losses are not finite numbers: the samples, their targets, or the model. Only then is anything looked at.

    A finite loss says enough: it is not one where a logit is NaN or +∞, or where that of the true class is −∞.
    """
    bad = torch.nonzero(~losses.isfinite()).flatten().to(samples.y.device)
    inputs = experiment.federation.inputs(samples.x[bad], experiment.dtype)
    for what, values in (("inputs", inputs), ("targets", samples.y[bad])):
        wrong = bad[~values.reshape(len(bad), -1).isfinite().all(1)]
        if len(wrong):
            return UserError(
                f"round {round}: in {where} the {what} of {_which(wrong, losses)} are not finite numbers; correct them "
                "or leave these samples out"
            )
    size = _even(len(samples), CHUNK["cpu" if experiment.network.joint else experiment.device.type])
    start = int(bad[0]) // size * size
    answers = outputs(experiment, state.theta, state.buffers, samples.x[start : start + size])
    fault = "loss is" if bool(answers[int(bad[0]) - start].isfinite().all()) else "model's outputs are"
    return ServerDiverged(
        f"round {round}: in {where} the {fault} not finite for {_which(bad, losses)}; {experiment.advice}"
    )


def _which(samples: Tensor, losses: Tensor) -> str:
    return f"{len(samples)} of {len(losses)} samples (the first is number {int(samples[0])})"


def evaluate(experiment: Experiment, state: GlobalState, executor: Executor | None = None, round: int = 0) -> Scores:
    """Scores of a model after a round, by the executor's own `score` where it has one.

    What is not a finite number has no score: it is refused, as it is in training.
    """
    test = experiment.federation.test
    losses, correct = _scored(experiment, state, experiment.test, executor)
    loss = float(losses.mean())
    if not math.isfinite(loss):
        raise _not_finite(experiment, state, losses, experiment.test, "the test set", round)
    wanted = experiment.scenario.global_loss or experiment.method.keeps_best
    global_loss = _global_loss(experiment, state, executor, round) if wanted else None
    if not experiment.federation.classes:
        return Scores(loss, None, *_regression(loss, test.y), None, None, global_loss)
    accuracy = float(correct.double().mean())
    per_client = _by_client(experiment.class_mixes, correct.numpy(), test.y.numpy())
    if not len(per_client):
        return Scores(loss, accuracy, None, None, None, None, global_loss)
    lowest = np.sort(per_client)[: max(len(per_client) // 10, 1)]
    return Scores(loss, accuracy, None, None, float(per_client.std()), float(lowest.mean()), global_loss)


def _regression(loss: float, y: Tensor) -> tuple[float, float | None]:
    """(RMSE, R²) of a mean squared error over all outputs; a constant target has no R²."""
    spread = float(y.double().reshape(len(y), -1).var(0, unbiased=False).mean())
    return math.sqrt(loss), 1 - loss / spread if spread > 0 else None


def _by_client(mixes: np.ndarray, correct: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Accuracies of clients: the classes' own, weighted by each client's mix over those that have test samples.

    In NumPy, on one thread: for so little, torch would wake one on every core.
    """
    classes = mixes.shape[1]
    counts = np.bincount(labels, minlength=classes)
    hits = np.bincount(labels, weights=correct, minlength=classes)
    seen = mixes * (counts > 0)
    judged = seen[seen.sum(1) > 0]
    accuracies: np.ndarray = (judged / judged.sum(1, keepdims=True) * (hits / np.maximum(counts, 1))).sum(1)
    return accuracies
