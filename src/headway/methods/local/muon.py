from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Annotated

import torch
from torch import Tensor

from headway.errors import UserError
from headway.methods.arguments import Among, Momentum, Rate, slot
from headway.methods.local import moments
from headway.methods.local.optimiser import Lifetime, Optimiser
from headway.methods.slots import State, Step
from headway.vectors import Vector

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b, c of x ← ax + bx³ + cx⁵, which brings singular values in (0, 1] near 1 (Jordan 2024)."""
ITERATIONS = 5


def orthogonalised(matrix: Tensor) -> Tensor:
    """The matrix with all singular values near 1, by Newton–Schulz: X ← aX + b(XXᵀ)X + c(XXᵀ)²X.

    Near is between 0.68 and 1.21 for singular values of at least 0.3 % of the matrix's Frobenius norm.
    """
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x: Tensor = matrix.mT if tall else matrix
    x = x / torch.linalg.vector_norm(x).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.mT if tall else x


@slot
class muon(Optimiser):
    """M ← μM + (1−μ)g ; w ← w − ηs·NS((1−μ)g + μM) for matrices, AdamW for all others: Muon (Jordan et al. 2024).

    NS is `orthogonalised`. A matrix is a parameter of two or more axes, the first against all others, that is neither
    an embedding nor, with `matrices="hidden"`, the last matrix of the model, its head. s is √max(1, rows/columns), or
    0.2·√max(rows, columns) with `scale="rms"`, the size of an AdamW step (Liu et al. 2025). Without `nesterov` it is
    NS(M). All others step with `others_rate` times η. M has a gradient's sign; weight decay is decoupled.

    `state` is what becomes of M and of AdamW's moments between rounds: `reset`, `keep` or `average`, as in `adam`.
    """

    momentum: Momentum = 0.95
    nesterov: bool = True
    matrices: Annotated[str, Among("hidden", "all")] = "hidden"
    scale: Annotated[str, Among("spectral", "rms")] = "spectral"
    others_rate: Rate = 1.0
    beta1: Momentum = 0.9
    beta2: Momentum = 0.95
    eps: Rate = 1e-8
    state: Lifetime = "reset"

    averaged = moments.NAMES
    _plain_wire = True

    def for_model(self, roles: Mapping[str, str]) -> muon:
        orthogonal = ("matrix",) if self.matrices == "hidden" else ("matrix", "head")
        found = frozenset(name for name, role in roles.items() if role in orthogonal)
        if not found:
            raise UserError(
                "muon: the model has no matrix to orthogonalise (its last one is taken for the head unless "
                "matrices=all); use another optimiser, such as adamw"
            )
        bound = copy.copy(self)
        object.__setattr__(bound, "_names", found)
        return bound

    def _is_matrix(self, name: str) -> bool:
        names: frozenset[str] = getattr(self, "_names", frozenset())
        assert names, "for_model says which parameters are matrices"
        return name in names

    def optimiser_state(self, model: Vector) -> State:
        second = {name: torch.zeros_like(leaf) for name, leaf in model.leaves.items() if not self._is_matrix(name)}
        return {"first": model.zeros(), "second": Vector(second), "weight": moments.zero_weight(model)}

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        weight = moments.advanced(memory["weight"], self.beta1, self.beta2)
        first, second, direction = {}, {}, {}
        for name, g in gradient.leaves.items():
            m = memory["first"].leaves[name]
            if self._is_matrix(name):
                first[name] = self.momentum * m + (1 - self.momentum) * g
                direction[name] = self._matrix_step(g, first[name])
            else:
                v = memory["second"].leaves[name]
                first[name], second[name] = moments.moments(g, m, v, self.beta1, self.beta2)
                direction[name] = self.others_rate * moments.scaled(first[name], second[name], weight, self.eps)
        return Vector(direction), {"first": Vector(first), "second": Vector(second), "weight": weight}

    def _matrix_step(self, g: Tensor, mean: Tensor) -> Tensor:
        """s·NS of the momentum, or of the mix of it and the gradient."""
        ahead = (1 - self.momentum) * g + self.momentum * mean if self.nesterov else mean
        flat = ahead.flatten(1)
        rows, columns = flat.shape
        size = math.sqrt(max(1.0, rows / columns)) if self.scale == "spectral" else 0.2 * math.sqrt(max(rows, columns))
        return (size * orthogonalised(flat)).reshape(g.shape)
