"""The server's model θ_t (never the lookahead) on the whole test set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.data.federation import Pool
from headway.engine.local import per_sample
from headway.engine.round import Model
from headway.engine.world import World

CHUNK = 1000


@dataclass(frozen=True)
class Scores:
    loss: float | None
    """None where it is no finite number."""
    accuracy: float | None
    """Share of test samples whose largest logit is right; None where targets are numbers."""
    client_accuracy_std: float | None
    """Spread over clients: the deviation of their accuracies, each on the test set weighted by its class mix."""
    client_accuracy_low: float | None
    """The mean of the lowest tenth of these."""
    global_loss: float | None
    """On all clients' data, where it is asked for."""


def _passes(world: World, model: Model, pool: Pool) -> Iterator[tuple[Tensor, Tensor]]:
    """(logits, targets) of a pool, chunk by chunk."""
    rules = world.rules
    for start in range(0, len(pool), CHUNK):
        x, y = pool.x[start : start + CHUNK].to(world.device), pool.y[start : start + CHUNK].to(world.device)
        inputs = world.federation.inputs(x, rules.dtype)
        with torch.autocast(world.device.type, rules.autocast, enabled=rules.autocast is not None):
            logits = world.network.evaluate(model.theta, model.buffers, inputs)
        yield logits.to(rules.dtype), y.to(rules.dtype) if y.is_floating_point() else y


def _global_loss(world: World, model: Model) -> float | None:
    """F(θ) = Σ_i p_i F_i(θ) over all clients' own samples."""
    losses = torch.cat([per_sample(logits, y).double().cpu() for logits, y in _passes(world, model, world.rules.pool)])
    loss = float((losses * world.sample_weights).sum())
    return loss if math.isfinite(loss) else None


def evaluate(world: World, model: Model) -> Scores:
    test = world.federation.test
    right: list[Tensor] = []
    losses = 0.0
    for logits, y in _passes(world, model, test):
        losses += float(per_sample(logits, y).double().sum())
        if world.federation.classes:
            right.append((logits.argmax(1) == y).cpu())
    loss = losses / len(test) if math.isfinite(losses) else None
    wanted = world.scenario.global_loss or world.method.keeps_best
    global_loss = _global_loss(world, model) if wanted else None
    if not world.federation.classes:
        return Scores(loss, None, None, None, global_loss)
    correct = torch.cat(right)
    per_client = world.mixes @ _by_class(correct, test.y, world.federation.classes)
    lowest = per_client.sort().values[: max(len(per_client) // 10, 1)]
    return Scores(
        loss, float(correct.double().mean()), float(per_client.std(unbiased=False)), float(lowest.mean()), global_loss
    )


def _by_class(correct: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Accuracy of each class, shape (classes,); a class without test samples counts as 0."""
    hits = torch.zeros(classes, dtype=torch.float64).index_add_(0, labels, correct.double())
    return hits / torch.bincount(labels, minlength=classes).clamp(min=1)
