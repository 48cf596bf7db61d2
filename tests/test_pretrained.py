"""Models of the library transformers: the numbers of a plain loop, in every executor, with masks and dropout."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import headway as hw
from conftest import COMPILED, SMALL, distance, played

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'headway[finetune]'")
from headway.engine.building import build
from headway.engine.client_rounds import Turn
from headway.engine.experiment import Experiment
from headway.engine.selection import choose
from headway.errors import UserError
from headway.methods.spelling import method
from headway.models.pretrained import ATTENTION
from headway.runs.digest import digest
from pretrained_models import MODELS, data, model, task

pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}Warning") for kind in ("Deprecation", "Future")]
"""What the libraries say of themselves is not ours."""

TINY = SMALL.changed(rounds=2)


def experiment(name: str, drop: float = 0.1, spelled: str = "fedavg", **settings: Any) -> Experiment:
    scenario = TINY.changed(task=task(name), **settings)
    return build(scenario, method(spelled), model=model(name, drop), **data(name))


@pytest.mark.parametrize("executor", COMPILED)
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_compiled_executors_agree(name: str, executor: str) -> None:
    chosen = experiment(name)
    assert distance(played(chosen, executor)[1].model.theta, played(chosen)[1].model.theta) < 1e-10


@pytest.mark.parametrize("name", list(MODELS))
def test_executors_agree_and_nothing_is_drawn_from_the_global_stream(name: str) -> None:
    """With dropout in layers and in attention, and batches of unequal lengths."""
    chosen = experiment(name)
    before = torch.get_rng_state()
    alone = played(chosen)[1].model.theta
    assert torch.equal(torch.get_rng_state(), before)
    for executor in ("batched", "pool"):
        assert distance(played(chosen, executor)[1].model.theta, alone) < 1e-10
    assert distance(alone, played(experiment(name, 0.0))[1].model.theta) > 1e-5
    assert chosen.coupling == ""


def shifted_loss(module: nn.Module, x: dict[str, Tensor]) -> Tensor:
    """Of a causal model: each token by those before it, as transformers itself shifts labels, in full precision."""
    logits, targets = module(**x).logits[:, :-1], x["input_ids"].masked_fill(x["attention_mask"] == 0, -100)[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def hand_written(chosen: Experiment, module: nn.Module) -> nn.Module:
    """FedAvg of all clients as a loop over copies of the user's own module, by the losses of transformers."""
    module.double().train()
    sizes = chosen.federation.sizes
    for number in range(1, chosen.scenario.rounds + 1):
        mean = {name: torch.zeros_like(leaf) for name, leaf in module.named_parameters()}
        for client in range(chosen.population):
            arrays = chosen.client_rounds.client_round(Turn(number, (client,), np.ones(1)), 0, None).arrays
            local = copy.deepcopy(module)
            optimizer = torch.optim.SGD(local.parameters(), chosen.scenario.rate)
            for rows, count in zip(arrays.rows, arrays.counts, strict=True):
                x, y = chosen.federation.train.read(torch.as_tensor(rows[:count]))
                loss = shifted_loss(local, x) if y.dim() > 1 else local(**x, labels=y).loss
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            for name, leaf in local.named_parameters():
                mean[name] += float(sizes[client] / sizes.sum()) * leaf.detach()
        with torch.no_grad():
            for name, leaf in module.named_parameters():
                leaf.copy_(mean[name])
    return module


PLAIN = {"participation": 1.0, "weight_decay": 0.0, "clip": 0.0, "rate_decay": 1.0}


@pytest.mark.parametrize("name", list(MODELS))
def test_serial_is_a_plain_loop(name: str) -> None:
    chosen = experiment(name, 0.0, **PLAIN)
    found = played(chosen)[1].model.theta.leaves
    expected = dict(hand_written(chosen, model(name, 0.0)).named_parameters())
    assert found.keys() == expected.keys()
    assert distance(found, {key: leaf.detach() for key, leaf in expected.items()}) < 1e-12


def test_a_model_that_asks_for_numbers_is_not_stacked_and_says_why() -> None:
    """Masks of the attention `eager` look at the numbers of a batch."""
    with_eager = model("bert", 0.1, attn_implementation="eager")
    told: list[str] = []
    chosen = build(TINY, method("fedavg"), model=with_eager, **data("bert"))
    assert choose(chosen, "batched", told.append).name == "serial"
    assert told == [
        "the batched executor cannot take this model or method (its code chooses what it does by the numbers of a "
        "batch); clients are trained one by one instead"
    ]
    assert distance(played(chosen)[1].model.theta, played(experiment("bert"))[1].model.theta) < 1e-10


def test_the_users_model_keeps_its_attention() -> None:
    mine = model("llama")
    result = hw.simulate("fedavg", TINY, task="tokens", rounds=1, executor="serial", model=mine, **data("llama"))
    assert mine.config._attn_implementation == "sdpa" != ATTENTION
    assert mine.config.use_cache
    assert result.model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_constants_are_neither_sent_nor_averaged(name: str) -> None:
    """The numbers of places and the frequencies of rotations."""
    mine = model(name)
    assert list(mine.named_buffers())
    chosen = experiment(name)
    records, end = played(chosen)
    assert end.model.buffers == {}
    numbers = sum(leaf.numel() for leaf in mine.parameters())
    assert records[0]["bytes_up"] == 8 * numbers * len(chosen.client_rounds.cohort(1).clients)
    found = chosen.network.module(end.model.theta, end.model.buffers)
    for (one, leaf), (other, before) in zip(found.named_buffers(), mine.named_buffers(), strict=True):
        assert one == other
        assert torch.equal(leaf, before.to(leaf.dtype))


def test_a_run_in_a_folder_has_the_whole_model_with_its_tied_weights(tmp_path: Path) -> None:
    given: dict[str, Any] = {"model": model("gpt2"), **data("gpt2")}
    result = hw.simulate("fedavgm", TINY, task="tokens", executor="serial", out=tmp_path / "run", **given)
    again = hw.load_run(tmp_path / "run", **given).model
    for found in (result.model, again):
        assert found.lm_head.weight is found.transformer.wte.weight
        assert distance(dict(found.state_dict()), dict(result.model.state_dict())) == 0
        assert found.state_dict().keys() == given["model"].state_dict().keys()


def test_labels_that_are_the_inputs_are_refused() -> None:
    """So models of transformers take them, and shift them by themselves."""
    given = data("gpt2")
    given["clients"] = [[{**one, "labels": one["input_ids"]} for one in client] for client in given["clients"]]
    with pytest.raises(UserError, match=r"labels are the input_ids themselves.* labels = t\[1:\]"):
        build(TINY.changed(task="tokens"), method("fedavg"), model=model("gpt2"), **given)


def test_the_fingerprint_of_a_model_is_its_configuration() -> None:
    assert digest(model("bert")) == digest(model("bert"))
    others = [model("bert", 0.2), model("bert", 0.1, hidden_act="relu"), model("bert", 0.1, layer_norm_eps=1e-3)]
    assert len({digest(one) for one in [model("bert"), *others]}) == 4
