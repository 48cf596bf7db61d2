"""Twins compute what the layers they stand for compute, and a network is a pure function of its numbers."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn

from conftest import key_tensor, normal
from headway.engine.network import Network
from headway.errors import UserError
from headway.models.networks import Staged, network
from headway.models.twins import KeyedDropout, WeightedBatchNorm, twinned
from headway.random import built
from headway.vectors import Vector

quick = settings(deadline=None, max_examples=25)


def close(found: Any, expected: Any) -> None:
    """Equal but for the order of a float64 sum."""
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


# ── BatchNorm ────────────────────────────────────────────────────────────────────────────────────────────────────────

LAYERS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "1d": (nn.BatchNorm1d, ()),
    "1d of series": (nn.BatchNorm1d, (5,)),
    "2d": (nn.BatchNorm2d, (3, 2)),
    "3d": (nn.BatchNorm3d, (2, 1, 3)),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "slow": {"momentum": 0.01, "eps": 1e-3},
    "cumulative": {"momentum": None},
    "no affine": {"affine": False},
    "no statistics": {"track_running_stats": False},
    "neither": {"affine": False, "track_running_stats": False},
}


def norm_layer(kind: str, **options: Any) -> nn.Module:
    """A BatchNorm layer of 4 channels whose scale and shift are not the first ones."""
    layer = LAYERS[kind][0](4, dtype=torch.float64, **options)
    with torch.no_grad():
        for number, leaf in enumerate(layer.parameters()):
            leaf.copy_(normal(4, seed=100 + number))
    return layer


def passed(layer: nn.Module, x: Tensor, pull: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The output and the gradients of ⟨output, pull⟩ by the input and by every parameter."""
    x = x.clone().requires_grad_()
    y = layer(x)
    return y.detach(), list(torch.autograd.grad((y * pull).sum(), [x, *layer.parameters()]))


def statistics(layer: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in layer.named_buffers() if not name.startswith("headway")}


class Plain(nn.BatchNorm2d):
    """Another class, with BatchNorm's pass."""


class Acting(nn.BatchNorm2d):
    """A class that defines its own pass."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


class TestBatchNorm:
    @pytest.mark.parametrize("kind", [Plain, nn.SyncBatchNorm])
    def test_a_class_with_the_same_pass_has_the_same_twin(self, kind: type[nn.Module]) -> None:
        assert isinstance(twinned(nn.Sequential(kind(3)))[0], WeightedBatchNorm)  # type: ignore[index]

    def test_one_with_a_pass_of_its_own_is_refused_by_name(self) -> None:
        with pytest.raises(UserError, match=r"layer '1\.0' is of class Acting"):
            twinned(nn.Sequential(nn.ReLU(), nn.Sequential(Acting(3))))

    @pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
    @pytest.mark.parametrize("kind", LAYERS)
    def test_it_is_pytorchs_layer_on_whole_batches(self, kind: str, options: dict[str, Any]) -> None:
        layer = norm_layer(kind, **options)
        twin = twinned(layer)
        assert isinstance(twin, WeightedBatchNorm)
        for step, size in enumerate((6, 2, 9)):
            x, pull = (normal(size, 4, *LAYERS[kind][1], seed=10 * step + by) for by in (0, 1))
            close(passed(twin, 3 * x + 1, pull), passed(layer, 3 * x + 1, pull))
            close(statistics(twin), statistics(layer))
        layer.eval(), twin.eval()
        close(passed(twin, x, pull), passed(layer, x, pull))
        close(statistics(twin), statistics(layer))

    def test_a_layer_with_scale_but_without_shift(self) -> None:
        layer = norm_layer("1d")
        layer.bias = None
        x, pull = normal(6, 4), normal(6, 4, seed=1)
        close(passed(twinned(layer), x, pull), passed(layer, x, pull))

    @pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
    @pytest.mark.parametrize("kind", LAYERS)
    @pytest.mark.parametrize("padding", [1, 5])
    def test_padding_has_no_effect(self, kind: str, options: dict[str, Any], padding: int) -> None:
        """Padded rows hold other numbers; output, gradients and statistics are those of the rows before them."""
        whole, padded = twinned(norm_layer(kind, **options)), twinned(norm_layer(kind, **options))
        for step, size in enumerate((7, 3, 4)):
            x, pull = (normal(size, 4, *LAYERS[kind][1], seed=10 * step + by) for by in (0, 1))
            rest = 50 + 9 * normal(padding, 4, *LAYERS[kind][1], seed=77 + step)
            padded.headway_weight = torch.cat([torch.ones(size), torch.zeros(padding)]).double()
            y, (by_x, *by_parameters) = passed(padded, torch.cat([x, rest]), torch.cat([pull, 0 * rest]))
            expected, (expected_by_x, *expected_by_parameters) = passed(whole, x, pull)
            close(y[:size], expected)
            close(by_x[:size], expected_by_x)
            assert not by_x[size:].any()
            close(by_parameters, expected_by_parameters)
            close(statistics(padded), statistics(whole))

    def test_statistics_are_assigned_and_never_written_in_place(self) -> None:
        twin = twinned(norm_layer("1d"))
        held = dict(twin.named_buffers())
        before = {name: buffer.clone() for name, buffer in held.items()}
        twin(normal(6, 4))
        assert all(torch.equal(held[name], before[name]) for name in before)
        assert not torch.equal(twin.running_mean, before["running_mean"])

    def test_evaluation_leaves_the_statistics_alone(self) -> None:
        twin = twinned(norm_layer("1d")).eval()
        before = statistics(twin)
        twin(normal(6, 4))
        close(statistics(twin), before)


# ── Dropout ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def keyed(p: float, spatial: bool = False, seed: int = 0) -> KeyedDropout:
    twin = KeyedDropout(p, spatial)
    twin.headway_key = key_tensor(seed)
    return twin


class TestDropout:
    @pytest.mark.parametrize("p", [0.1, 0.4, 0.5, 0.9])
    def test_the_share_p_is_dropped_and_the_mean_kept(self, p: float) -> None:
        """40,000 elements: 4.5 deviations of the share are 4.5 √(p(1−p)/n)."""
        y = keyed(p)(torch.ones(200, 200, dtype=torch.float64))
        kept = y != 0
        close(y[kept].unique(), torch.tensor([1 / (1 - p)], dtype=torch.float64))
        bound = 4.5 * math.sqrt(p * (1 - p) / y.numel())
        assert abs(float(kept.double().mean()) - (1 - p)) < bound
        assert abs(float(y.mean()) - 1) < bound / (1 - p)

    def test_the_same_key_drops_the_same_and_another_key_another(self) -> None:
        x = torch.ones(20, 20)
        assert torch.equal(keyed(0.5, seed=1)(x), keyed(0.5, seed=1)(x))
        assert not torch.equal(keyed(0.5, seed=1)(x), keyed(0.5, seed=2)(x))

    def test_a_layer_used_twice_in_one_pass_drops_differently(self) -> None:
        twin = keyed(0.5)
        first, second = twin(torch.ones(50, 50)), twin(torch.ones(50, 50))
        both = float(((first != 0) & (second != 0)).double().mean())
        assert abs(both - 0.25) < 4.5 * math.sqrt(0.25 * 0.75 / 2500), "independent masks agree in a quarter"

    @pytest.mark.parametrize("layer", [nn.Dropout1d(0.3), nn.Dropout2d(0.3), nn.Dropout3d(0.3)], ids=["1d", "2d", "3d"])
    def test_spatial_dropout_drops_whole_channels(self, layer: nn.Module) -> None:
        twin = twinned(layer)
        twin.headway_key = key_tensor(3)
        beyond = {nn.Dropout1d: (4,), nn.Dropout2d: (4, 3), nn.Dropout3d: (4, 3, 2)}[type(layer)]
        y = twin(torch.ones(60, 50, *beyond)).flatten(2)
        assert torch.equal(y.amin(2), y.amax(2))
        dropped = float((y[:, :, 0] == 0).double().mean())
        assert abs(dropped - 0.3) < 4.5 * math.sqrt(0.3 * 0.7 / 3000)

    @pytest.mark.parametrize("spatial", [False, True])
    def test_rows_do_not_see_how_many_follow(self, spatial: bool) -> None:
        x = normal(9, 4, 3)
        assert torch.equal(keyed(0.5, spatial)(x)[:5], keyed(0.5, spatial)(x[:5]))

    def test_evaluation_and_the_two_ends(self) -> None:
        x = normal(5, 4)
        assert torch.equal(keyed(0.5).eval()(x), x)
        assert torch.equal(keyed(0.0)(x), x)
        assert not keyed(1.0)(x).any()

    def test_torchs_generator_is_left_alone(self) -> None:
        before = torch.get_rng_state()
        keyed(0.5)(torch.ones(100))
        assert torch.equal(torch.get_rng_state(), before)


# ── twins of a whole module ──────────────────────────────────────────────────────────────────────────────────────────


def mixed() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 8),
        nn.BatchNorm1d(8),
        nn.Sequential(nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 8), nn.BatchNorm1d(8, affine=False)),
        nn.Dropout(0.2),
        nn.Linear(8, 3),
    ).double()


class Shared(nn.Module):
    """One BatchNorm and one dropout layer, each used in two places."""

    def __init__(self, nested: bool) -> None:
        super().__init__()
        norm, drop = nn.BatchNorm1d(6), nn.Dropout(0.5)
        if nested:
            halves = [nn.Sequential(nn.Linear(6, 6), norm, drop) for _ in range(2)]
            self.body = nn.Sequential(*halves)
        else:
            self.body = nn.Sequential(nn.Linear(6, 6), norm, drop, nn.Linear(6, 6), norm, drop)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class TestTwinned:
    def test_the_original_is_untouched(self) -> None:
        module = mixed()
        kinds = [type(child) for child in module.modules()]
        before = copy.deepcopy(module.state_dict())
        twin = twinned(module)
        twin(normal(6, 6))
        with torch.no_grad():
            for leaf in twin.parameters():
                leaf.fill_(9)
        assert [type(child) for child in module.modules()] == kinds
        assert all(torch.equal(leaf, before[name]) for name, leaf in module.state_dict().items())

    def test_names_and_numbers_are_kept(self) -> None:
        module = mixed()
        twin = twinned(module)
        assert list(twin.state_dict()) == list(module.state_dict())
        assert all(torch.equal(leaf, module.state_dict()[name]) for name, leaf in twin.state_dict().items())
        assert [name for name, _ in twin.named_parameters()] == [name for name, _ in module.named_parameters()]

    @pytest.mark.parametrize("nested", [False, True], ids=["in one place", "in two places"])
    def test_no_layer_that_draws_or_couples_stays(self, nested: bool) -> None:
        left = [type(child) for child in twinned(Shared(nested)).modules()]
        assert not {nn.Dropout, nn.BatchNorm1d} & set(left)

    @pytest.mark.parametrize("nested", [False, True], ids=["in one place", "in two places"])
    def test_a_layer_in_two_places_stays_one_layer(self, nested: bool) -> None:
        """Its running statistics see both uses, and its names stay those of the original."""
        module = Shared(nested).double()
        twin = twinned(module)
        for child in twin.modules():
            if isinstance(child, KeyedDropout):
                child.p = 0.0
        for child in module.modules():
            if isinstance(child, nn.Dropout):
                child.p = 0.0
        x = normal(5, 6)
        close(twin(x), module(x))
        expected = dict(module.named_buffers())
        found = {name: buffer for name, buffer in twin.named_buffers() if "headway" not in name}
        close(found, expected)


# ── Network ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Tied(nn.Module):
    """One matrix forth and back."""

    def __init__(self) -> None:
        super().__init__()
        self.forth, self.back = nn.Linear(6, 6, bias=False), nn.Linear(6, 6)
        self.back.weight = self.forth.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.back(torch.tanh(self.forth(x)))


def other(vector: Vector, seed: int = 5) -> Vector:
    """Other numbers of the same shapes."""
    return vector.unflat(normal(len(vector), seed=seed))


def gradient(chosen: Network, w: Vector, x: Tensor) -> Vector:
    at = w.map(lambda leaf: leaf.clone().requires_grad_())
    ones = torch.ones(len(x), dtype=torch.float64)
    output, _ = chosen.train(at, chosen.buffers, x, ones, key_tensor(0))
    return Vector(
        dict(zip(at.leaves, torch.autograd.grad(output.logits.square().sum(), list(at.leaves.values())), strict=True))
    )


class TestNetwork:
    def test_module_and_network_have_the_same_numbers(self) -> None:
        chosen = Network(mixed())
        w = other(chosen.parameters)
        x = normal(6, 6)
        _, buffers = chosen.train(w, chosen.buffers, x, torch.ones(6).double(), key_tensor(0))
        module = chosen.module(w, buffers)
        again = Network(module)
        assert again.parameters.leaves.keys() == w.leaves.keys()
        assert torch.equal(again.parameters.flat(), w.flat())
        assert all(torch.equal(again.buffers[name], buffer) for name, buffer in buffers.items())
        assert [type(child) for child in module.modules()] == [type(child) for child in mixed().modules()]
        close(module.eval()(x), chosen.evaluate(w, buffers, x))

    def test_making_and_using_a_network_leaves_the_module_alone(self) -> None:
        module = mixed()
        before = copy.deepcopy(module.state_dict())
        chosen = Network(module)
        chosen.train(other(chosen.parameters), chosen.buffers, normal(6, 6), torch.ones(6).double(), key_tensor(0))
        with torch.no_grad():
            chosen.module(chosen.parameters, chosen.buffers)[0].weight.fill_(3)
        chosen.to(torch.device("cpu"), torch.float32)
        assert all(torch.equal(leaf, before[name]) for name, leaf in module.state_dict().items())
        assert {leaf.dtype for leaf in chosen.parameters.leaves.values()} == {torch.float64}

    def test_a_training_pass_is_a_function_of_its_inputs(self) -> None:
        chosen = Network(mixed())
        x, weight = normal(6, 6), torch.ones(6).double()
        held = {name: buffer.clone() for name, buffer in chosen.buffers.items()}
        first, after = chosen.train(chosen.parameters, chosen.buffers, x, weight, key_tensor(0))
        chosen.evaluate(other(chosen.parameters), after, x)
        second, again = chosen.train(chosen.parameters, chosen.buffers, x, weight, key_tensor(0))
        assert torch.equal(first.logits, second.logits)
        assert all(torch.equal(after[name], again[name]) for name in after)
        assert all(torch.equal(chosen.buffers[name], held[name]) for name in held)
        another, _ = chosen.train(chosen.parameters, chosen.buffers, x, weight, key_tensor(1))
        assert not torch.equal(first.logits, another.logits)

    def test_padded_rows_change_nothing(self) -> None:
        chosen = Network(mixed())
        x = normal(5, 6)
        padded = torch.cat([x, 30 * normal(3, 6, seed=8)])
        weight = torch.cat([torch.ones(5), torch.zeros(3)]).double()
        expected, buffers = chosen.train(chosen.parameters, chosen.buffers, x, weight[:5], key_tensor(0))
        found, after = chosen.train(chosen.parameters, chosen.buffers, padded, weight, key_tensor(0))
        close(found.logits[:5], expected.logits)
        close(after, buffers)

    def test_dropout_layers_of_one_network_drop_differently(self) -> None:
        module = Staged(nn.Dropout(0.5), nn.Dropout(0.5), nn.Linear(40, 40))
        chosen = Network(module.double(), needs=frozenset({"stages"}))
        x, ones = torch.ones(40, 40).double(), torch.ones(40).double()
        output, _ = chosen.train(chosen.parameters, chosen.buffers, x, ones, key_tensor(0))
        one, both = (stage != 0 for stage in output.stages)
        kept = float(both[one].double().mean())
        assert abs(kept - 0.5) < 4.5 * math.sqrt(0.25 / int(one.sum()))

    def test_frozen_parameters_stay_and_are_not_sent(self) -> None:
        module = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)).double()
        module[0].requires_grad_(False)
        chosen = Network(module)
        assert list(chosen.parameters.leaves) == ["2.weight", "2.bias"]
        w = other(chosen.parameters)
        filled = chosen.module(w, chosen.buffers)
        assert torch.equal(filled[0].weight, module[0].weight)
        assert [leaf.requires_grad for leaf in filled.parameters()] == [False, False, True, True]
        x = normal(4, 6)
        close(chosen.evaluate(w, chosen.buffers, x), filled(x).detach())
        assert list(gradient(chosen, w, x).leaves) == ["2.weight", "2.bias"]

    def test_a_module_with_nothing_to_learn_is_refused(self) -> None:
        with pytest.raises(UserError, match="no parameter that can be trained"):
            Network(nn.Linear(2, 2).requires_grad_(False))

    def test_tied_weights_are_one_leaf_and_stay_tied(self) -> None:
        module = Tied().double()
        chosen = Network(module)
        assert list(chosen.parameters.leaves) == ["forth.weight", "back.bias"]
        w = other(chosen.parameters)
        filled = chosen.module(w, chosen.buffers)
        assert filled.back.weight is filled.forth.weight
        assert torch.equal(filled.forth.weight, w.leaves["forth.weight"])
        x = normal(4, 6)
        close(chosen.evaluate(w, chosen.buffers, x), filled(x).detach())
        expected = torch.autograd.grad(filled(x).square().sum(), list(filled.parameters()))
        close(list(gradient(chosen, w, x).leaves.values()), list(expected))

    def test_batch_statistics_can_be_refused(self) -> None:
        with pytest.raises(UserError, match="batch statistics in '1' and buffers is 'refuse'"):
            Network(mixed(), policy="refuse")
        Network(Tied(), policy="refuse")

    def test_local_statistics_evaluate_with_the_batch_at_hand(self) -> None:
        module = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3)).double()
        x = 5 + 2 * normal(8, 6)
        local, shared = Network(module, policy="keep-local"), Network(module)
        close(local.evaluate(local.parameters, local.buffers, x), module.train()(x).detach())
        assert not torch.allclose(shared.evaluate(shared.parameters, shared.buffers, x), module(x).detach())

    def test_another_type_for_all_its_first_numbers(self) -> None:
        chosen = Network(mixed().float()).to(torch.device("cpu"), torch.float64)
        kinds = {leaf.dtype for leaf in [*chosen.parameters.leaves.values(), *chosen.buffers.values()]}
        assert kinds == {torch.float64, torch.int64}
        assert chosen.evaluate(chosen.parameters, chosen.buffers, normal(2, 6)).dtype == torch.float64


# ── stages ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def deep() -> nn.Module:
    """Stages with everything in them that draws or couples."""
    return Staged(
        nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU()),
        nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 8), nn.Tanh()),
        nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)),
        nn.Linear(8, 3),
    )


STAGED = {
    "deep": (deep, (6,)),
    "linear": (lambda: network("linear", (1, 4, 4), 3), (1, 4, 4)),
    "mlp": (lambda: network("mlp", (1, 4, 4), 3), (1, 4, 4)),
    "cnn": (lambda: network("cnn", (1, 8, 8), 3), (1, 8, 8)),
}
STAGES = frozenset({"stages"})


class TestStages:
    @pytest.mark.parametrize(("build", "shape"), STAGED.values(), ids=STAGED)
    def test_the_composition_of_the_stages_is_the_network(self, build: Any, shape: tuple[int, ...]) -> None:
        module = built(build, 0, "test").double()
        x = normal(5, *shape)
        whole, staged = Network(module), Network(module, needs=STAGES)
        assert staged.parameters.leaves.keys() == whole.parameters.leaves.keys()
        arguments = (x, torch.tensor([1, 1, 1, 1, 0]).double(), key_tensor(0))
        expected, buffers = whole.train(whole.parameters, whole.buffers, *arguments)
        found, after = staged.train(staged.parameters, staged.buffers, *arguments)
        assert torch.equal(found.logits, expected.logits)
        assert after.keys() == buffers.keys()
        assert all(torch.equal(after[name], buffers[name]) for name in buffers)
        assert len(found.stages) == len(module.stages) - 1
        assert torch.equal(
            staged.evaluate(staged.parameters, staged.buffers, x), whole.evaluate(whole.parameters, whole.buffers, x)
        )
        hidden = x
        for stage in module.eval().stages:
            hidden = stage(hidden)
        close(staged.evaluate(staged.parameters, staged.buffers, x), hidden.detach())

    @pytest.mark.parametrize(("build", "shape"), STAGED.values(), ids=STAGED)
    def test_from_any_stage_on_it_is_the_same_pass(self, build: Any, shape: tuple[int, ...]) -> None:
        module = built(build, 0, "test").double()
        chosen = Network(module, needs=STAGES)
        w, weight = chosen.parameters, torch.tensor([1, 1, 1, 1, 0]).double()
        output, _ = chosen.train(w, chosen.buffers, normal(5, *shape), weight, key_tensor(0))
        for stage, hidden in enumerate(output.stages):
            assert torch.equal(chosen.resume(w, chosen.buffers, stage, hidden, weight, key_tensor(0)), output.logits)

    def test_a_dropout_layer_in_two_stages_drops_the_same_from_any_stage_on(self) -> None:
        drop = nn.Dropout(0.5)
        halves = [nn.Sequential(nn.Linear(6, 6), drop) for _ in range(3)]
        chosen = Network(Staged(*halves, nn.Linear(6, 3)).double(), needs=STAGES)
        w, weight = chosen.parameters, torch.ones(5).double()
        output, _ = chosen.train(w, chosen.buffers, normal(5, 6), weight, key_tensor(0))
        for stage, hidden in enumerate(output.stages):
            assert torch.equal(chosen.resume(w, chosen.buffers, stage, hidden, weight, key_tensor(0)), output.logits)

    def test_a_module_without_stages_is_refused_where_they_are_needed(self) -> None:
        Network(mixed())
        with pytest.raises(UserError, match="give it an attribute `stages`"):
            Network(mixed(), needs=STAGES)
