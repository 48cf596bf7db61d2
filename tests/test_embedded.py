"""Every method with its shipped defaults on the embedded data: 20 rounds, the same model in every executor."""

from __future__ import annotations

import pytest

from conftest import EXECUTORS, played
from headway.engine.building import build
from headway.methods.catalogue import METHODS
from headway.methods.spelling import method
from headway.scenario import Scenario
from methods_under_test import sampled

EMBEDDED = Scenario(rounds=20, participation=0.05, model="mlp", steps=2, precision="fp64", device="cpu", eval_every=20)


@pytest.mark.parametrize("name", sampled(METHODS))
def test_twenty_rounds_end_at_the_same_model_in_every_executor(name: str) -> None:
    experiment = build(EMBEDDED, method(name))
    ends = {executor: played(experiment, executor) for executor in EXECUTORS}
    records, progress = ends["serial"]
    assert records[-1]["accuracy"] > 0.15
    theta = progress.model.theta.flat()
    for other in ("batched", "pool"):
        assert float((ends[other][1].model.theta.flat() - theta).abs().max()) < 1e-10 * float(theta.abs().max())
