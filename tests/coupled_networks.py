"""Networks whose samples change each other within a batch, and federated averaging with them as a plain loop."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conftest import SMALL, unequal_clients
from headway.data.batches import plan
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.methods.spelling import method
from headway.models.networks import Staged
from headway.random import built


class Normalised(nn.Module):
    """A batch normalisation written by hand, with running statistics that it changes in their place."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("variance", torch.ones(features))
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = self.mean, self.variance
        if self.training:
            mean, variance = x.mean(0), x.var(0, unbiased=False)
            with torch.no_grad():
                self.mean.mul_(0.9).add_(0.1 * mean)
                self.variance.mul_(0.9).add_(0.1 * variance)
                self.passes += 1
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.scale + self.shift


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if self.training else x


class Similar(nn.Module):
    """Every sample beside those that are like it: attention over the batch."""

    def forward(self, x: Tensor) -> Tensor:
        directions = F.normalize(x, dim=1)
        return x + torch.softmax(directions @ directions.T, 1) @ x


class Instances(nn.Module):
    """Features as two channels, each sample normalised alone; running statistics are of the whole batch."""

    def __init__(self, kind: Any, *shape: int) -> None:
        super().__init__()
        self.norm, self.shape = kind(2, affine=True, track_running_stats=True), shape

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.reshape(-1, 2, *self.shape)).flatten(1)  # type: ignore[no-any-return]


class Gated(nn.Module):
    """What couples samples stands behind a gate that is closed at first."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gate * (x - x.mean(0))


def _around(*layers: nn.Module) -> nn.Module:
    return Staged(nn.Sequential(nn.Linear(6, 6), *layers, nn.Tanh()), nn.Linear(6, 3))


COUPLED: dict[str, Any] = {
    "batch norm by hand": lambda: _around(Normalised(6)),
    "centred": lambda: _around(Centred()),
    "similarities": lambda: _around(Similar()),
    "instance norm": lambda: _around(Instances(nn.InstanceNorm1d, 3)),
    "instance norm of images": lambda: _around(Instances(nn.InstanceNorm2d, 3, 1)),
    "closed gate": lambda: _around(Gated(6)),
}


def coupled_experiment(spelled: Any = "fedavg", network: str = "batch norm by hand", **settings: Any) -> Experiment:
    """Clients of 3 … 24 samples in batches of 4, so that most have a last batch of fewer; two of them are alike."""
    module = built(COUPLED[network], 7, "test")
    given = {"clip": 0.0, "weight_decay": 0.0, "rate_decay": 1.0, "rounds": 2, "participation": 1.0, **settings}
    return build(SMALL.changed(**given), method(spelled), model=module, **unequal_clients((3, 17, 8, 6, 6, 11)))


def averaged_by_hand(chosen: Experiment) -> dict[str, Tensor]:
    """The state dict after federated averaging as anybody would write it: modules, `torch.optim.SGD`, slices."""
    scenario, federation = chosen.scenario, chosen.federation
    server = copy.deepcopy(chosen.network.original).double()
    for number in range(1, scenario.rounds + 1):
        states, sizes = [], []
        for client in chosen.client_rounds.cohort(number).clients:
            module = copy.deepcopy(server).train()
            optimiser = torch.optim.SGD(module.parameters(), lr=scenario.rate)
            batches = plan(scenario, federation.clients[client], scenario.seed, number, client, 0)
            for rows, count in zip(torch.from_numpy(batches.rows), batches.counts.tolist(), strict=True):
                x, y = federation.train.x[rows[:count]].double(), federation.train.y[rows[:count]]
                optimiser.zero_grad()
                F.cross_entropy(module(x), y).backward()
                optimiser.step()
            states.append(module.state_dict())
            sizes.append(len(federation.clients[client]))
        server.load_state_dict({name: _mean([one[name] for one in states], sizes) for name in states[0]})
    return server.state_dict()


def _mean(tensors: list[Tensor], sizes: list[int]) -> Tensor:
    """Weighted by sizes; counters are rounded."""
    mean = sum(size * tensor.double() for size, tensor in zip(sizes, tensors, strict=True)) / sum(sizes)
    assert isinstance(mean, Tensor)
    return mean if tensors[0].is_floating_point() else mean.round().to(tensors[0].dtype)
