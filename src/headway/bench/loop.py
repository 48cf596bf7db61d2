"""FedAvg by hand in PyTorch, without compilation or graphs: the plain loop with which all engines are compared.

It is written to be fast: data on the device as bytes, one optimiser for all clients, lists of tensors (`foreach`) for
clipping, stepping, resetting and averaging, no wait for the device inside a round, and the fastest of its variants.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from headway import random
from headway.data.federation import Federation
from headway.engine.experiment import Experiment
from headway.scenario import Scenario

TRIAL_STEPS = 5
TRIALS = 3

RoundBatches = Callable[[int], Iterable[tuple[int, Sequence[Tensor]]]]
"""Round → for each client of the cohort, its number of samples and the rows of each of its batches, on the device."""


@dataclass(frozen=True)
class Variant:
    """Choices that PyTorch leaves to the programmer: whether to use tf32, and how images lie in memory."""

    precision: str = "fp32"
    channels_last: bool = False

    @property
    def layout(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format

    @property
    def options(self) -> dict[str, str]:
        return {"layout": "channels-last" if self.channels_last else "contiguous"}

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Sets the process's use of tf32, and restores it."""
        matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, convolution.allow_tf32
        matmul.allow_tf32 = convolution.allow_tf32 = self.precision == "tf32"
        try:
            yield
        finally:
            matmul.allow_tf32, convolution.allow_tf32 = before


def variants(module: nn.Module, device: torch.device) -> list[Variant]:
    """The choices that can make a difference for this network on this device."""
    images = any(isinstance(layer, nn.Conv2d) for layer in module.modules())
    return [
        Variant(precision, channels_last)
        for precision in (("fp32", "tf32") if device.type == "cuda" else ("fp32",))
        for channels_last in ((False, True) if images else (False,))
    ]


class LocalSGD:
    """Local SGD of one model on a device: for each batch of rows a gradient, clipped, and a step with weight decay."""

    def __init__(
        self,
        module: nn.Module,
        federation: Federation,
        scenario: Scenario,
        device: torch.device,
        variant: Variant,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        assert not list(module.buffers()), "the plain loop averages parameters only"
        self.module = module.to(device, dtype).train()
        if variant.channels_last:
            self.module = self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.parameters = list(self.module.parameters())
        self.values = [leaf.detach() for leaf in self.parameters]
        self.pool = federation.train.to(device)
        self.normalise = normaliser(federation, variant, dtype, device)
        self.clip = scenario.clip
        self.optimiser = torch.optim.SGD(
            self.parameters, lr=scenario.rate, weight_decay=scenario.weight_decay, foreach=True
        )

    def train(self, batches: Sequence[Tensor]) -> None:
        """One step for each batch; a batch is the rows of its samples."""
        x, y = self.pool.x, self.pool.labels
        assert isinstance(x, Tensor)
        for rows in batches:
            loss = F.cross_entropy(self.module(self.normalise(x[rows])), y[rows])
            self.optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            if self.clip:
                clip_grad_norm_(self.parameters, self.clip, foreach=True)
            self.optimiser.step()


def normaliser(
    federation: Federation, variant: Variant, dtype: torch.dtype, device: torch.device
) -> Callable[[Tensor], Tensor]:
    """A function from bytes x to (x/255 − mean)/std, in one tensor of the variant's layout."""
    constants = (federation.mean, federation.std)
    mean, std = (torch.tensor(part, dtype=dtype, device=device).reshape(-1, 1, 1) for part in constants)

    def normalise(x: Tensor) -> Tensor:
        return x.to(dtype, memory_format=variant.layout).div_(255).sub_(mean).div_(std)

    return normalise


def draw_batches(experiment: Experiment) -> RoundBatches:
    """Cohorts and their batches from random permutations made on the host; a round's rows are sent in one piece."""
    scenario, order = experiment.scenario, random.permutations(experiment.scenario.seed, "bench/loop")
    clients = [torch.as_tensor(np.asarray(rows)) for rows in experiment.federation.clients]

    def batches_of(number: int) -> Iterable[tuple[int, Sequence[Tensor]]]:
        chosen = order(len(clients))[: scenario.cohort].tolist()
        sizes = [len(clients[client]) for client in chosen]
        read = [
            clients[client][order(size)]
            for client, size in zip(chosen, sizes, strict=True)
            for _ in range(scenario.epochs)
        ]
        table = torch.split(torch.cat(read).to(experiment.device), [scenario.epochs * size for size in sizes])
        return [(size, torch.split(rows, scenario.batch_size)) for size, rows in zip(sizes, table, strict=True)]

    return batches_of


class PlainLoop:
    """FedAvg: w ← Σ_i (n_i/Σ_j n_j) w_i, where w_i is w after client i's batches."""

    name = "loop"

    def __init__(
        self, experiment: Experiment, variant: Variant | None = None, batches: RoundBatches | None = None
    ) -> None:
        network = experiment.network

        def local_sgd(variant: Variant) -> LocalSGD:
            module = network.module(network.parameters, network.buffers)
            dtype = torch.float64 if experiment.scenario.precision == "fp64" else torch.float32
            return LocalSGD(module, experiment.federation, experiment.scenario, experiment.device, variant, dtype)

        self.batches = batches or draw_batches(experiment)
        if variant is None:
            candidates = variants(network.original, experiment.device)
            first = next(iter(self.batches(1)))[1][:TRIAL_STEPS]
            variant = min(candidates, key=lambda candidate: _trial(local_sgd(candidate), candidate, first))
        self.variant, self.precision, self.options = variant, variant.precision, variant.options
        self.local = local_sgd(variant)
        self.start = [torch.empty_like(leaf) for leaf in self.local.values]
        self.mean = [torch.zeros_like(leaf) for leaf in self.local.values]
        self.round = 0

    def play(self) -> None:
        """One round; on a GPU it may still be running when this returns."""
        self.round += 1
        clients = list(self.batches(self.round))
        total = sum(size for size, _ in clients)
        values = self.local.values
        with self.variant.arithmetic(), torch.enable_grad():
            torch._foreach_copy_(self.start, values)
            torch._foreach_zero_(self.mean)
            for size, batches in clients:
                self.local.train(batches)
                torch._foreach_add_(self.mean, values, alpha=size / total)
                torch._foreach_copy_(values, self.start)
            torch._foreach_copy_(values, self.mean)

    def close(self) -> None:
        pass


def _trial(local: LocalSGD, variant: Variant, batches: Sequence[Tensor]) -> float:
    """Seconds of a few steps: the least of several tries after one to warm up."""
    taken = []
    with variant.arithmetic(), torch.enable_grad():
        for _ in range(1 + TRIALS):
            start = time.perf_counter()
            local.train(batches)
            wait_for(local.pool.labels.device)
            taken.append(time.perf_counter() - start)
    return min(taken[1:])


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
