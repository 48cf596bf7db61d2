"""The problem that the references train on: softmax regression on clients of unequal size, batch after batch.

Parameters are one array of length C·F + C: the weight matrix row by row, then the bias.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
Trace = list[dict[str, Array]]
"""One entry for each round: `theta` after it, and the server's state by its letter in the paper."""


def softmax_loss(w: Array, x: Array, y: Array) -> float:
    """Mean over the batch of −log softmax(Wx + b)[y]."""
    logits = _logits(w, x)
    shifted = logits - logits.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(y)), y]))


def softmax_gradient(w: Array, x: Array, y: Array) -> Array:
    """(1/B) Σ (softmax(Wx + b) − e_y) ⊗ (x, 1)."""
    logits = _logits(w, x)
    grown = np.exp(logits - logits.max(1, keepdims=True))
    residual = grown / grown.sum(1, keepdims=True)
    residual[np.arange(len(y)), y] -= 1
    residual /= len(y)
    return np.concatenate([(residual.T @ x).ravel(), residual.sum(0)])


def _logits(w: Array, x: Array) -> Array:
    features = x.shape[1]
    classes = len(w) // (features + 1)
    return x @ w[: classes * features].reshape(classes, features).T + w[classes * features :]


@dataclass(frozen=True)
class Problem:
    """Data, batches and the settings of local training, all as plain numbers."""

    x: Array
    y: Array
    clients: list[Array]
    """The rows of (x, y) that each client owns."""
    cohorts: list[list[int]]
    """S_t for t = 1, 2, …"""
    batches: dict[tuple[int, int], list[Array]]
    """The rows of each local batch by (t, i); a partial batch is shorter."""
    batch_size: int
    start: Array
    """θ⁰."""
    rate: float
    rate_decay: float
    rate_decay_epoch: float
    weight_decay: float
    clip: float
    """0: none."""
    by_size: bool
    """Weights proportional to n_i, else uniform."""

    def gradient(self, w: Array, rows: Array) -> Array:
        return softmax_gradient(w, self.x[rows], self.y[rows])

    def rounds(self) -> Iterator[tuple[int, list[int]]]:
        yield from enumerate(self.cohorts, 1)

    def size(self, client: int) -> float:
        return float(len(self.clients[client])) if self.by_size else 1.0

    def share(self, client: int) -> float:
        """p_i: n_i/Σ_N n, or 1/N."""
        return self.size(client) / sum(self.size(other) for other in range(len(self.clients)))

    def mean(self, values: dict[int, Array]) -> Array:
        """Σ_S ω_i v_i with ω_i = n_i/Σ_S n, or 1/|S|."""
        total = sum(self.size(client) for client in values)
        return np.sum([self.size(client) / total * value for client, value in values.items()], axis=0)

    def round_rate(self, t: int) -> float:
        """η_t = η d^(t−1)."""
        return self.rate * self.rate_decay ** (t - 1)

    def steps(self, t: int, client: int) -> Iterator[tuple[Array, float]]:
        """(rows, η) of each local step: η d^(t−1) d_e^e in the local epoch e."""
        in_epoch = int(np.ceil(len(self.clients[client]) / self.batch_size))
        for number, rows in enumerate(self.batches[t, client]):
            yield rows, self.round_rate(t) * self.rate_decay_epoch ** (number // in_epoch)

    def rate_sum(self, t: int, client: int) -> float:
        """Σ_k η_k, which is ηK for a constant rate."""
        return sum(rate for _, rate in self.steps(t, client))

    def clipped(self, gradient: Array) -> Array:
        """g · min(1, c/(‖g‖ + 1e-6))."""
        if not self.clip:
            return gradient
        return gradient * min(1.0, self.clip / (float(np.sqrt(gradient @ gradient)) + 1e-6))

    def descend(
        self,
        t: int,
        client: int,
        start: Array,
        loss_gradient: Callable[[Array, Array], Array] | None = None,
        rule: Callable[[Array, Array, Array, float], Array] | None = None,
    ) -> Array:
        """K_i local steps w ← w − η(u + λw): g = loss_gradient(w, rows), clipped, then u = rule(w, g, rows, η)."""
        loss_gradient = loss_gradient or self.gradient
        w = start
        for rows, rate in self.steps(t, client):
            direction = self.clipped(loss_gradient(w, rows))
            if rule is not None:
                direction = rule(w, direction, rows, rate)
            w = w - rate * (direction + self.weight_decay * w)
        return w
