"""The server's model θ_t (never the lookahead) on the whole test set."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

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


def evaluate(world: World, model: Model) -> Scores:
    test, rules = world.federation.test, world.rules
    right: list[torch.Tensor] = []
    losses = 0.0
    for start in range(0, len(test), CHUNK):
        x, y = test.x[start : start + CHUNK].to(world.device), test.y[start : start + CHUNK].to(world.device)
        inputs = world.federation.inputs(x, rules.dtype)
        with torch.autocast(world.device.type, rules.autocast, enabled=rules.autocast is not None):
            logits = world.network.evaluate(model.theta, model.buffers, inputs)
        targets = y.to(rules.dtype) if y.is_floating_point() else y
        losses += float(per_sample(logits.to(rules.dtype), targets).double().sum())
        if world.federation.classes:
            right.append((logits.argmax(1) == y).cpu())
    loss = losses / len(test) if math.isfinite(losses) else None
    if not world.federation.classes:
        return Scores(loss, None, None, None)
    correct = torch.cat(right)
    per_client = world.mixes @ _by_class(correct, test.y, world.federation.classes)
    lowest = per_client.sort().values[: max(len(per_client) // 10, 1)]
    return Scores(loss, float(correct.double().mean()), float(per_client.std(unbiased=False)), float(lowest.mean()))


def _by_class(correct: torch.Tensor, labels: torch.Tensor, classes: int) -> torch.Tensor:
    """Accuracy of each class, shape (classes,); a class without test samples counts as 0."""
    hits = torch.zeros(classes, dtype=torch.float64).index_add_(0, labels, correct.double())
    return hits / torch.bincount(labels, minlength=classes).clamp(min=1)
