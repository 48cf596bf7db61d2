"""What local training forgets: the accuracy on classes that a client does not have, before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from headway.engine.evaluation import CHUNK
from headway.engine.network import Buffers
from headway.engine.scoring import outputs
from headway.records import Diagnostics
from headway.trees import row
from headway.vectors import Vector

if TYPE_CHECKING:
    from headway.engine.aggregate import TrainedClients
    from headway.engine.executor import RoundInput
    from headway.engine.experiment import Experiment


class Forgetting:
    """Counts what the received model and each local model get right in the test set, class by class.

    Each local model is judged as it arrives, so none is kept.
    """

    def __init__(self, experiment: Experiment, given: RoundInput) -> None:
        self.experiment, self.received = experiment, given.message["model"]
        self.labels = experiment.federation.test.labels.numpy()
        self.before = self._right(self.received, given.buffers)
        self.after: dict[int, list[float]] = {}
        """How many samples of each class a local model gets right, by the client's place in the cohort."""

    def take(self, places: Sequence[int], trained: TrainedClients) -> None:
        """Judge the local models of some clients."""
        for at, place in enumerate(places):
            delta = row(trained["fields"]["delta"], at)
            self.after[place] = self._right(self.received + delta, row(trained["buffers"], at)).tolist()

    def _right(self, w: Vector, buffers: Buffers) -> np.ndarray:
        """How many test samples of each class a model gets right, shape (classes,)."""
        experiment, size = self.experiment, CHUNK[self.experiment.device.type]
        right = []
        for start in range(0, len(experiment.test), size):
            x, y = experiment.test.read(slice(start, start + size))
            logits = outputs(experiment, w, buffers, x)
            assert isinstance(logits, torch.Tensor)
            assert isinstance(y, torch.Tensor)
            right.append(logits.argmax(1) == y)
        weights = torch.cat(right).cpu().double().numpy()
        return np.bincount(self.labels, weights=weights, minlength=experiment.federation.classes)

    def found(self, clients: Sequence[int], places: Sequence[int]) -> Diagnostics:
        """Accuracies on absent classes, over the clients at these places; nothing where no class is absent."""
        counts = np.bincount(self.labels, minlength=len(self.before))
        federation = self.experiment.federation
        have = np.stack([federation.class_counts(clients[place]) for place in places]) > 0
        absent = ~have & (counts > 0)
        rows = absent.any(1)
        if not rows.any():
            return {}
        after = np.array([self.after[place] for place in places])
        before = np.broadcast_to(self.before, after.shape)
        tested = (absent * counts).sum(1)[rows]
        fell = (before - after) / np.maximum(counts, 1)
        lacking = absent.sum(0)
        return {
            "absent_accuracy_before": float(((before * absent).sum(1)[rows] / tested).mean()),
            "absent_accuracy_after": float(((after * absent).sum(1)[rows] / tested).mean()),
            "forgetting_by_class": {
                str(kind): float((fell[:, kind] * absent[:, kind]).sum() / lacking[kind])
                for kind in np.flatnonzero(lacking)
            },
        }
