"""Scores of φ, what clients receive next, beside those of the model that is handed over."""

from __future__ import annotations

from typing import Any

import pytest

import headway as hw
from conftest import OTHERS, SMALL, experiment, played, refused
from headway.deploy.deployable import check
from headway.methods.spelling import method

NAMES = ("loss", "accuracy")


def curve(records: list[dict[str, Any]], name: str) -> list[float]:
    return [record[name] for record in records]


@pytest.mark.parametrize("spelled", ["fedavg", "fedavgm", "fedadam", "scaffold"])
def test_where_clients_start_at_the_model_both_are_the_same(spelled: str) -> None:
    records, _ = played(experiment(spelled, score_received=True))
    for name in NAMES:
        assert curve(records, name) == curve(records, f"received_{name}")


@pytest.mark.parametrize(
    ("ahead", "there"),
    [
        ("fedacg:lam=0.7,beta=0", "fedmom:momentum=0.7"),
        ("fedagm:lam=0.9,server_rate=0.7,beta=0+adamw:beta2=0.95,state=keep", "diloco"),
    ],
)
def test_the_score_of_a_lookahead_is_that_of_the_method_whose_model_it_is(ahead: str, there: str) -> None:
    """φ of FedACG is θ of FedMom, and φ of FedAGM with AdamW inside is θ of DiLoCo."""
    settings = {"rate": 0.01} if "adamw" in ahead else {}
    one, _ = played(experiment(ahead, score_received=True, **settings))
    other, _ = played(experiment(there, score_received=True, **settings))
    for name in NAMES:
        assert curve(one, f"received_{name}") == pytest.approx(curve(other, name), abs=1e-10)
    assert curve(one, "received_loss") != pytest.approx(curve(one, "loss"), abs=1e-6)


def test_what_the_wire_does_to_the_message_is_in_its_score() -> None:
    rounded = hw.Method(wire=hw.wire.Wire(down=hw.wire.quantised(2)), name="rounded")
    records, _ = played(experiment(rounded, score_received=True))
    assert curve(records, "received_loss") != pytest.approx(curve(records, "loss"), abs=1e-6)


@pytest.mark.parametrize("executor", OTHERS)
def test_executors_agree_and_the_run_is_the_same_without_it(executor: str) -> None:
    with_it, end = played(experiment("fedacg", score_received=True))
    without, same = played(experiment("fedacg"))
    others, _ = played(experiment("fedacg", score_received=True), executor)
    assert end.model.theta.flat().tolist() == same.model.theta.flat().tolist()
    assert not any(name.startswith("received") for record in without for name in record)
    assert curve(with_it, "received_loss") == pytest.approx(curve(others, "received_loss"), abs=1e-10)
    assert curve(with_it, "loss") == curve(without, "loss")


def test_sites_do_not_score_it() -> None:
    chosen = SMALL.changed(score_received=True)
    refused(lambda: check(method("fedacg"), chosen, 3, 2), "score_received", "sites and server judge the model")
