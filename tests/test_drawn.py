"""Populations whose samples are made when they are read have the samples and the numbers of those that are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import headway as hw
from headway.data.sources import synthetic
from headway.errors import UserError


def test_users_have_the_same_samples_whether_all_are_kept_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = synthetic.synthetic("1,0.5,40", None)
    monkeypatch.setattr(synthetic, "KEPT_USERS", 0)
    monkeypatch.setattr(synthetic, "REMEMBERED", 2)
    drawn = synthetic.synthetic("1,0.5,40", None)
    assert drawn.clients is not None
    assert drawn.clients.sizes.tolist() == np.bincount(kept.users).tolist()
    for user in (0, 39, 7):
        rows = torch.as_tensor(drawn.clients[user])
        assert np.array_equal(rows.numpy(), np.flatnonzero(kept.users == user))
        for mine, theirs in zip(drawn.train.read(rows), kept.train.read(rows), strict=True):
            assert torch.equal(mine, theirs)
    stacked = torch.vmap(lambda rows: drawn.train.read(rows)[0])(torch.arange(6).reshape(2, 3))
    assert torch.equal(stacked, kept.train.inputs[:6].reshape(2, 3, -1))
    with pytest.raises(UserError, match="no memory holds all of it"):
        drawn.train.labels.numpy()


@pytest.mark.parametrize("executor", ["serial", "batched", "pool"])
def test_a_run_is_the_same_whether_samples_are_kept_or_not(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: dict[str, Any] = {
        **{"data": "synthetic:1,1,40", "partition": "natural", "clients": 0, "model": "mlp", "rounds": 2},
        **{"cohort_size": 5, "epochs": 1, "executor": executor, "device": "cpu", "eval_every": 2},
    }
    losses = []
    for _ in range(2):
        losses.append([record["train_loss"] for record in hw.simulate("scaffold", **chosen).records])
        monkeypatch.setattr(synthetic, "KEPT_USERS", 0)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize(
    ("method_name", "settings", "words"),
    [
        ("fedavg", {"partition": "iid"}, "use --partition natural"),
        ("fedavg", {"validation": 0.1}, "validation needs all samples"),
        ("fedavg", {"global_loss": True}, "global_loss needs all samples"),
        ("fedavg", {"client_test": 0.1}, "client_test needs all samples"),
        ("fedavg", {"clients": 41}, "the data has 40 users"),
        ("fedavg", {"executor": "batched:compiled"}, "reads samples inside of a program"),
        ("csgd", {}, "method csgd needs all samples"),
    ],
)
def test_what_needs_all_samples_at_once_is_refused(
    method_name: str, settings: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic, "KEPT_USERS", 0)
    asked = {
        "data": "synthetic:1,1,40",
        "partition": "natural",
        "clients": 0,
        "cohort_size": 4,
        "rounds": 1,
        **settings,
    }
    with pytest.raises(UserError, match=words):
        hw.simulate(method_name, device="cpu", model="mlp", **asked)
