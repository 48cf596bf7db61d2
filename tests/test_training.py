"""Real data is learnt: images, images by their writers, text and synthetic users, in every executor that takes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from conftest import played
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.methods.spelling import method
from headway.models.leaf import _Last
from headway.models.networks import Staged
from headway.random import built
from headway.scenario import scenario
from headway.trees import leaves_of

Folder = Callable[[str], Path]
TESTED = 500


def dropping() -> nn.Module:
    """BatchNorm and dropout for images of 28 × 28 and 62 classes."""
    return Staged(
        nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(288, 64), nn.BatchNorm1d(64), nn.ReLU()),
        nn.Sequential(nn.Dropout(0.2), nn.Linear(64, 62)),
    )


def reading() -> nn.Module:
    """LEAF's model for Shakespeare, with 32 units in one layer."""
    return Staged(nn.Embedding(80, 8), _Last(nn.LSTM(8, 32, batch_first=True)), nn.Linear(32, 80))


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    least: float
    """Accuracy after training; chance is less than half of it."""
    settings: dict[str, Any]
    module: Callable[[], nn.Module] | None = None

    def experiment(self, spelled: str, real_data: Folder, **settings: Any) -> Experiment:
        """The case on a part of the test set: 500 samples, evenly spaced."""
        data = self.name.split("/")[0].split(":")[0]
        folder = None if data == "synthetic" else str(real_data(data))
        chosen = scenario(self.name, **{**self.settings, "eval_every": 1000, "device": "cpu", **settings})
        model = built(self.module, 7, "test") if self.module else None
        return build(chosen.changed(data_dir=folder, eval_samples=TESTED), method(spelled), model=model)


CASES = {
    "cifar10": Case("cifar10/dir0.6/100x5%", 0.22, {"model": "cnn", "rounds": 6, "epochs": 1, "batch_size": 20}),
    "mnist by writer": Case("mnist/natural/100x10", 0.6, {"rounds": 4, "rate": 0.1}),
    "femnist": Case("femnist/natural/30x5", 0.25, {"rounds": 6, "epochs": 2}, dropping),
    "shakespeare": Case(
        "shakespeare/natural/40x4", 0.12, {"rounds": 4, "steps": 8, "batch_size": 20, "rate": 2.0}, reading
    ),
    "synthetic": Case("synthetic:1,1/natural/10", 0.3, {"rounds": 4, "epochs": 2, "rate": 0.05}),
}


@pytest.mark.parametrize("spelled", ["fedavg", "fedacg"])
@pytest.mark.parametrize("case", list(CASES))
def test_it_learns(case: str, spelled: str, real_data: Folder) -> None:
    """Far above chance, and the loss below that of guessing, after a few rounds."""
    made = CASES[case].experiment(spelled, real_data)
    records, _ = played(made, "serial")
    assert CASES[case].least > 2 / made.federation.classes
    assert records[-1]["accuracy"] > CASES[case].least
    assert records[-1]["loss"] < np.log(made.federation.classes)


def _distance(left: Any, right: Any) -> float:
    pairs: list[tuple[Tensor, Tensor]] = list(zip(leaves_of(left), leaves_of(right), strict=True))
    return max(float((one.double() - other.double()).abs().max()) for one, other in pairs)


@pytest.mark.parametrize("case", list(CASES))
def test_executors_agree(case: str, real_data: Folder) -> None:
    """Float64 within 1e-10 over two rounds of natural, unequal clients; BatchNorm and dropout included."""
    made = CASES[case].experiment("fedacg", real_data, precision="fp64", rounds=2, steps=3, batch_size=8)
    _, end = played(made, "serial")
    for executor in ("batched", "pool"):
        _, other = played(made, executor)
        assert _distance(end.model.theta, other.model.theta) < 1e-10
        if end.model.buffers:
            assert _distance(end.model.buffers, other.model.buffers) < 1e-10
