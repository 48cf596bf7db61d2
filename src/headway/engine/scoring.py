"""A model's outputs and losses in evaluation mode, sample by sample."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.engine.experiment import Experiment
from headway.engine.local_training import task_losses
from headway.engine.network import Buffers
from headway.vectors import Vector


def outputs(experiment: Experiment, w: Vector, buffers: Buffers, x: Tensor) -> Tensor:
    """The network's outputs for raw samples."""
    inputs = experiment.federation.inputs(x, experiment.dtype)
    with experiment.forward_precision():
        return experiment.network.evaluate(w, buffers, inputs).to(experiment.dtype)


def score(experiment: Experiment, w: Vector, buffers: Buffers, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(losses in float64, whether the largest logit is right) of each sample."""
    logits = outputs(experiment, w, buffers, x)
    targets = y.to(experiment.dtype) if y.is_floating_point() else y
    right = logits.argmax(1) == y if experiment.federation.classes else torch.zeros_like(y, dtype=torch.bool)
    return task_losses(logits, targets, experiment.squared).double(), right
