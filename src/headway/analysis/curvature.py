"""The largest eigenvalues of the loss's Hessian, by Lanczos' iteration on products with vectors (SciPy's `eigsh`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headway.analysis.local_models import Model
from headway.data.columns import Tensors
from headway.engine.experiment import Experiment
from headway.errors import UserError
from headway.vectors import Vector

if TYPE_CHECKING:
    from headway.data.federation import Samples


class HessianProduct:
    """v ↦ ∇²f(w) v for the mean loss f on some samples, in chunks, by differentiating twice."""

    def __init__(self, experiment: Experiment, model: Model, samples: Samples, chunk: int) -> None:
        self.experiment, self.model, self.chunk = experiment, model, chunk
        self.parts = [samples.read(slice(start, start + chunk)) for start in range(0, len(samples), chunk)]
        self.total = sum(float(self._weights(y).sum()) for _, y in self.parts)

    def _weights(self, y: Tensors) -> Tensor:
        """What each sample weighs: 1, or its tokens."""
        units = self.experiment.task.counts(self.experiment.targets(y))
        if units is not None:
            return units.to(self.experiment.dtype)
        leaf = y if isinstance(y, Tensor) else next(iter(y.values() if isinstance(y, dict) else y))
        assert isinstance(leaf, Tensor)
        return torch.ones(len(leaf), dtype=self.experiment.dtype, device=leaf.device)

    def _loss(self, w: Vector, x: Tensors, y: Tensors) -> Tensor:
        """The chunk's part of the mean loss."""
        experiment, targets = self.experiment, self.experiment.targets(y)
        answer = experiment.network.evaluate(w, self.model.buffers, experiment.federation.inputs(x, experiment.dtype))
        return (experiment.task.judged(answer, targets).losses * self._weights(y)).sum() / self.total

    def __call__(self, direction: Vector) -> Vector:
        found = direction.zeros()
        for x, y in self.parts:
            with torch.enable_grad():
                w = self.model.w.map(lambda leaf: leaf.detach().requires_grad_())
                leaves = list(w.leaves.values())
                slopes = torch.autograd.grad(
                    self._loss(w, x, y), leaves, create_graph=True, allow_unused=True, materialize_grads=True
                )
                along = sum((slope * part).sum() for slope, part in zip(slopes, direction.leaves.values(), strict=True))
                assert isinstance(along, Tensor)
                if not along.requires_grad:
                    continue  # a loss that is linear in the parameters
                bent = torch.autograd.grad(along, leaves, allow_unused=True, materialize_grads=True)
            found = found + found.with_leaves(part.detach() for part in bent)
        return found


def largest_eigenvalues(
    experiment: Experiment, model: Model, samples: Samples, count: int, chunk: int = 256
) -> list[float]:
    """The `count` algebraically largest eigenvalues of the loss's Hessian at a model, from the largest on."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    product, size = HessianProduct(experiment, model, samples, chunk), len(model.w)
    if count >= size:
        raise UserError(f"eigenvalues is {count}, but the model has {size} parameters; give less than that")
    device, kind = experiment.device, experiment.dtype

    def times(flat: np.ndarray) -> np.ndarray:
        direction = model.w.unflat(torch.as_tensor(flat.reshape(-1), dtype=kind, device=device))
        answer: np.ndarray = product(direction).flat().cpu().numpy().astype(np.float64)
        return answer

    operator = LinearOperator((size, size), matvec=times, dtype=np.float64)
    start = _start(size)
    exact = kind == torch.float64
    try:
        found = eigsh(operator, k=count, which="LA", v0=start, tol=1e-9 if exact else 1e-3, return_eigenvectors=False)
    except ArpackNoConvergence as fault:
        found = fault.eigenvalues
    except RuntimeError as fault:
        raise UserError(
            f"the loss of this network cannot be differentiated twice ({str(fault).splitlines()[0]}); leave out "
            "eigenvalues (--eigenvalues 0)"
        ) from fault
    return sorted((float(value) for value in found), reverse=True)


def _start(size: int) -> np.ndarray:
    """Where the iteration begins: the same for every model of a size, so that a repetition gives the same digits."""
    start: np.ndarray = np.cos(np.arange(1.0, size + 1.0) ** 2)
    return start
