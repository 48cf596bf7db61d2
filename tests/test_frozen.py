"""Frozen parameters neither train nor travel; the model that comes out is whole, with the names that went in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import headway as hw
from conftest import COMPILED, EXECUTORS, SMALL, distance, played, unequal_clients
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.engine.network import Network
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods.catalogue import METHODS
from headway.methods.spelling import method
from headway.random import built
from headway.runs import export as exporting
from headway.runs.checkpoint import Checkpoint
from headway.trees import named_leaves, nbytes
from methods_under_test import sampled


class Backbone(nn.Module):
    """A frozen layer, a BatchNorm whose scale is frozen and, with `still`, its statistics too; a head that learns."""

    def __init__(self, still: bool = True) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh()).requires_grad_(False)
        self.stages = [self.body, nn.Linear(8, 3)]
        self.head = self.stages[1]
        self.still = still
        self.body[1].running_mean.fill_(0.3)
        self.register_buffer("places", torch.arange(8.0) / 8, persistent=False)

    def train(self, mode: bool = True) -> Backbone:
        super().train(mode)
        if self.still:
            self.body.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x) + self.places)  # type: ignore[no-any-return]


def backbone(still: bool = True) -> Backbone:
    return built(lambda: Backbone(still), 3, "test")


HEAD = {"head.weight", "head.bias"}
BYTES = 8 * (8 * 3 + 3)


def frozen(spelled: Any = "fedavg", still: bool = True, **settings: Any) -> Experiment:
    return build(SMALL.changed(rounds=2, **settings), method(spelled), model=backbone(still), **unequal_clients())


@pytest.mark.parametrize("spelled", sampled(sorted(METHODS)))
def test_what_a_method_keeps_and_sends_has_the_trainable_parameters_only(spelled: str) -> None:
    """Momentum, control variates and client states are over the head; no name of the frozen part is in any of it."""
    chosen = frozen("local-muon:matrices=all" if spelled == "local-muon" else spelled)  # the head is all that trains
    store = ClientStates()
    records, end = played(chosen, store=store)
    states = [store.get(client) for client in sorted(store.touched)]
    kept = [*named_leaves(end.model.server), *(name for state in states if state for name in named_leaves(dict(state)))]
    assert not [name for name in kept if "body" in name or "places" in name]
    assert set(end.model.theta.leaves) == HEAD
    assert end.model.buffers == {}
    asked = len(records[0]["clients"])
    assert records[0]["bytes_down"] <= 3 * BYTES * asked
    assert nbytes(chosen.network.parameters) == BYTES


@pytest.mark.parametrize("executor", [*EXECUTORS, *COMPILED])
def test_bytes_are_those_of_the_head_and_the_whole_model_comes_back(executor: str) -> None:
    chosen, before = frozen("fedavgm"), backbone().double()
    records, end = played(chosen, executor)
    for record in records:
        assert record["bytes_up"] == record["bytes_down"] == BYTES * len(record["clients"])
    found = chosen.network.module(end.model.theta, end.model.buffers).state_dict()
    assert list(found) == list(before.state_dict())
    moved = {name for name, leaf in before.state_dict().items() if not torch.equal(found[name], leaf)}
    assert moved == HEAD
    assert distance(end.model.theta, played(frozen("fedavgm"))[1].model.theta) < 1e-12


def test_a_frozen_part_in_training_mode_still_measures_its_statistics() -> None:
    """As in PyTorch after `model.train()`: they travel as buffers; with the module's own `train` they are constants."""
    chosen = frozen(still=False)
    records, end = played(chosen)
    assert set(end.model.buffers) == {
        f"body.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    asked = len(records[0]["clients"])
    assert records[0]["bytes_up"] == (BYTES + nbytes(end.model.buffers)) * asked
    assert distance(end.model.buffers, chosen.network.buffers) > 0.01
    with pytest.raises(UserError, match=r"batch statistics in 'body\.1' and buffers is 'refuse'"):
        frozen(still=False, buffers="refuse")


def test_frozen_numbers_are_held_once_beside_the_users_own() -> None:
    mine = backbone().double()
    network = Network(mine).to(torch.device("cpu"), torch.float64)
    skeletons = [part.module for part in (network._training, network._evaluating)]
    for name, leaf in network.frozen.items():
        held = {one.get_parameter(name).data_ptr() for one in (mine, *skeletons)} | {leaf.data_ptr()}
        assert len(held) == 2


def test_frozen_layers_are_a_plain_loop_over_what_is_not_frozen() -> None:
    """One client, all its data in each step."""
    x, y = (torch.as_tensor(part) for part in unequal_clients()["test"])
    settings = SMALL.changed(batch_size=40, weight_decay=0.0, clip=0.0, participation=1.0, rate_decay=1.0)
    chosen = build(settings, method("fedavg"), model=backbone(), clients=[(x, y)], test=(x, y))
    module = backbone().double().train()
    optimizer = torch.optim.SGD([leaf for leaf in module.parameters() if leaf.requires_grad], settings.rate)
    for _ in range(settings.rounds * settings.epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    found = played(chosen)[1].model
    for one, other in zip(chosen.network.module(found.theta, {}).parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_checkpoint_has_no_frozen_tensor_and_brings_the_model_back(tmp_path: Path) -> None:
    chosen = frozen("scaffold")
    store = ClientStates()
    _, end = played(chosen, store=store)
    Checkpoint(tmp_path / "checkpoint", chosen).save(end, store, "serial")
    (file,) = (tmp_path / "checkpoint").glob("server-*.safetensors")
    assert not [name for name in load_file(file) if "body" in name or "places" in name]
    again, states = Checkpoint(tmp_path / "checkpoint", frozen("scaffold")).load()
    assert distance(again.model.theta, end.model.theta) == 0
    assert distance(states.get(0) or {}, store.get(0) or {}) == 0


def test_a_checkpoint_in_which_constants_were_buffers_is_read(tmp_path: Path) -> None:
    """As checkpoints of before have them."""
    chosen = frozen()
    _, end = played(chosen)
    buffers = {**end.model.buffers, **chosen.network.constants}
    written = Checkpoint(tmp_path / "checkpoint", chosen)
    written.save(_with_buffers(end, buffers), ClientStates(), "serial")
    (file,) = (tmp_path / "checkpoint").glob("server-*.safetensors")
    assert "buffers/places" in load_file(file)
    assert Checkpoint(tmp_path / "checkpoint", frozen()).load()[0].model.buffers == {}


def _with_buffers(progress: Any, buffers: dict[str, Tensor]) -> Any:
    from dataclasses import replace

    return replace(progress, model=replace(progress.model, buffers=buffers))


def test_a_buffer_that_would_be_lost_is_refused() -> None:
    class Counting(nn.Module):
        def __init__(self, in_place: bool) -> None:
            super().__init__()
            self.head, self.in_place = nn.Linear(6, 3), in_place
            self.register_buffer("passes", torch.zeros(()), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            if self.training and self.in_place:
                self.passes += 1
            elif self.training:
                self.passes = self.passes + 1
            return self.head(x)  # type: ignore[no-any-return]

    for in_place in (True, False):
        chosen = build(SMALL, method("fedavg"), model=Counting(in_place), **unequal_clients())
        with pytest.raises(UserError, match=r"changes its buffer 'passes' in training, .* persistent=True"):
            played(chosen)


class Tied(nn.Module):
    """An embedding that is the output layer too, beside a frozen layer that stands in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.forth, self.back = nn.Linear(6, 6, bias=False), nn.Linear(6, 6)
        self.once = self.twice = nn.Linear(6, 6).requires_grad_(False)
        self.back.weight = self.forth.weight
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.back(self.twice(torch.tanh(self.once(self.forth(x))))))  # type: ignore[no-any-return]


def test_tied_weights_frozen_or_not_keep_their_names_and_stay_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = built(Tied, 0, "test")
    result = hw.simulate("fedavg", SMALL, model=mine, executor="batched", **unequal_clients())
    found = result.model
    assert found.back.weight is found.forth.weight
    assert found.once is found.twice
    assert set(Network(mine).parameters.leaves) == {"forth.weight", "back.bias", "out.weight", "out.bias"}
    assert torch.equal(found.once.weight, mine.once.weight.double())
    monkeypatch.setattr(exporting, "load_run", lambda *_, **__: result)
    written = load_file(exporting.export("run", tmp_path / "model.safetensors"))
    assert sorted(written) == sorted(mine.state_dict())
    assert distance(written, {name: found.state_dict()[name] for name in written}) == 0
    mine.double().load_state_dict(written)
