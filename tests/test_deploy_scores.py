"""A server without a test set: sites judge the model on samples that they hold out, and send sums alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from deployed import Deployment, Quiet, network
from headway.deploy.codes import Refused
from headway.deploy.coordinator import deploy
from headway.deploy.judging import sums_in
from headway.deploy.replay import gap, replay
from headway.deploy.terms import Terms
from headway.deploy.transport import Faults
from headway.errors import MachineError, UserError
from headway.runs.result import Result


def without_test(deployment: Deployment, **terms: Any) -> tuple[Result, Result]:
    """A deployment whose server has no samples, and its simulation."""
    app = replace(deployment.server, test=None, sample=(6,), classes=3)
    given = replace(deployment.terms, **terms)
    result = deploy(app, deployment.transport, given, observer=Quiet(), clock=deployment.clock)
    return result, replay(
        app, deployment.data["clients"], deployment.out, out=deployment.place / "same", observer=Quiet()
    )


@pytest.mark.parametrize(
    ("net", "buffers"),
    [("norm_free", "refuse"), ("batch_norm_dropout", "average"), ("batch_norm_dropout", "keep-local")],
)
def test_scores_of_the_sites_are_those_of_all_samples_that_they_hold_out(
    tmp_path: Path, net: str, buffers: str
) -> None:
    settings = {"client_test": 0.3, "metrics": "accuracy,top2", "buffers": buffers}
    deployment = Deployment(tmp_path, "scaffold", net, settings=settings)
    deployed, simulated = without_test(deployment)
    assert gap(deployment.out, simulated) == 0.0
    of_clients = ("client_mean", "client_std", "client_worst")
    of_all = ("loss", "accuracy", "top2", "accuracy_smoothed")
    for mine, theirs in zip(deployed.records, simulated.records, strict=True):
        # a simulation judges all samples together by statistics of their batches, sites judge theirs by their own
        for name in of_clients if buffers == "keep-local" else (*of_all, *of_clients):
            assert mine[name] == pytest.approx(theirs[name], rel=1e-12), name  # type: ignore[literal-required]
    for _, _, reply in deployment.seen:
        if reply.kind == "scored":
            assert not reply.arrays
            assert json.loads(str(reply.values["sums"])).keys() == {"loss", "metric/accuracy", "metric/top2"}


def test_numbers_are_learnt_and_judged_at_sites_too(tmp_path: Path) -> None:
    settings = {"client_test": 0.3, "metrics": "rmse,mae,r2", "rate": 0.01}
    deployment = Deployment(tmp_path, "fedavg", settings=settings, model=lambda: nn.Linear(6, 1))
    for name, app in deployment.apps.items():
        x, y = app.data  # type: ignore[misc]
        deployment.apps[name] = replace(app, data=(x, np.asarray(y, np.float64)))
    deployment.data["clients"] = [app.data for app in deployment.apps.values()]
    app = replace(deployment.server, test=None, sample=(6,), classes=0)
    deployed = deploy(app, deployment.transport, deployment.terms, observer=Quiet(), clock=deployment.clock)
    simulated = replay(app, deployment.data["clients"], deployment.out, observer=Quiet())
    assert gap(deployment.out, simulated) == 0.0
    for mine, theirs in zip(deployed.records, simulated.records, strict=True):
        assert mine["rmse"] == pytest.approx(theirs["rmse"], rel=1e-12)
        assert "r2" not in mine  # it does not follow from sums


def test_a_replay_plays_the_method_of_the_run(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "scaffold")
    deployment.run()
    same = replay(
        replace(deployment.server, method="fedavg"), deployment.data["clients"], deployment.out, observer=Quiet()
    )
    assert same.method == "scaffold"
    assert gap(deployment.out, same) == 0.0


def test_a_server_without_samples_that_holds_none_out_has_no_scores(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "fedavg", settings={"eval_every": 2})
    app = replace(deployment.server, test=None, sample=(6,), classes=3)
    result = deploy(app, deployment.transport, deployment.terms, observer=Quiet(), clock=deployment.clock)
    assert all("loss" not in record and "train_loss" in record for record in result.records)
    assert {kind for _, asked, _ in deployment.seen for kind in [asked.kind]} == {"census", "round"}
    assert result.summary["rounds"] == 4


def test_the_loss_on_all_data_is_asked_of_the_sites(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "fedavg", settings={"global_loss": True})
    deployed, simulated = deployment.run(), deployment.replayed()
    for mine, theirs in zip(deployed.records, simulated.records, strict=True):
        assert mine["global_loss"] == pytest.approx(theirs["global_loss"], rel=1e-12)
        assert mine["accuracy"] == theirs["accuracy"]


def test_fednag_hands_over_the_iterate_of_least_loss_and_needs_everybody(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "fednag", terms=Terms(sites=4, deadline=60.0, quorum=4))
    deployed, simulated = deployment.run(), deployment.replayed()
    assert gap(deployment.out, simulated) == 0.0
    assert deployed.records[-1]["global_loss"] == pytest.approx(simulated.records[-1]["global_loss"], rel=1e-12)
    pairs = zip(deployed.model.state_dict().values(), simulated.model.state_dict().values(), strict=True)
    assert all(bool((mine == theirs).all()) for mine, theirs in pairs)
    with pytest.raises(UserError, match="fednag needs every site in every round, and the quorum is 3 of 4"):
        deployment.run(resume=True, quorum=3)


def test_fednag_stops_where_a_site_does_not_tell_its_loss(tmp_path: Path) -> None:
    lost = Faults(lost_answers=frozenset({("node-s1", 2)}))
    deployment = Deployment(tmp_path, "fednag", terms=Terms(sites=4, deadline=60.0, quorum=4), faults=lost)
    with pytest.raises(MachineError, match="round 1: not every site told the loss"):
        deployment.run()
    assert len(deployment.run(resume=True).records) == 4


@pytest.mark.parametrize("text", ["", "[]", "{", '{"loss": 1}', '{"loss": [1, 0]}', '{"loss": [NaN, 1]}', "[" * 9999])
def test_sums_are_pairs_of_finite_numbers(text: str) -> None:
    with pytest.raises(Refused, match="BAD_REPLY"):
        sums_in(text) if text != "[]" else sums_in('{"a": []}')


def test_a_form_is_needed_where_there_is_no_test_set(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    app = replace(deployment.server, test=None, model=network("norm_free"))
    with pytest.raises(UserError, match=r"the server has no test set; give test=…, or sample=\(…\) and classes=…"):
        deploy(app, deployment.transport, deployment.terms, observer=Quiet(), clock=deployment.clock)


@pytest.mark.parametrize("task", ["tokens", "segmentation", "multilabel"])
def test_a_task_whose_targets_have_a_shape_needs_a_test_set_at_the_server(tmp_path: Path, task: str) -> None:
    deployment = Deployment(tmp_path, settings={"task": task})
    app = replace(deployment.server, test=None, sample=(6,), classes=3)
    with pytest.raises(UserError, match=f"the task is {task}, and sample=… does not say what its targets look like"):
        deploy(app, deployment.transport, deployment.terms, observer=Quiet(), clock=deployment.clock)
