"""Probes: where a local step takes its gradient, before any gradient or after a first one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import headway as hw
from conftest import SMALL, distance, experiment, played, unequal_clients
from headway.data.batches import plan
from headway.engine.cost import cost
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods import local
from headway.methods.method import Method
from headway.methods.spelling import method
from headway.random import built
from headway.trees import leaves_of

ROUNDS, STEPS, BATCH, RATE, CLIP = 3, 4, 7, 0.1, 0.5
SAMPLES = 24


def network() -> nn.Module:
    return built(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), 3, "probe")


def ours(spelled: str | Method, **settings: Any) -> nn.Module:
    """One client's rounds in Headway, in float64."""
    scenario = SMALL.changed(rounds=ROUNDS, steps=STEPS, batch_size=BATCH, rate=RATE, rate_decay=1.0, weight_decay=0.0)
    chosen = scenario.changed(clip=CLIP, **settings)
    data = unequal_clients((SAMPLES,))
    return hw.simulate(spelled, chosen, model=network(), participation=1.0, executor="serial", **data).model


class ByHand:
    """The same rounds as a plain loop over lists of tensors."""

    def __init__(self) -> None:
        self.module, (self.x, self.y) = network().double(), unequal_clients((SAMPLES,))["clients"][0]
        self.w = [leaf.detach().clone() for leaf in self.module.parameters()]
        self.first = self.w
        """φ of the round before."""

    def gradient(self, at: list[Tensor], rows: np.ndarray) -> list[Tensor]:
        for parameter, leaf in zip(self.module.parameters(), at, strict=True):
            parameter.data.copy_(leaf)
        logits = self.module(torch.from_numpy(self.x[rows]))
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(self.y[rows]))
        return list(torch.autograd.grad(loss, list(self.module.parameters())))

    def point(self, name: str, rows: np.ndarray) -> list[Tensor]:
        """u of the methods' papers."""
        if name == "lesam":
            if not self.away:
                return self.w
            length = torch.cat([leaf.flatten() for leaf in self.away]).norm()
            return [leaf + 0.3 * step / length for leaf, step in zip(self.w, self.away, strict=True)]
        g = self.gradient(self.w, rows)
        scale = [torch.ones_like(leaf) if name == "sam" else leaf.abs() + 0.01 for leaf in self.w]
        scaled = [one * two for one, two in zip(scale, g, strict=True)]
        length = torch.cat([leaf.flatten() for leaf in scaled]).norm()
        ascent = zip(self.w, scale, scaled, strict=True)
        return [leaf + 0.3 * one * two / length for leaf, one, two in ascent]

    def run(self, name: str) -> list[Tensor]:
        scenario = SMALL.changed(steps=STEPS, batch_size=BATCH)
        received: list[Tensor] = []
        for round in range(1, ROUNDS + 1):
            self.away = [old - new for old, new in zip(received, self.w, strict=True)] if received else []
            received = self.w
            batches = plan(scenario, np.arange(SAMPLES), scenario.seed, round, 0, 0)
            for rows, count in zip(batches.rows, batches.counts, strict=True):
                g = self.gradient(self.point(name, rows[:count]), rows[:count])
                factor = min(1.0, CLIP / (float(torch.cat([leaf.flatten() for leaf in g]).norm()) + 1e-6))
                self.w = [leaf - RATE * factor * step for leaf, step in zip(self.w, g, strict=True)]
        return self.w


@pytest.mark.parametrize("name", ["sam", "asam", "lesam"])
def test_a_probe_is_the_paper_s(name: str) -> None:
    """Against a plain loop: the ascent from the unclipped gradient, the clipped gradient from there."""
    found = [leaf.detach() for leaf in ours(f"fedavg+{name}:rho=0.3").parameters()]
    expected = ByHand().run(name)
    assert distance(dict(enumerate(found)), dict(enumerate(expected))) < 1e-12
    plain = [leaf.detach() for leaf in ours("fedavg").parameters()]
    assert distance(dict(enumerate(found)), dict(enumerate(plain))) > 1e-3


@pytest.mark.parametrize("executor", ["serial", "batched"])
@pytest.mark.parametrize(
    ("base", "probe"),
    [
        ("fedcm", "sam"),
        ("scaffold", "sam"),
        ("gradma-w", "sam"),
        ("fednag", "sam"),
        ("fedacg+adamw:state=keep", "asam"),
        ("feddyn", "lesam"),
    ],
)
def test_a_radius_of_zero_is_the_method_without_the_probe(base: str, probe: str, executor: str) -> None:
    """Bit for bit, dropout and BatchNorm included, while the probe stays and costs what it costs."""
    probed = method(f"{base}+{probe}:rho=0")
    assert probed.chain.probe is not None
    stores = ClientStates(), ClientStates()
    chosen = [experiment(each, "batch_norm_dropout", rounds=2) for each in (base, probed)]
    (plain, end), (records, other) = (played(each, executor, store) for each, store in zip(chosen, stores, strict=True))
    pairs = zip(
        leaves_of([end.model.theta, end.model.buffers]),
        leaves_of([other.model.theta, other.model.buffers]),
        strict=True,
    )
    assert all(torch.equal(one, two) for one, two in pairs)
    assert [record["train_loss"] for record in plain] == [record["train_loss"] for record in records]


def test_a_probe_s_passes_and_state_are_counted() -> None:
    """Two passes where the gradient at w is needed; FedLESAM takes one and keeps a model."""
    assert [cost(method(f"fedavg+{name}")).passes for name in ("sam", "asam", "lesam")] == [2, 2, 1]
    assert [cost(method(f"fedcm+{name}")).client_state for name in ("sam", "lesam")] == [0, 1]
    assert cost(method("scaffold+lesam+adamw:state=keep")).client_state == pytest.approx(4, rel=1e-3)


@pytest.mark.parametrize("network", ["norm_free", "batch_norm_dropout"])
@pytest.mark.parametrize("spelled", ["fedcm+sam", "fedacg+asam", "scaffold+lesam:rho=0.5", "feddyn+sam+sgd:state=keep"])
def test_executors_agree_on_probes(spelled: str, network: str) -> None:
    chosen, mine = experiment(spelled, network, rounds=3), ClientStates()
    _, end = played(chosen, "serial", mine)
    for executor in ("batched", "pool"):
        store = ClientStates()
        _, other = played(chosen, executor, store)
        assert distance([end.model.theta, end.model.buffers], [other.model.theta, other.model.buffers]) < 1e-10
        assert all(distance(mine.states[client], store.states[client]) < 1e-10 for client in mine.states)


def test_batch_statistics_are_those_of_the_first_pass() -> None:
    """One update of BatchNorm's statistics a step, at w: the second pass leaves them alone."""
    ends = [
        played(experiment(spelled, "batch_norm_dropout", rounds=1, steps=1, participation=1.0))[1].model.buffers
        for spelled in ("fedavg", "fedavg+sam:rho=0.7")
    ]
    assert distance(*ends) == 0


class ahead:
    """FedAc's way: the gradient is taken at a point that is known before, by a value that also steps."""

    def begin(self, received: Any, kept: Any, client: Any) -> Any:
        return {"last": received["model"]}

    def point(self, w: Any, memory: Any, step: Any) -> Any:
        return w + 0.5 * (w - memory["last"])

    def direction(self, w: Any, gradient: Any, memory: Any, step: Any) -> Any:
        return gradient, {"last": w}


def test_one_value_can_probe_and_correct() -> None:
    """Its memory serves both hooks, it takes one pass, and it can be given an optimiser."""
    assert cost(Method(local=ahead())).passes == 1
    (_, end), (_, other) = (played(experiment(Method(local=ahead())), executor) for executor in ("serial", "batched"))
    assert distance(end.model.theta, other.model.theta) < 1e-10
    assert distance(end.model.theta, played(experiment("fedavg"))[1].model.theta) > 1e-4
    assert Method(local=(local.adamw(), ahead())).local[1] == local.adamw()  # type: ignore[index]


def test_two_probes_are_refused() -> None:
    with pytest.raises(UserError, match=r"both set the local slot, to sam\(rho=0.05\) and lesam\(rho=0.05\)"):
        method("fedavg+sam+lesam")
    with pytest.raises(UserError, match="cannot both be its probe"):
        Method(local=(ahead(), local.sam()))
    assert method("fedcm+sam") == method("fedavg+sam+fedcm")


def test_a_point_that_is_not_the_model_s_is_refused_with_its_place() -> None:
    class short:
        def point_from(self, w: Any, gradient: Any, memory: Any, step: Any) -> Any:
            return gradient.norm()

    with pytest.raises(
        UserError, match=r"local slot short of method 'mine': point_from returned a Tensor where a Vector"
    ):
        played(experiment(Method(local=short(), name="mine"), rounds=1))
    with pytest.raises(UserError, match="did you mean 'point_from'"):
        Method(local=type("odd", (), {"point_form": short.point_from, "direction": ahead.direction})())
