"""The work that is timed: a network, and clients of equal size with random images.

Every client has exactly enough samples for full batches, so a round trains on cohort × steps × batch samples. No engine
evaluates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from headway import random
from headway.data.federation import Federation, Samples
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.errors import UserError, nearest
from headway.methods.spelling import method
from headway.models.networks import Staged, network
from headway.scenario import Scenario

CLASSES = 10
SEED = 0
MEAN, STD = 0.5, 0.29
"""About the mean and the deviation of uniform bytes divided by 255."""
ENDLESS = 10**9
"""More rounds than are ever timed, so that none is the last one and none is evaluated."""


def _mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """d-200-200-200-C with ReLU. 239,410 parameters (784, 10)."""
    widths = (prod(shape), 200, 200, 200)
    hidden = [nn.Sequential(nn.Linear(*pair), nn.ReLU()) for pair in itertools.pairwise(widths)]
    hidden[0].insert(0, nn.Flatten())
    return Staged(*hidden, nn.Linear(200, classes))


@dataclass(frozen=True)
class Workload:
    """A round is `cohort` clients × `steps` steps × `batch` samples."""

    name: str
    model: str
    """The name of a network of Headway's; the workload `mlp` has its own."""
    shape: tuple[int, ...]
    clients: int
    cohort: int
    epochs: int
    steps: int
    batch: int
    small: bool = True
    """Whether a round takes seconds on a CPU, and not minutes."""

    @property
    def samples(self) -> int:
        """How many samples each client has."""
        assert self.steps % self.epochs == 0
        return self.steps // self.epochs * self.batch

    @property
    def in_words(self) -> str:
        return f"{self.model} on {'×'.join(map(str, self.shape))}, {self.cohort} × {self.steps} × {self.batch}"

    def module(self) -> nn.Module:
        made = _mlp if self.name == "mlp" else partial(network, self.model)
        return random.built(lambda: made(self.shape, CLASSES), SEED, "bench/model")

    def federation(self) -> Federation:
        """Uniform bytes as images, with uniform labels; the test set, which nobody uses, has ten of the samples."""
        draw = random.generator(SEED, "bench/data")
        rows = self.clients * self.samples
        x = torch.from_numpy(draw.integers(0, 256, (rows, *self.shape), dtype=np.uint8))
        y = torch.from_numpy(draw.integers(0, CLASSES, rows))
        clients = np.split(np.arange(rows), self.clients)
        return Federation(Samples(x, y), Samples(x[:CLASSES], y[:CLASSES]), clients, CLASSES, MEAN, STD)

    def scenario(self, device: str, precision: str) -> Scenario:
        """FedAvg with clipping and weight decay, at a constant rate."""
        return Scenario(
            data="own",
            partition="own",
            clients=self.clients,
            cohort_size=self.cohort,
            epochs=self.epochs,
            batch_size=self.batch,
            rate=0.01,
            rate_decay=1.0,
            weight_decay=0.001,
            clip=10.0,
            rounds=ENDLESS,
            eval_every=ENDLESS,
            device=device,
            precision=precision,
        )

    def experiment(self, device: str, precision: str) -> Experiment:
        return build(
            self.scenario(device, precision), method("fedavg"), model=self.module(), federation=self.federation()
        )

    def flops(self) -> int:
        """Operations of a round: matrix products and convolutions, forward and backward, as torch counts them."""
        module = self.module().to("meta")
        x = torch.empty(self.batch, *self.shape, device="meta")
        y = torch.empty(self.batch, dtype=torch.int64, device="meta")
        with torch.enable_grad(), FlopCounterMode(display=False) as counter:
            torch.autograd.backward(F.cross_entropy(module(x), y))
        return int(counter.get_total_flops()) * self.steps * self.cohort


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("mlp", "784-200-200-200-10", (1, 28, 28), clients=50, cohort=10, epochs=1, steps=5, batch=64),
        Workload("cnn", "pfl-cnn", (3, 32, 32), clients=500, cohort=50, epochs=1, steps=5, batch=10),
        Workload("lenet", "lenet5", (3, 32, 32), clients=50, cohort=10, epochs=1, steps=5, batch=64),
        Workload(
            "resnet18-b50", "resnet18", (3, 32, 32), clients=100, cohort=5, epochs=5, steps=50, batch=50, small=False
        ),
        Workload(
            "resnet18-b10", "resnet18", (3, 32, 32), clients=500, cohort=10, epochs=5, steps=50, batch=10, small=False
        ),
    )
}


def usual(device_type: str) -> list[str]:
    """The workloads that are measured where none is named: on a CPU those whose rounds take seconds."""
    return [name for name, work in WORKLOADS.items() if work.small or device_type == "cuda"]


def workloads(names: Iterable[str]) -> list[Workload]:
    """The workloads of these names; an unknown one is refused with those that are known."""
    chosen = list(names)
    for name in chosen:
        if name not in WORKLOADS:
            raise UserError(f"there is no workload '{name}'{nearest(name, WORKLOADS)} (known: {', '.join(WORKLOADS)})")
    return [WORKLOADS[name] for name in chosen]
