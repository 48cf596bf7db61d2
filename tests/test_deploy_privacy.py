"""A private method over sites: noise that nobody can draw again, and nothing of a client past the clipping."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from deployed import Deployment, assert_same
from headway.deploy.replay import gap
from headway.errors import UserError

UNIFORM: dict[str, object] = {"weights": "uniform", "rounds": 3}


def test_clipping_alone_is_that_of_the_simulation(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "scaffold+dp:clip=0.05,noise=0", settings=UNIFORM)
    deployed, simulated = deployment.run(), deployment.replayed()
    assert_same(deployed, simulated)
    unclipped = Deployment(tmp_path / "plain", "scaffold", settings=UNIFORM)
    unclipped.run()
    assert gap(unclipped.out, deployed) > 1e-3


def test_noise_is_another_each_time_and_no_loss_leaves_a_site(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="the extra dp is not installed")
    runs = []
    for name in ("one", "other"):
        deployment = Deployment(tmp_path / name, "fedavg+dp:clip=1,noise=2", settings=UNIFORM)
        runs.append(deployment.run())
        uploads = [reply for _, _, reply in deployment.seen if reply.kind == "upload"]
        assert len(uploads) == 12
        for reply in uploads:
            loss = np.frombuffer(reply.arrays["numbers"].tobytes()[:8], np.float64)
            assert (loss[0], reply.values["training_seconds"]) == (0.0, 0.0)
    assert gap(tmp_path / "one" / "run", runs[1]) > 1e-3
    for record in runs[0].records:
        assert "train_loss" not in record
        assert record["epsilon"] == runs[1].records[record["round"] - 1]["epsilon"]


def test_a_round_in_which_nobody_is_drawn_is_a_round(tmp_path: Path) -> None:
    settings = {**UNIFORM, "rounds": 12, "sampling": "poisson", "participation": 0.2}
    deployment = Deployment(tmp_path, "fedavg+dp:clip=1,noise=0", settings=settings)
    result = deployment.run(quorum=2)
    assert any(not record["clients"] for record in result.records)
    assert not any(record.get("void") for record in result.records)
    assert_same(result, deployment.replayed())


def test_rounds_that_were_given_out_are_not_made_again(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="the extra dp is not installed")
    deployment = Deployment(tmp_path, "fedavg+dp:clip=1,noise=2", settings={**UNIFORM, "rounds": 1})
    deployment.run()
    shutil.copytree(deployment.out, tmp_path / "backup")
    deployment.settings = {**UNIFORM, "rounds": 2}
    deployment.run(resume=True)  # the model of round 1 goes out, that of round 2 does not
    shutil.rmtree(deployment.out)
    shutil.copytree(tmp_path / "backup", deployment.out)
    deployment.settings = {**UNIFORM, "rounds": 4}
    deployment.run(resume=True)
    shutil.rmtree(deployment.out)
    shutil.copytree(tmp_path / "backup", deployment.out)
    with pytest.raises(UserError, match="is of round 1, but sites were asked for round 4: the models of rounds 2 to 3"):
        deployment.run(resume=True)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"weights": "size"}, "with \\+dp all clients count the same"),
        ({"client_test": 0.2}, "what sites tell of their own samples beside their uploads has no noise"),
        ({"global_loss": True}, "global_loss measures the loss on all clients' training data, without noise"),
    ],
)
def test_what_would_go_past_the_noise_is_refused_before_anybody_is_asked(
    tmp_path: Path, settings: dict[str, object], says: str
) -> None:
    deployment = Deployment(tmp_path, "fedavg+dp:clip=1,noise=0", settings={**UNIFORM, **settings})
    with pytest.raises(UserError, match=says):
        deployment.run()
    assert not deployment.seen
