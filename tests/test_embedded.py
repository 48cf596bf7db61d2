"""Every method with its shipped defaults on the embedded data: 20 rounds, the same model in every executor."""

from __future__ import annotations

import pytest

from conftest import OTHERS, played
from headway.engine.building import build
from headway.methods.catalogue import METHODS
from headway.methods.spelling import method
from headway.scenario import Scenario

EMBEDDED = Scenario(rounds=20, participation=0.05, model="mlp", steps=2, precision="fp64", device="cpu", eval_every=20)


POOLED = ("fedacg", "scaffold", "moon", "gradma", "fedpaq", "mimelite", "fedinit")
"""Methods that are played in worker processes too; these run serial's own function, and starting them takes long."""
PLAYED = (*POOLED, "fedavg", "feddyn", "fednag", "fedadam", "mifa", "fedmlb", "feddc", "csgd")
"""One for each form of state, message and pass; all others are in `make soak`, and in `test_executors` in small."""


def ends(name: str, *executors: str) -> None:
    experiment = build(EMBEDDED, method(name))
    found = {executor: played(experiment, executor) for executor in ("serial", *executors)}
    records, progress = found["serial"]
    assert records[-1]["accuracy"] > 0.15
    theta = progress.model.theta.flat()
    for other in executors:
        assert float((found[other][1].model.theta.flat() - theta).abs().max()) < 1e-10 * float(theta.abs().max())


@pytest.mark.parametrize("name", PLAYED)
def test_twenty_rounds_end_at_the_same_model(name: str) -> None:
    ends(name, "batched", *(["pool"] if name in POOLED else []))


@pytest.mark.soak
@pytest.mark.parametrize("name", METHODS)
def test_twenty_rounds_end_at_the_same_model_in_every_executor(name: str) -> None:
    ends(name, *OTHERS)
