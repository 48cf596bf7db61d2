"""Which classes each model knows, and how each local model does on the samples of each client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from headway.analysis.local_models import Model
from headway.engine.experiment import Experiment
from headway.engine.scoring import outputs

if TYPE_CHECKING:
    from headway.data.federation import Samples

CHUNK = 512
"""Samples in one pass."""


def right(experiment: Experiment, model: Model, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    """Whether a model has the class of each sample, and these classes."""
    found, classes = [], []
    with experiment.arithmetic():
        for start in range(0, len(samples), CHUNK):
            x, y = samples.read(slice(start, start + CHUNK))
            answer = outputs(experiment, model.w, model.buffers, x)
            assert isinstance(answer, torch.Tensor)
            assert isinstance(y, torch.Tensor)
            found.append((answer.argmax(1) == y).cpu().numpy())
            classes.append(y.cpu().numpy())
    return np.concatenate(found), np.concatenate(classes)


def by_class(experiment: Experiment, models: Sequence[Model], samples: Samples) -> np.ndarray:
    """The accuracy of each model on each class, shape (models, classes); nan of a class without samples."""
    count = experiment.federation.classes
    rows = []
    for model in models:
        correct, classes = right(experiment, model, samples)
        with np.errstate(invalid="ignore"):
            rows.append(np.bincount(classes, weights=correct, minlength=count) / np.bincount(classes, minlength=count))
    return np.array(rows)


def by_client(experiment: Experiment, models: Sequence[Model], clients: Sequence[int], most: int) -> np.ndarray:
    """The accuracy of each model on the training samples of each client, shape (models, clients).

    Of a client at most so many samples are looked at, evenly spread.
    """
    columns = []
    for client in clients:
        rows = torch.as_tensor(experiment.federation.clients[client])
        samples = experiment.samples.rows(rows.to(experiment.device)).spread(most)
        columns.append([right(experiment, model, samples)[0].mean() for model in models])
    return np.array(columns).T
