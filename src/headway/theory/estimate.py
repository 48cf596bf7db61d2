"""Constants of the losses of any network, estimated at several points: the largest that was met, not a bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.engine.experiment import Experiment
from headway.engine.network import Buffers
from headway.engine.scoring import outputs
from headway.random import generator

Point = tuple[Tensor, Buffers]
"""Parameters as a flat vector of shape (d,), and the buffers of the network there."""

CHUNK = 500
"""Samples in one pass."""
ITERATIONS, BATCHES = 12, 4
"""Of the power iteration, and batches of a client whose gradients are compared with its whole one."""


@dataclass(frozen=True)
class Estimates:
    """What was met at some points of the parameters, over all clients; every number is the largest over points."""

    smoothness: float
    """β or L: the largest curvature of any F_i that was looked at, in size; a power iteration stays below it."""
    lipschitz: float
    """ρ or G: the largest ‖∇F_i‖."""
    delta: float
    """δ = Σ_i p_iδ_i, where δ_i is the largest ‖∇F_i − ∇F‖ of client i."""
    dissimilarity: float
    """The largest ‖∇F_i − ∇F‖ of any client."""
    sigma: float
    """σ: the root of the mean ‖g − ∇F_i‖² over batches."""
    sigma_g: float
    """σ_g: the root of the mean ‖∇F_i − ∇F‖² over clients; with it B = 1."""
    loss: float
    """F at the first point: the distance to F* is at most this, as no loss is below 0."""
    points: int
    looked_at: int
    """Clients whose curvature and batches were looked at, evenly spread."""


class _Losses:
    """F_i with its L2 term, and what derives from it, on flat parameters."""

    def __init__(self, experiment: Experiment, buffers: Buffers) -> None:
        self.experiment, self.buffers, self.strength = experiment, buffers, experiment.scenario.weight_decay

    def slope(self, rows: np.ndarray, at: Tensor) -> tuple[float, Tensor]:
        """Value and gradient of the mean loss over some rows."""
        value, slope = 0.5 * self.strength * float(at.square().sum()), self.strength * at
        for part in self._parts(rows):
            point = at.detach().requires_grad_()
            with torch.enable_grad():
                loss = self._loss(part, point, len(rows))
                slope = slope + torch.autograd.grad(loss, point)[0]
            value += float(loss)
        return value, slope

    def curvature(self, rows: np.ndarray, at: Tensor, direction: Tensor) -> float:
        """The largest eigenvalue of the Hessian in size, from below, by a power iteration from a direction."""
        size = 0.0
        for _ in range(ITERATIONS):
            direction = direction / direction.norm()
            product = self._product(rows, at, direction)
            size = float(product.norm())
            if size == 0 or not math.isfinite(size):
                break
            direction = product
        return size

    def _product(self, rows: np.ndarray, at: Tensor, direction: Tensor) -> Tensor:
        """∇²F_i · direction."""
        product = self.strength * direction
        for part in self._parts(rows):
            point = at.detach().requires_grad_()
            with torch.enable_grad():
                (slope,) = torch.autograd.grad(self._loss(part, point, len(rows)), point, create_graph=True)
                product = product + torch.autograd.grad(slope @ direction, point)[0]
        return product

    def _parts(self, rows: np.ndarray) -> list[np.ndarray]:
        return [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]

    def _loss(self, rows: np.ndarray, at: Tensor, total: int) -> Tensor:
        """The part of some rows in a mean over `total` of them."""
        experiment = self.experiment
        x, y = experiment.samples.read(torch.as_tensor(rows, device=experiment.device))
        answer = outputs(experiment, experiment.network.parameters.unflat(at), self.buffers, x)
        losses: Tensor = experiment.task.loss(answer, experiment.targets(y))
        return losses.sum() / total


def estimate(experiment: Experiment, points: Sequence[Point], look_at: int) -> Estimates:
    """The constants of an experiment's clients at some points; F has the weight decay as an L2 term.

    Networks are in evaluation mode: dropout is off, and BatchNorm uses the statistics of the point.
    """
    federation = experiment.federation
    everybody = [np.asarray(rows) for rows in federation.clients]
    shares = torch.as_tensor(experiment.weights(range(len(everybody)))[0])
    looked_at = np.unique(np.linspace(0, len(everybody) - 1, min(look_at, len(everybody))).astype(int))
    deltas = torch.zeros(len(everybody), dtype=torch.float64)
    lipschitz = smoothness = sigma = sigma_g = 0.0
    first: float | None = None
    with experiment.arithmetic():
        for number, (at, buffers) in enumerate(points):
            losses = _Losses(experiment, buffers)
            values, slopes = _everywhere(losses, everybody, at)
            whole = sum(float(share) * slope for share, slope in zip(shares, slopes, strict=True))
            assert isinstance(whole, Tensor)
            first = float(shares @ values) if first is None else first
            apart = torch.tensor([float((slope - whole).norm()) for slope in slopes], dtype=torch.float64)
            deltas = torch.maximum(deltas, apart)
            lipschitz = max(lipschitz, *(float(slope.norm()) for slope in slopes))
            sigma_g = max(sigma_g, float(shares @ apart.square()))
            for client in map(int, looked_at):
                draw = generator(experiment.scenario.seed, "theory", number, client)
                start = torch.as_tensor(draw.standard_normal(len(at)), dtype=at.dtype, device=at.device)
                smoothness = max(smoothness, losses.curvature(everybody[client], at, start))
                sigma = max(sigma, _variance(losses, everybody[client], at, slopes[client], draw))
    assert first is not None, "there is at least one point"
    return Estimates(
        smoothness=smoothness,
        lipschitz=lipschitz,
        delta=float(shares @ deltas),
        dissimilarity=float(deltas.max()),
        sigma=math.sqrt(sigma),
        sigma_g=math.sqrt(sigma_g),
        loss=first,
        points=len(points),
        looked_at=len(looked_at),
    )


def _everywhere(losses: _Losses, everybody: Sequence[np.ndarray], at: Tensor) -> tuple[Tensor, list[Tensor]]:
    """F_i and ∇F_i of all clients at a point."""
    found = [losses.slope(rows, at) for rows in everybody]
    return torch.tensor([value for value, _ in found], dtype=torch.float64), [slope for _, slope in found]


def _variance(losses: _Losses, rows: np.ndarray, at: Tensor, whole: Tensor, draw: np.random.Generator) -> float:
    """The mean ‖g − ∇F_i‖² over some batches of a client; 0 where a batch holds all its samples."""
    size = losses.experiment.scenario.batch_size
    if size >= len(rows):
        return 0.0
    drawn = [draw.choice(rows, size, replace=False) for _ in range(BATCHES)]
    return sum(float((losses.slope(batch, at)[1] - whole).square().sum()) for batch in drawn) / BATCHES
