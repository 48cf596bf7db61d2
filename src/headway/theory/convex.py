"""Convex federated problems in float64: all clients at once, on parameters as flat vectors of shape (d,)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from headway.engine.experiment import Experiment
from headway.errors import UserError
from headway.methods.arguments import Weight, slot
from headway.methods.slots import Output, State, Step
from headway.tasks.task import cross_entropy
from headway.vectors import Vector

MOST_NUMBERS = 150_000_000
"""Numbers of all clients' samples, filled to the largest client: 1.2 GB in float64."""


class ConvexProblem(Protocol):
    """F = Σ_i p_iF_i of N clients, each F_i convex and smooth."""

    @property
    def shares(self) -> Tensor:
        """p_i, shape (N,), with Σp_i = 1."""

    @property
    def smoothness(self) -> float:
        """β: the largest curvature of any F_i, anywhere."""

    @property
    def strength(self) -> float:
        """μ: the least curvature of F, above 0."""

    def losses(self, at: Tensor) -> Tensor:
        """F_i(w) of all clients, shape (N,), at one point of shape (d,)."""

    def gradients(self, at: Tensor) -> Tensor:
        """∇F_i, shape (N, d): all at one point of shape (d,), or each at its own, shape (N, d)."""


@slot
class ridge:
    """+ μ/2 ‖w‖², gradient +μw: the L2 term as a part of the loss, where momentum sees it."""

    strength: Weight

    adds = True

    def value(self, w: Vector, output: Output | None, memory: State, step: Step) -> Tensor:
        return 0.5 * self.strength * w.square()

    def slope(self, w: Vector, memory: State, step: Step) -> Vector:
        return w * self.strength


@dataclass(frozen=True)
class Logistic:
    """L2-regularised logistic regression over C classes: F_i = mean cross-entropy + μ/2 ‖w‖²."""

    features: Tensor
    """Shape (N, n, d): samples, with a 1 behind for the bias; rows beyond a client's own are 0."""
    hits: Tensor
    """Shape (N, n, C): 1 at a sample's class; rows beyond a client's own are 0."""
    counts: Tensor
    """n_i, shape (N,)."""
    shares: Tensor
    strength: float
    smoothness: float

    @classmethod
    def of(cls, experiment: Experiment, strength: float) -> Logistic:
        """The clients of an experiment whose network `is_logistic`."""
        federation = experiment.federation
        largest, clients = int(federation.sizes.max()), len(federation.clients)
        width = int(np.prod(_shape(experiment))) + 1
        if clients * largest * (width + federation.classes) > MOST_NUMBERS:
            raise UserError(
                f"{clients} clients of up to {largest} samples are more than {MOST_NUMBERS:,} numbers; "
                "use smaller data or an equal split (--partition iid)"
            )
        features = torch.zeros(clients, largest, width, dtype=torch.float64)
        hits = torch.zeros(clients, largest, federation.classes, dtype=torch.float64)
        for client, rows in enumerate(federation.clients):
            x, y = federation.train.read(torch.as_tensor(rows))
            inputs = federation.inputs(x, torch.float64)
            assert isinstance(inputs, Tensor), "a linear network takes one tensor"
            assert isinstance(y, Tensor), "classes are one tensor"
            features[client, : len(rows), :-1] = inputs.flatten(1)
            features[client, : len(rows), -1] = 1
            hits[client, torch.arange(len(rows)), y] = 1
        counts = torch.as_tensor(np.asarray(federation.sizes), dtype=torch.float64)
        shares = torch.as_tensor(experiment.weights(range(clients))[0], dtype=torch.float64)
        # the Hessian of a softmax's loss in its logits is at most 1/2
        return cls(features, hits, counts, shares, strength, 0.5 * _largest(features, counts) + strength)

    def losses(self, at: Tensor) -> Tensor:
        logits = self.features @ self._matrix(at).mT
        each = torch.logsumexp(logits, -1) * self.hits.sum(-1) - (logits * self.hits).sum(-1)
        found: Tensor = each.sum(-1) / self.counts + 0.5 * self.strength * at.square().sum(-1)
        return found

    def gradients(self, at: Tensor) -> Tensor:
        matrix = self._matrix(at)
        slopes = torch.softmax(self.features @ matrix.mT, -1) * self.hits.sum(-1, keepdim=True) - self.hits
        found = slopes.mT @ self.features / self.counts[:, None, None]  # (N, C, d)
        return self._flat(found) + self.strength * at

    def _matrix(self, at: Tensor) -> Tensor:
        """(…, C, d) of (…, C·d): the weights as the network has them, row by row, then the biases."""
        classes, width = self.hits.shape[-1], self.features.shape[-1]
        rows = at[..., : classes * (width - 1)]
        weight = rows.reshape(*rows.shape[:-1], classes, width - 1)
        return torch.cat([weight, at[..., classes * (width - 1) :].unsqueeze(-1)], -1)

    def _flat(self, matrix: Tensor) -> Tensor:
        return torch.cat([matrix[..., :-1].flatten(-2), matrix[..., -1]], -1)


def is_logistic(experiment: Experiment) -> bool:
    """Whether the network is one linear layer with a bias, and the loss its cross-entropy."""
    modules = experiment.network.original.modules()
    layers = [
        layer for layer in modules if not list(layer.children()) and not isinstance(layer, nn.Flatten | nn.Identity)
    ]
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    sizes = [leaf.numel() for leaf in experiment.network.parameters.leaves.values()]
    one = len(linear) == len(layers) == 1 and sizes == [linear[0].weight.numel(), linear[0].out_features]
    return one and experiment.task.loss is cross_entropy and experiment.scenario.augmentation == "none"


def _shape(experiment: Experiment) -> tuple[int, ...]:
    shape = experiment.federation.sample_shape
    assert isinstance(shape, tuple), "a linear network takes one tensor"
    return shape


def _largest(features: Tensor, counts: Tensor) -> float:
    """The largest eigenvalue of any X_iᵀX_i/n_i: of the smaller of XXᵀ and XᵀX, which have the same ones."""
    wide = features.shape[1] <= features.shape[2]
    gram = features @ features.mT if wide else features.mT @ features
    return float((torch.linalg.eigvalsh(gram)[:, -1] / counts).max())


@dataclass(frozen=True)
class Minimum:
    """Where F is least, as far as a solver came, and how far from it that can be: F is μ-strongly convex."""

    at: Tensor
    least: float
    """A number that F* is not below: F − ‖∇F‖²/(2μ) at the point found."""
    error: float
    """How far the point can be from w*: ‖∇F‖/μ."""
    value: float
    """F at the point found, which F* is not above."""


def minimum(problem: ConvexProblem, start: Tensor) -> Minimum:
    """The minimum of F by L-BFGS, with the error that the gradient there leaves."""

    def of(point: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.from_numpy(point)
        return float(problem.shares @ problem.losses(at)), (problem.shares @ problem.gradients(at)).numpy()

    found = minimize(
        of,
        start.numpy(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 30_000, "ftol": 0, "gtol": 1e-8, "maxcor": 30},
    )
    value, slope = of(found.x)
    size = float(np.linalg.norm(slope))
    return Minimum(torch.from_numpy(found.x), value - size**2 / (2 * problem.strength), size / problem.strength, value)
