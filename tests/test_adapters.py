"""LoRA by the library peft: only adapters train and travel, and the model that comes back is peft's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from conftest import SMALL, distance, played

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'headway[finetune]'")
pytest.importorskip("peft", reason="peft is not installed: pip install 'headway[finetune]'")
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict

from headway.engine.building import build
from headway.engine.client_rounds import Turn
from headway.engine.experiment import Experiment
from headway.methods.spelling import method
from headway.random import built
from headway.runs.digest import digest
from headway.trees import nbytes
from pretrained_models import data, model, task

pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}Warning") for kind in ("Deprecation", "Future")]
"""What the libraries say of themselves is not ours."""


def adapted(name: str, drop: float = 0.1, alpha: int = 4) -> nn.Module:
    """A model of transformers with adapters; a classifier's last layer, which is new, trains as a whole."""
    kind = {"task_type": "SEQ_CLS"} if name == "bert" else {}
    config = LoraConfig(r=2, lora_alpha=alpha, lora_dropout=drop, target_modules="all-linear", **kind)
    return built(lambda: get_peft_model(model(name, drop), config), 1, "adapters")


def experiment(name: str, drop: float = 0.1, **settings: Any) -> Experiment:
    scenario = SMALL.changed(rounds=2, task=task(name), **settings)
    return build(scenario, method("fedavgm"), model=adapted(name, drop), **data(name))


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_executors_agree_and_filler_changes_nothing(name: str) -> None:
    """An adapter begins at 0, so that what is behind it is seen only when it has moved."""
    chosen = experiment(name)
    assert chosen.coupling == ""
    alone = played(chosen)[1].model.theta
    assert distance(alone, chosen.network.parameters) > 1e-3
    for executor in ("batched", "pool"):
        assert distance(played(chosen, executor)[1].model.theta, alone) < 1e-10


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_only_adapters_travel_and_the_model_comes_back_whole(name: str) -> None:
    chosen, before = experiment(name), adapted(name).double()
    records, end = played(chosen)
    trained = {key: leaf for key, leaf in before.named_parameters() if leaf.requires_grad}
    assert set(end.model.theta.leaves) == set(trained)
    assert len(end.model.theta) < sum(leaf.numel() for leaf in before.parameters()) / 4
    for record in records:
        assert record["bytes_up"] == record["bytes_down"] == nbytes(trained) * len(record["clients"])
    found = chosen.network.module(end.model.theta, end.model.buffers)
    assert list(found.state_dict()) == list(before.state_dict())
    assert [leaf.requires_grad for leaf in found.parameters()] == [leaf.requires_grad for leaf in before.parameters()]
    for key, leaf in before.state_dict().items():
        assert torch.equal(found.state_dict()[key], leaf) == (key not in trained)
    adapters = get_peft_model_state_dict(found)
    assert sum(leaf.numel() for leaf in adapters.values()) == len(end.model.theta)
    merged = found.merge_and_unload().state_dict()
    assert sorted(merged) == sorted(model(name).state_dict())


def test_training_adapters_is_a_plain_loop() -> None:
    """One client, over the user's own module, with SGD on what is not frozen."""
    plain = {"participation": 1.0, "weight_decay": 0.0, "clip": 0.0, "rate_decay": 1.0}
    given = data("bert", (9,))
    chosen = build(SMALL.changed(rounds=2, **plain), method("fedavg"), model=adapted("bert", 0.0), **given)
    module = adapted("bert", 0.0).double().train()
    optimizer = torch.optim.SGD([leaf for leaf in module.parameters() if leaf.requires_grad], chosen.scenario.rate)
    for number in (1, 2):
        arrays = chosen.client_rounds.client_round(Turn(number, (0,), np.ones(1)), 0, None).arrays
        for rows, count in zip(arrays.rows, arrays.counts, strict=True):
            x, y = chosen.federation.train.read(torch.as_tensor(rows[:count]))
            optimizer.zero_grad()
            module(**x, labels=y).loss.backward()
            optimizer.step()
    found = played(chosen)[1].model.theta.leaves
    expected = {key: leaf.detach() for key, leaf in module.named_parameters() if leaf.requires_grad}
    assert distance(found, {key: expected[key] for key in found}) < 1e-12


def test_the_fingerprint_knows_how_strong_adapters_are() -> None:
    assert digest(adapted("llama")) == digest(adapted("llama"))
    assert len({digest(adapted("llama")), digest(adapted("llama", alpha=8)), digest(adapted("llama", 0.2))}) == 3
