"""Linear CKA: how alike the layers of two models answer the same samples, whatever their units are called.

Kornblith et al., Similarity of neural network representations revisited, 2019, Eq. 3 with a linear kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import numpy as np
import torch
from torch import Tensor, nn

from headway.analysis.local_models import Model
from headway.data.columns import Tensors
from headway.engine.experiment import Experiment


def linear_cka(one: Tensor, other: Tensor) -> float:
    """CKA of two layers' answers to the same n samples, of shapes (n, p) and (n, q); nan where one never changes."""
    return _alike(centred_gram(one), centred_gram(other))


def centred_gram(answers: Tensor) -> Tensor:
    """The centred answers' products X Xᵀ over their length ‖X Xᵀ‖, shape (n, n), in float64; nan of constant ones."""
    rows = answers.reshape(len(answers), -1).double()
    rows = rows - rows.mean(0)
    gram = rows @ rows.T
    found: Tensor = gram / gram.norm()
    return found


def _alike(one: Tensor, other: Tensor) -> float:
    return float((one * other).sum())


def layers_of(module: nn.Module) -> list[str]:
    """The layers that are compared: modules with a weight of two or more axes of their own, by their names."""
    return [
        name
        for name, child in module.named_modules()
        if name and any(part.dim() > 1 for part in child.parameters(recurse=False))
    ]


def grams(experiment: Experiment, model: Model, x: Tensors) -> dict[str, Tensor]:
    """`centred_gram` of each layer's answers to these raw samples, in evaluation mode."""
    module = experiment.network.module(model.w, model.buffers).to(experiment.device).eval()
    named = dict(module.named_modules())
    found: dict[str, Tensor] = {}

    def keep(name: str, answer: object) -> None:
        if isinstance(answer, Tensor) and answer.is_floating_point() and len(answer) == count:
            found[name] = centred_gram(answer).cpu()

    inputs = experiment.federation.inputs(x, experiment.dtype)
    parts = list(inputs.values()) if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple) else [inputs]
    count = len(parts[0])
    with ExitStack() as stack, torch.no_grad():
        for name in layers_of(module):
            handle = named[name].register_forward_hook(lambda _, __, answer, name=name: keep(name, answer))
            stack.callback(handle.remove)
        if isinstance(inputs, Mapping):
            module(**inputs)
        else:
            module(*parts)
    return found


def similarity(experiment: Experiment, models: Sequence[Model], x: Tensors) -> dict[str, np.ndarray]:
    """CKA of every two models by layer: symmetric matrices of shape (models, models)."""
    each = [grams(experiment, model, x) for model in models]
    layers = [name for name in each[0] if all(name in one for one in each)]
    return {name: np.array([[_alike(one[name], other[name]) for other in each] for one in each]) for name in layers}
