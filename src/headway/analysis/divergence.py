"""How far the local models lie from their mean, from each other and from where they began, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from headway.analysis.local_models import Model
from headway.engine.network import Buffers
from headway.vectors import Vector


def mean_of(models: Sequence[Model]) -> Model:
    """The mean of some models, each counted once."""
    w = models[0].w
    total = w.zeros()
    for model in models:
        total = total + model.w
    return Model(total / float(len(models)), mixed([1 / len(models)] * len(models), models))


def mixed(shares: Sequence[float], models: Sequence[Model]) -> Buffers:
    """The buffers of a mixture of models by these shares; those that count are rounded."""
    found = {}
    for name, like in models[0].buffers.items():
        rows = torch.stack([model.buffers[name].double() for model in models])
        value = torch.tensordot(torch.tensor(shares, dtype=torch.float64, device=rows.device), rows, dims=1)
        found[name] = (value if like.is_floating_point() else value.round()).to(like.dtype)
    return found


def by_layer(models: Sequence[Model], centre: Vector) -> dict[str, np.ndarray]:
    """‖θ_i − θ̄‖ / ‖θ̄‖ of each parameter, shape (models,): weight divergence from `centre`; nan where that is zero."""
    found = {}
    for name, middle in centre.leaves.items():
        length = float(middle.double().norm())
        away = [float((model.w.leaves[name] - middle).double().norm()) for model in models]
        found[name] = np.array(away) / length if length else np.full(len(away), np.nan)
    return found


def distances(points: Sequence[Vector]) -> np.ndarray:
    """‖a − b‖ of every two points, shape (points, points)."""
    return np.array([[float((one - other).norm(torch.float64)) for other in points] for one in points])
