"""Dropout that a model calls as a function: the layer's numbers, its own key, the same in every executor."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conftest import SMALL, distance, normal, played, unequal_clients
from headway import random
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.methods.spelling import method
from headway.models.drawing import KeyedDraws
from headway.random import built


def key(number: int = 0) -> Tensor:
    return torch.tensor(random.key(number, "test"))


class Own(nn.Module):
    """Two calls of dropout, and attention over two halves of a sample that drops its weights."""

    def __init__(self, rate: float = 0.4) -> None:
        super().__init__()
        self.first, self.last, self.rate = nn.Linear(6, 6), nn.Linear(6, 3), rate

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.dropout(torch.tanh(self.first(x)), self.rate, self.training)
        parts = hidden.unflatten(1, (1, 2, 3))
        seen = F.scaled_dot_product_attention(
            parts, parts, parts, is_causal=True, dropout_p=self.rate if self.training else 0.0
        )
        return self.last(F.dropout(seen.flatten(1), self.rate, self.training))  # type: ignore[no-any-return]


def own(rate: float = 0.4) -> Experiment:
    return build(SMALL, method("fedavgm"), model=built(lambda: Own(rate), 1, "test"), **unequal_clients())


@pytest.mark.parametrize("executor", ["batched", "pool"])
def test_executors_agree(executor: str) -> None:
    assert distance(played(own(), executor)[1].model.theta, played(own())[1].model.theta) < 1e-12


def test_it_drops_takes_nothing_from_the_global_stream_and_couples_no_samples() -> None:
    chosen = own()
    before = torch.get_rng_state()
    dropping = played(chosen)[1].model.theta
    assert torch.equal(torch.get_rng_state(), before)
    assert distance(dropping, played(own(0.0))[1].model.theta) > 1e-3
    assert chosen.coupling == ""


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (F.dropout, (50, 60)),
        (F.dropout1d, (50, 60, 2)),
        (F.dropout2d, (50, 60, 2, 2)),
        (F.dropout3d, (50, 60, 1, 2, 1)),
    ],
)
def test_a_function_drops_its_share_scales_the_rest_and_draws_anew_each_time(
    function: Callable[..., Tensor], shape: tuple[int, ...]
) -> None:
    ones = torch.ones(shape).double()
    with KeyedDraws(key()):
        first, second = function(ones, 0.3), function(ones, 0.3)
        assert torch.equal(function(ones, 0.3, training=False), ones)
        assert not function(ones, 1.0).any()
    with KeyedDraws(key()):
        assert torch.equal(function(ones, 0.3), first)
        assert torch.equal(function(ones, 0.3, inplace=True), second)
    assert torch.equal(ones, second)
    assert not torch.equal(first, second)
    assert set(first.unique().tolist()) == {0.0, 1 / 0.7}
    channels = first.flatten(2) if first.dim() > 2 else first[..., None]
    assert torch.equal(channels, channels[..., :1].expand_as(channels))
    assert abs(float((first == 0).double().mean()) - 0.3) < 4.5 * math.sqrt(0.3 * 0.7 / 3000)


MASKS: dict[str, dict[str, object]] = {
    "none": {},
    "causal": {"is_causal": True},
    "of numbers": {"attn_mask": normal(5, 5, seed=9), "scale": 0.2},
    "whole rows masked": {"attn_mask": torch.arange(5) > torch.tensor([[4], [0], [1], [2], [3]])},
}


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("mask", list(MASKS))
def test_attention_in_a_stack_is_torchs_own(mask: str, heads: int) -> None:
    """Written out under vmap, for as many heads of keys as of queries and for fewer."""
    q, k, v = normal(3, 2, 4, 5, 6, seed=1), normal(3, 2, heads, 5, 6, seed=2), normal(3, 2, heads, 5, 6, seed=3)

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=heads < 4, **MASKS[mask])  # type: ignore[arg-type]

    expected = torch.stack([attention(*each) for each in zip(q, k, v, strict=True)])
    with KeyedDraws(key()):
        assert distance(torch.vmap(attention)(q, k, v), expected) < 1e-12


def test_the_mean_of_dropped_attention_is_attention() -> None:
    """Over 4,000 copies; a weight's deviation is √(p/(1−p)) of it."""
    q, k, v = (normal(1, 5, 6, seed=seed) for seed in (1, 2, 3))
    with KeyedDraws(key()):
        many = F.scaled_dot_product_attention(*(part.expand(4000, 5, 6) for part in (q, k, v)), dropout_p=0.5)
    assert distance(many.mean(0), F.scaled_dot_product_attention(q, k, v)[0]) < 4.5 * float(v.abs().max()) / 63


def test_only_what_can_drop_is_noticed() -> None:
    for module, found in ((Own(), True), (nn.Sequential(nn.Linear(6, 3), nn.Tanh()), False)):
        with KeyedDraws() as watch:
            module.eval()(torch.zeros(2, 6))
        assert watch.found == found
