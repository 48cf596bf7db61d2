"""Adam's moments and their bias correction, which `adam` and `muon` share."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.vectors import Vector

NAMES = ("first", "second", "weight")


def zero_weight(model: Vector) -> Vector:
    """0 for each moment: the share of a mean's weights that stands for gradients seen, and not for its zero start."""
    zero = torch.zeros((), dtype=torch.float64, device=next(iter(model.leaves.values())).device)
    return Vector({"first": zero, "second": zero.clone()})


def advanced(weight: Vector, beta1: float, beta2: float) -> Vector:
    """1 − β^t → 1 − β^(t+1) for both moments."""
    share = weight.leaves
    return Vector({"first": beta1 * share["first"] + (1 - beta1), "second": beta2 * share["second"] + (1 - beta2)})


def moments(g: Tensor, m: Tensor, v: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    """(β₁m + (1−β₁)g, β₂v + (1−β₂)g²)."""
    return beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * (g * g)


def scaled(m: Tensor, v: Tensor, weight: Vector, eps: float) -> Tensor:
    """m̂/(√v̂ + ε), the moments divided by their weight."""
    first, second = (weight.leaves[name].to(m.dtype) for name in ("first", "second"))
    return (m / first) / ((v / second).sqrt() + eps)
