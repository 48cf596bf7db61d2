"""The papers' networks: their sizes, their stages, and the same gradient in every executor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from conftest import EXECUTORS, SMALL, played
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.engine.network import Network
from headway.engine.trial import first_rounds, round_input
from headway.errors import UserError
from headway.methods.spelling import method
from headway.models.networks import NETWORKS, network
from headway.models.staged import branch_points
from headway.models.twins import KeyedDropout, WeightedBatchNorm, twinned
from headway.random import built
from headway.trees import leaves_of, row

CLASSIFIERS = [name for name in NETWORKS if not name.startswith("gpt-")]
"""Networks that answer once a sample; those that answer at each place of it are in test_gpt.py."""

COUNTS = [
    ("linear", (1, 28, 28), 10, 7_850),
    ("mlp", (1, 28, 28), 10, 178_110),
    ("cnn", (1, 28, 28), 10, 54_362),
    ("resnet18", (3, 32, 32), 10, 11_173_962),
    ("resnet18", (3, 32, 32), 100, 11_220_132),
    ("resnet18", (3, 64, 64), 200, 11_271_432),
    ("resnet18-imagenet", (3, 32, 32), 10, 11_181_642),
    ("resnet18-imagenet", (3, 32, 32), 1000, 11_689_512),
    ("resnet20", (3, 32, 32), 10, 269_722),
    ("resnet20", (3, 64, 64), 200, 282_072),
    ("vgg9", (3, 32, 32), 10, 3_493_258),
    ("vgg9", (3, 32, 32), 100, 3_539_428),
    ("vgg9", (3, 64, 64), 200, 3_590_728),
    ("vgg11", (3, 32, 32), 100, 9_304_548),
    ("lenet5", (3, 32, 32), 10, 62_006),
    ("gradma-lenet", (3, 32, 32), 10, 941_834),
    ("gradma-mlp", (1, 28, 28), 10, 178_710),
    ("gradma-mlp", (1, 28, 28), 62, 183_962),
    ("femnist-cnn", (1, 28, 28), 62, 6_603_710),
    ("celeba-cnn", (3, 84, 84), 2, 31_202),
    ("shakespeare-lstm", (80,), 80, 819_920),
    ("fednag-cnn", (1, 28, 28), 10, 62_346),
    ("fednag-cnn", (3, 32, 32), 10, 69_706),
    ("pfl-cnn", (3, 32, 32), 10, 1_626_442),
]
"""Name, shape, classes, parameters: counted in the networks of FedACG's program of 2024, of GradMA's of 2023
and of pfl-research's benchmark of CIFAR-10; resnet18-imagenet's with 1,000 classes is torchvision's; the others from
their layers' sizes."""

TINY: dict[str, tuple[int, ...]] = {
    "linear": (1, 4, 4),
    "mlp": (1, 4, 4),
    "cnn": (1, 8, 8),
    "resnet18": (3, 8, 8),
    "resnet18-imagenet": (3, 33, 40),
    "resnet20": (3, 9, 8),
    "vgg9": (3, 32, 32),
    "vgg11": (3, 32, 32),
    "lenet5": (1, 16, 18),
    "gradma-lenet": (3, 16, 18),
    "gradma-mlp": (1, 4, 4),
    "femnist-cnn": (1, 8, 9),
    "celeba-cnn": (3, 17, 20),
    "shakespeare-lstm": (7,),
    "fednag-cnn": (1, 16, 18),
    "pfl-cnn": (3, 8, 9),
}
"""The smallest samples, or nearly, that each network takes."""

FEATURES = {
    "linear": 16,
    "mlp": 100,
    "cnn": 64,
    "resnet18": 512,
    "resnet18-imagenet": 512,
    "resnet20": 64,
    "vgg9": 4096,
    "vgg11": 128,
    "lenet5": 84,
    "gradma-lenet": 128,
    "gradma-mlp": 100,
    "femnist-cnn": 2048,
    "celeba-cnn": 32 * 2 * 2,
    "shakespeare-lstm": 256,
    "fednag-cnn": 64,
    "pfl-cnn": 128,
}
BRANCHES = {
    "linear": 1,
    "mlp": 2,
    "cnn": 3,
    "resnet18": 5,
    "resnet18-imagenet": 5,
    "resnet20": 4,
    "vgg9": 6,
    "vgg11": 6,
    "lenet5": 4,
    "gradma-lenet": 4,
    "gradma-mlp": 2,
    "femnist-cnn": 3,
    "celeba-cnn": 4,
    "shakespeare-lstm": 2,
    "fednag-cnn": 2,
    "pfl-cnn": 3,
}
CLASSES = 3
STACKS = [name for name in CLASSIFIERS if name != "shakespeare-lstm"]


def tiny(name: str) -> Any:
    return built(lambda: network(name, TINY[name], CLASSES), 0, "test").double()


def samples(name: str, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random samples of the network's kind; the last class is there."""
    draw = np.random.default_rng(seed)
    shape = (count, *TINY[name])
    x = draw.normal(size=shape) if len(shape) > 2 else draw.integers(0, CLASSES, size=shape)
    y = draw.integers(0, CLASSES, size=count)
    y[-1] = CLASSES - 1
    return x, y


def two_clients(name: str, sizes: tuple[int, int], spelled: str = "fedavg", **chosen: Any) -> Experiment:
    """A experiment in which every client's first batch is its whole data; nothing is clipped or decayed."""
    scenario = SMALL.changed(
        participation=1.0, batch_size=max(sizes), rate=1.0, rate_decay=1.0, weight_decay=0.0, clip=0.0, **chosen
    )
    clients = [samples(name, size, seed) for seed, size in enumerate(sizes)]
    return build(scenario, method(spelled), model=tiny(name), clients=clients, test=samples(name, 2, 9))


class TestSizes:
    @pytest.mark.parametrize(("name", "shape", "classes", "parameters"), COUNTS)
    def test_parameters(self, name: str, shape: tuple[int, ...], classes: int, parameters: int) -> None:
        with torch.device("meta"):
            module = network(name, shape, classes)
        assert sum(leaf.numel() for leaf in module.parameters()) == parameters

    def test_every_network_is_counted(self) -> None:
        assert {name for name, *_ in COUNTS} == TINY.keys() == FEATURES.keys() == BRANCHES.keys() == set(CLASSIFIERS)

    def test_tensors_and_buffers(self) -> None:
        """ResNet-18: 62 tensors and no buffer; GradMA's LeNet: 18 and 12."""
        for name, tensors, buffers in (("resnet18", 62, 0), ("gradma-lenet", 18, 12)):
            module = tiny(name)
            assert len(list(module.parameters())) == tensors
            assert len(list(module.buffers())) == buffers

    def test_a_first_weight_of_vgg9_has_variance_2_by_k2_c_out(self) -> None:
        layer = tiny("vgg9").stages[5][0]
        assert float(layer.weight.detach().std()) == pytest.approx(math.sqrt(2 / (9 * 256)), rel=0.01)
        assert not layer.bias.any()

    def test_first_weights_of_pfl_cnn_are_xavier_uniform(self) -> None:
        layer = tiny("pfl-cnn").stages[1][0]
        bound = math.sqrt(6 / (9 * 32 + 9 * 64))
        assert bound * 0.99 < float(layer.weight.detach().abs().max()) <= bound


class TestShapes:
    @pytest.mark.parametrize("name", ["linear", "mlp", "cnn", "resnet20", "celeba-cnn"])
    @settings(deadline=None, max_examples=15)
    @given(st.integers(1, 3), st.integers(1, 33), st.integers(1, 33), st.integers(1, 12))
    def test_one_number_for_each_class_whatever_the_image(
        self, name: str, channels: int, height: int, width: int, classes: int
    ) -> None:
        module = network(name, (channels, height, width), classes).eval()
        assert module(torch.zeros(2, channels, height, width)).shape == (2, classes)

    @pytest.mark.parametrize(("name", "shape", "classes", "parameters"), COUNTS)
    def test_one_number_for_each_class(self, name: str, shape: tuple[int, ...], classes: int, parameters: int) -> None:
        with torch.device("meta"):
            module = network(name, shape, classes).eval()
            x = torch.zeros(2, *shape, dtype=torch.int64 if len(shape) == 1 else torch.float32)
            assert module(x).shape == (2, classes)

    @pytest.mark.parametrize(
        ("name", "least"),
        [("vgg9", 32), ("vgg11", 32), ("lenet5", 16), ("gradma-lenet", 16), ("fednag-cnn", 16), ("femnist-cnn", 4)],
    )
    def test_an_image_that_vanishes_on_the_way_is_refused(self, name: str, least: int) -> None:
        network(name, (1, least, least), 2)(torch.randn(2, 1, least, least))
        with pytest.raises(UserError, match=f"'{name}' takes images of at least {least} × {least}, not of {least - 1}"):
            network(name, (1, least - 1, least), 2)

    def test_what_there_is_not_is_refused(self) -> None:
        with pytest.raises(UserError, match=r"no model 'mpl'; did you mean 'mlp'\? \(known: linear, mlp, cnn, resnet"):
            network("mpl", (1, 28, 28), 10)
        with pytest.raises(UserError, match=r"'cnn' takes images .* not samples of shape \(6,\)"):
            network("cnn", (6,), 3)
        with pytest.raises(UserError, match=r"sides that are multiples of 32, not of 40 × 32"):
            network("vgg9", (3, 40, 32), 10)
        with pytest.raises(UserError, match=r"takes series of tokens \(length,\), not samples of shape \(3, 8, 8\)"):
            network("shakespeare-lstm", (3, 8, 8), 80)


def conventional(
    parameters: Iterator[Tensor], x: Tensor, widths: tuple[int, ...], blocks: int, for_imagenet: bool = False
) -> Tensor:
    """A ResNet with a ReLU after every sum, as its paper writes it, from the parameters in order."""

    def layer(x: Tensor, stride: int = 1) -> Tensor:
        weight = next(parameters)
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        return F.group_norm(x, 2, next(parameters), next(parameters))

    x = F.max_pool2d(F.relu(layer(x, 2)), 3, stride=2, padding=1) if for_imagenet else F.relu(layer(x))
    for number, width in enumerate(widths):
        for block in range(blocks):
            stride = 2 if number > 0 and block == 0 else 1
            y = layer(F.relu(layer(x, stride)))
            if stride == 2 and len(widths) == 4:
                x = layer(x, 2)
            elif stride == 2:
                x = torch.cat([x[:, :, ::2, ::2], torch.zeros_like(y)[:, width // 2 :]], 1)
            x = F.relu(y + x)
    return F.linear(x.mean((2, 3)), next(parameters), next(parameters))


class TestStages:
    @pytest.mark.parametrize("name", CLASSIFIERS)
    def test_the_composition_of_the_stages_is_the_network(self, name: str) -> None:
        """Through `Network`, in training, with every output the same from any stage on."""
        module = tiny(name)
        whole, staged = Network(module), Network(module, needs=frozenset({"stages"}))
        x, weight, key = torch.from_numpy(samples(name, 3)[0]), torch.tensor([1, 1, 0]).double(), torch.tensor([3, 4])
        w, buffers = whole.parameters, whole.buffers
        with torch.no_grad():
            expected, _ = whole.train(w, buffers, x, weight, key)
            found, _ = staged.train(w, buffers, x, weight, key)
            assert torch.equal(found.logits, expected.logits)
            for stage, hidden in enumerate(found.stages):
                assert torch.equal(staged.resume(w, buffers, stage, hidden, weight, key), found.logits)
            assert torch.equal(module.eval()(x), nn.Sequential(*module.stages)(x))

    @pytest.mark.parametrize("name", CLASSIFIERS)
    def test_the_feature(self, name: str) -> None:
        """The input of the last stage is a vector of the known size."""
        *before, last = tiny(name).eval().stages
        feature = nn.Sequential(*before)(torch.from_numpy(samples(name, 2)[0]))
        assert feature.shape == (2, FEATURES[name])
        assert last(feature).shape == (2, CLASSES)

    @pytest.mark.parametrize("name", CLASSIFIERS)
    def test_branch_points(self, name: str) -> None:
        stages = tiny(name).stages
        points = branch_points(stages)
        assert len(points) == BRANCHES[name]
        assert points == tuple(sorted(set(points)))
        assert len(stages) - 1 not in points

    @pytest.mark.parametrize(
        ("name", "widths", "blocks"),
        [
            ("resnet18", (64, 128, 256, 512), 2),
            ("resnet18-imagenet", (64, 128, 256, 512), 2),
            ("resnet20", (16, 32, 64), 3),
        ],
    )
    def test_a_resnet_is_the_conventional_one(self, name: str, widths: tuple[int, ...], blocks: int) -> None:
        module, x = tiny(name), torch.from_numpy(samples(name, 2)[0])
        parameters = iter(list(module.parameters()))
        expected = conventional(parameters, x, widths, blocks, for_imagenet=name == "resnet18-imagenet")
        torch.testing.assert_close(module(x), expected)
        assert next(parameters, None) is None

    def test_stages_of_a_resnet_end_before_their_last_relu(self) -> None:
        """Five points, 0 to 4, negative numbers in each; the pooled feature is not negative."""
        module, hidden = tiny("resnet18"), torch.from_numpy(samples("resnet18", 2)[0])
        lowest = []
        for stage in list(module.stages)[:-1]:
            hidden = stage(hidden)
            lowest.append(float(hidden.detach().min()))
        assert branch_points(module.stages) == (0, 1, 2, 3, 4)
        assert max(lowest[:5]) < 0 <= lowest[5]

    def test_a_stage_that_learns_nothing_opens_no_path_of_its_own(self) -> None:
        """Leaving ResNet-18 before or after its pooling is the same path through a frozen model."""
        staged = Network(tiny("resnet18"), needs=frozenset({"stages"}))
        frozen = staged.parameters.map(lambda leaf: 1.1 * leaf + 0.01)
        weight, key = torch.ones(2).double(), torch.tensor([3, 4])
        with torch.no_grad():
            x = torch.from_numpy(samples("resnet18", 2)[0])
            output, _ = staged.train(staged.parameters, {}, x, weight, key)
            paths = [staged.resume(frozen, {}, at, output.stages[at], weight, key) for at in range(6)]
        assert torch.equal(paths[4], paths[5])
        assert all(not torch.allclose(one, other) for one, other in pairwise(paths[:5]))

    def test_a_frozen_stage_opens_no_path_either(self) -> None:
        stages = [nn.Linear(3, 3), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)]
        assert branch_points(stages) == (0, 1)
        stages[1].requires_grad_(False)
        assert branch_points(iter(stages)) == (0,)


class TestTwins:
    @pytest.mark.parametrize("name", CLASSIFIERS)
    def test_names_stay(self, name: str) -> None:
        module = tiny(name)
        twin = twinned(module)
        assert twin.state_dict().keys() == module.state_dict().keys()
        assert all(torch.equal(twin.state_dict()[key], value) for key, value in module.state_dict().items())

    @pytest.mark.parametrize(
        ("name", "norms", "drops"),
        [
            ("vgg11", 8, 1),
            ("gradma-lenet", 4, 2),
            ("gradma-mlp", 2, 0),
            ("celeba-cnn", 4, 0),
            ("pfl-cnn", 0, 2),
            ("resnet18", 0, 0),
        ],
    )
    def test_layers_that_draw_or_couple(self, name: str, norms: int, drops: int) -> None:
        layers = list(twinned(tiny(name)).modules())
        assert sum(isinstance(layer, WeightedBatchNorm) for layer in layers) == norms
        assert sum(isinstance(layer, KeyedDropout) for layer in layers) == drops


def uploads(experiment: Experiment, executor: str) -> list[Any]:
    """For each client Δ_i = −∇f_i of one step with η = 1, its loss and its buffers."""
    hand = EXECUTORS[executor](experiment)
    with experiment.arithmetic():
        rounds = first_rounds(experiment, range(experiment.population), steps_at_most=1)
        groups = [group.trained for group in hand.run(round_input(experiment), rounds)]
        parts = [(trained["fields"]["delta"], trained["loss"], trained["buffers"]) for trained in groups]
    return [row(part, number) for part in parts for number in range(len(part[1]))]


def agree(mine: Any, theirs: Any, rtol: float = 1e-8, atol: float = 1e-12) -> None:
    for one, other in zip(leaves_of(mine), leaves_of(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


class TestExecutors:
    @pytest.mark.parametrize("name", STACKS)
    def test_the_same_gradient_in_serial_and_batched(self, name: str) -> None:
        """In float64, for clients of 3 and 2 samples, so that one has a row of padding; no tensor is left out."""
        experiment = two_clients(name, (3, 2))
        for mine, theirs in zip(uploads(experiment, "serial"), uploads(experiment, "batched"), strict=True):
            assert all(leaf.any() for leaf in leaves_of(mine[0]))
            agree(mine, theirs)

    def test_the_lstm_runs_in_serial_and_pool(self) -> None:
        experiment = two_clients("shakespeare-lstm", (3, 2), rounds=2)
        (records, end), (others, other) = played(experiment, "serial"), played(experiment, "pool")
        agree(end.model.theta, other.model.theta)
        assert [record["train_loss"] for record in records] == pytest.approx([o["train_loss"] for o in others])
        assert records[1]["train_loss"] < records[0]["train_loss"]

    @pytest.mark.parametrize("spelled", ["moon", "fedmlb", "feddecorr"])
    def test_methods_that_look_inside_a_resnet(self, spelled: str) -> None:
        experiment = two_clients("resnet20", (3, 2), spelled)
        for mine, theirs in zip(uploads(experiment, "serial"), uploads(experiment, "batched"), strict=True):
            agree(mine, theirs)
