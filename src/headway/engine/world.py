"""`World`: a scenario and a method bound to data, network and device. Everything that is fixed during a run."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway import random
from headway.data import augmentation, partition, sources
from headway.data.batches import Planner, planned, uneven
from headway.data.federation import Federation, Samples, federate
from headway.data.finite import check_finite
from headway.data.participation import Fixed, Sampling, sampling
from headway.data.task import doubt, task_in_words
from headway.data.turnout import Turnout, turnout
from headway.data.validation import held_out
from headway.engine import coupling
from headway.engine.determinism import DETERMINISTIC
from headway.engine.local import Rules
from headway.engine.network import Network
from headway.errors import UserError, in_words
from headway.methods.method import Method
from headway.models.networks import network as build_network
from headway.scenario import DEFAULT_PARTICIPATION, Scenario
from headway.trees import copied, leaves_of

_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.float32, "fp64": torch.float64}
MIXES_AT_MOST = 1000
KNOWN = 1000
"""Clients about whom is remembered what all their tasks say."""


@dataclass(frozen=True)
class About:
    """A client's rows of the pool, and n_i, p_i and n_c as arrays. Whoever hands them on copies them."""

    rows: np.ndarray
    size: np.ndarray
    share: np.ndarray
    class_counts: np.ndarray


@dataclass(frozen=True)
class World:
    """What a run is about. The numbers that change are in `Progress`, never here."""

    scenario: Scenario
    method: Method
    federation: Federation
    network: Network
    rules: Rules
    device: torch.device
    split: Federation
    """The data as it was split among clients, also where a method pools them."""

    @property
    def population(self) -> int:
        return len(self.federation.clients)

    @cached_property
    def task(self) -> str:
        """What the targets were taken for, the loss and the measure, in words."""
        return task_in_words(self.federation, self.rules.squared)

    @cached_property
    def doubt(self) -> str | None:
        """Why the task may not be what is meant, where something speaks for it."""
        return doubt(self.federation)

    @cached_property
    def weight_total(self) -> float:
        """Σ_N of the unnormalised aggregation weights."""
        if self.scenario.weights == "uniform":
            return float(self.population)
        return float(self.federation.sizes.sum())

    def weight(self, client: int) -> float:
        return 1.0 if self.scenario.weights == "uniform" else float(self.federation.sizes[client])

    def weights(self, clients: Sequence[int]) -> np.ndarray:
        """`weight` of each."""
        sizes = self.federation.sizes[list(clients)]
        return np.ones(len(sizes)) if self.scenario.weights == "uniform" else sizes.astype(np.float64)

    def about(self, client: int) -> About:
        """What every task of a client says of it; that of the last clients is remembered."""
        if client not in self._known:
            if len(self._known) == KNOWN:
                self._known.clear()
            rows = self.federation.clients[client]
            kind = np.float64 if self.rules.dtype == torch.float64 else np.float32
            share = np.asarray(self.weight(client) / self.weight_total, kind)
            self._known[client] = About(rows, np.asarray(len(rows)), share, self.federation.class_counts(client))
        return self._known[client]

    @cached_property
    def _known(self) -> dict[int, About]:
        return {}

    @cached_property
    def sampling(self) -> Sampling:
        """Who is asked in a round."""
        return _sampling(self.scenario, self.method)

    def turnout(self, round: int) -> Turnout:
        """Who takes part in a round; the last answer is remembered, for who plans ahead."""
        if round not in self._turnouts:
            self._turnouts.clear()
            self._turnouts[round] = self._drawn(round)
        return self._turnouts[round]

    @cached_property
    def _turnouts(self) -> dict[int, Turnout]:
        return {}

    @cached_property
    def ahead(self) -> dict[int, Any]:
        """What was made of a round before its turn, while a device was busy."""
        return {}

    def _drawn(self, round: int) -> Turnout:
        asked = self.sampling.draw(round)
        if self.method.pooled:
            return Turnout(tuple(asked))
        places = self.scenario.cohort if self.scenario.over_selection else len(asked)

        def steps(client: int) -> int:
            return planned(self.scenario, int(self.federation.sizes[client]))

        return turnout(self.scenario, asked, places, steps, round)

    @cached_property
    def test(self) -> Samples:
        """The test samples on the run's device."""
        return self.federation.test.to(self.device)

    @cached_property
    def newcomer(self) -> dict[str, Any]:
        """What a client holds before its first round: state of slots, of the engine's stream and local statistics."""
        kept: dict[str, Any] = {"slots": self.method.client_state(self.network.parameters)}
        if self.scenario.batches == "continued":
            kept["cursor"] = torch.zeros((), dtype=torch.int64)
        if self.scenario.buffers == "keep-local":
            kept["buffers"] = self.network.buffers
        return copied(kept)  # type: ignore[no-any-return]

    @cached_property
    def keeps(self) -> bool:
        """Whether a client holds anything between its rounds."""
        return bool(leaves_of(self.newcomer))

    @cached_property
    def reads_whole(self) -> bool:
        """Whether some slot asks for a gradient over all of a client's data."""
        return "full_gradient" in self.method.needs("model")

    @cached_property
    def planner(self) -> Planner:
        return Planner(self.scenario, self.federation.clients)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of a task's tensors, the largest that this run can meet."""
        most = int(self.federation.sizes.max())
        steps, batch = planned(self.scenario, most), min(self.scenario.batch_size, most)
        whole = most if self.reads_whole else 0
        return {"rows": (steps, batch), "counts": (steps,), "rates": (steps,), "whole": (whole,)}

    @cached_property
    def coupling(self) -> str:
        """What rows that fill a batch change in this experiment; empty where they change nothing, or there are none."""
        least, most = int(self.federation.sizes.min()), int(self.federation.sizes.max())
        if not uneven(self.scenario, self.federation.sizes) and not (self.reads_whole and least < most):
            return ""
        with self.arithmetic():
            return coupling.found(self.rules, self.shapes["rows"][1])

    @cached_property
    def scores_jointly(self) -> bool:
        """Whether samples that are scored together change each other's outputs."""
        with self.arithmetic():
            return self.network.joint or coupling.in_evaluation(self.rules)

    @property
    def state_limit(self) -> int | None:
        """Bytes of client state in memory before the rest goes to a file."""
        limit = self.scenario.client_state_mb
        return None if limit is None else int(limit * 1e6)

    @cached_property
    def sample_weights(self) -> Tensor:
        """p_i/n_i of each row of the pool, so that Σ weights · losses is Σ_i p_i F_i."""
        weights = torch.zeros(len(self.federation.train), dtype=torch.float64)
        for client, rows in enumerate(self.federation.clients):
            weights[torch.as_tensor(rows)] = self.weight(client) / self.weight_total / len(rows)
        return weights

    @cached_property
    def mixes(self) -> np.ndarray:
        """Class shares of up to 1,000 clients, evenly spaced by id, shape (clients, classes)."""
        count = len(self.split.clients)
        chosen = np.unique(np.linspace(0, count - 1, min(count, MIXES_AT_MOST)).astype(int))
        counts = np.stack([self.split.class_counts(int(client)) for client in chosen])
        shares: np.ndarray = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        return shares

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """The scenario's precision and determinism inside, the caller's settings outside."""
        with ExitStack() as stack:
            if self.device.type == "cuda":
                stack.enter_context(torch.cuda.device(self.device))
                matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
                before = matmul.allow_tf32, convolution.allow_tf32
                matmul.allow_tf32 = convolution.allow_tf32 = self.scenario.precision in ("tf32", "bf16")
                stack.callback(lambda: _restore_tf32(before))
                stack.callback(setattr, convolution, "benchmark", convolution.benchmark)
                convolution.benchmark = not self.scenario.deterministic
            if self.scenario.deterministic:
                stack.enter_context(DETERMINISTIC)
            stack.enter_context(torch.no_grad())
            yield


def _restore_tf32(before: tuple[bool, bool]) -> None:
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def device_of(name: str) -> torch.device:
    if name != "cpu":
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # streams side by side; read when CUDA starts
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device is '{name}', but this machine has no CUDA device that torch can use; use --device cpu")
    if name.startswith("cuda:") and int(name[5:]) >= torch.cuda.device_count():
        raise UserError(f"device is '{name}', but there are {torch.cuda.device_count()} CUDA devices")
    return torch.device(name)


def _sampling(scenario: Scenario, method: Method) -> Sampling:
    """As the scenario says; the one client of a pooled method takes part always."""
    return Fixed(1, 1, scenario.seed) if method.pooled else sampling(scenario, scenario.clients)


def _scenario_federation(scenario: Scenario) -> Federation:
    source = sources.load(scenario.data, scenario.data_dir)
    clients = partition.split(
        scenario.partition, source.train.y.numpy(), scenario.clients, scenario.split_seed, source.users
    )
    constants = source.normalisation(scenario.profile)
    return Federation(source.train, source.test, clients, source.classes, constants.mean, constants.std)


MOST_SAMPLES = 100_000_000
"""Samples that a client may read in one round: their order is held in memory, eight bytes each."""


def _check_steps(scenario: Scenario, federation: Federation) -> None:
    """Refuse a round that no memory holds."""
    largest = int(federation.sizes.max())
    steps = planned(scenario, largest)
    if steps * min(scenario.batch_size, largest) > MOST_SAMPLES:
        name = "epochs" if scenario.steps is None else "steps"
        raise UserError(
            f"{name} is {getattr(scenario, name)}: a client of {largest} samples would take {steps} steps a round and "
            f"read more than {MOST_SAMPLES} samples; use fewer {name}"
        )


def _settled(scenario: Scenario, method: Method, population: int) -> Scenario:
    """The scenario with the number of clients there are, and with the share of them that takes part."""
    size, share = scenario.cohort_size, scenario.participation
    if size is not None and size > population:
        raise UserError(f"cohort_size is {size}, but there are {population} clients; use at most {population}")
    if size is not None:
        share = size / population
    elif share is None:
        share = method.suggests.get("participation", DEFAULT_PARTICIPATION)
    return dataclasses.replace(scenario, clients=population, participation=share, cohort_size=None)


def _inputs(module: nn.Module) -> list[str]:
    """The names of what a module cannot be called without."""
    parameters = inspect.signature(module.forward).parameters.values()
    return [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]


def _checked_model(model: nn.Module) -> nn.Module:
    """A user's own network, if its parameters hold numbers; what is no network is refused where it is copied."""
    tensors = [*model.named_parameters(), *model.named_buffers()] if isinstance(model, nn.Module) else []
    for name, tensor in tensors:
        if nn.parameter.is_lazy(tensor):
            raise UserError(f"the model's '{name}' has no shape yet; give it one batch before: model(x)")
        if tensor.is_meta:
            raise UserError(f"the model's '{name}' holds no numbers (its device is 'meta'); build it on the CPU")
    return model


def _check_output(network: Network, federation: Federation, dtype: torch.dtype) -> None:
    """The model takes a sample and answers with one number for each class; else say so before anything runs."""
    sample = federation.inputs(federation.test.x[:2], dtype)
    try:
        with torch.no_grad():
            logits = network.evaluate(network.parameters, network.buffers, sample)
    except Exception as fault:
        if len(several := _inputs(network.original)) > 1:
            raise UserError(
                f"the model takes several inputs ({', '.join(several)}); join them into one for now, "
                "and let the model take it apart"
            ) from fault
        own = not isinstance(fault, RuntimeError | ValueError | TypeError | IndexError)
        cause = in_words(fault) if own else (str(fault).splitlines() or [type(fault).__name__])[0]
        advice = "" if sample.is_floating_point() else " (whole numbers are taken as tokens; give features as float32)"
        raise UserError(
            f"the model does not take samples of shape {federation.sample_shape}: {cause}{advice}"
        ) from fault
    if not isinstance(logits, Tensor):
        raise UserError(f"the model answers with a {type(logits).__name__}; it must return one tensor")
    if federation.classes and (logits.dim() != 2 or logits.shape[1] < federation.classes):
        raise UserError(
            f"the model answers 2 samples with shape {tuple(logits.shape)}, but there are {federation.classes} classes"
        )
    if not federation.classes and logits.numel() != len(sample) * federation.outputs:
        raise UserError(
            f"the model answers {len(sample)} samples with shape {tuple(logits.shape)}, but a target is "
            f"{federation.outputs} number{'s' if federation.outputs > 1 else ''}"
        )


def build(
    scenario: Scenario,
    method: Method,
    *,
    model: nn.Module | None = None,
    clients: Sequence[Any] | None = None,
    test: Any = None,
    federation: Federation | None = None,
) -> World:
    """A world from names alone, or with the user's own model, and own client datasets and test set or federation."""
    if (clients is None) != (test is None):
        raise UserError("own data needs both clients (one dataset each) and a test set")
    if clients is not None:
        federation = federate(clients, test)
    if federation is not None:
        scenario = dataclasses.replace(scenario, clients=len(federation.clients), data="own", partition="own")
    else:
        federation = _scenario_federation(scenario)
    whole = federation
    if scenario.validation is not None:
        federation = held_out(federation, scenario.validation, scenario.split_seed)
    federation = dataclasses.replace(federation, test=federation.test.spread(scenario.eval_samples))
    augmentation.check(scenario.augmentation, federation.train.x)
    if scenario.target is not None and not federation.classes:
        raise UserError("target is an accuracy, but the targets of this data are numbers; leave --target out")
    if "classes" in method.needs("model") and not federation.classes:
        raise UserError(
            f"{method.name} compares the probabilities of classes, but the targets of this data are numbers; use a "
            "method that does not, such as fedavg, or whole numbers as labels"
        )
    scenario = _settled(scenario, method, len(federation.clients))
    split = federation
    if method.pooled:
        federation = dataclasses.replace(federation, clients=[np.concatenate(list(federation.clients))])
    asked = _sampling(scenario, method).most(scenario.rounds)
    method.fits(len(federation.clients), min(scenario.cohort, asked) if scenario.over_selection else asked)
    _check_steps(scenario, federation)
    device = device_of(scenario.device)
    if scenario.precision == "auto":
        scenario = dataclasses.replace(scenario, precision="tf32" if device.type == "cuda" else "fp32")
    if scenario.deterministic and device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what torch asks for; read at the first product
    dtype = _DTYPES[scenario.precision]
    check_finite(whole, dtype)
    if model is not None:
        module = _checked_model(model)
        scenario = dataclasses.replace(scenario, model="own")
    else:
        module = random.built(
            lambda: build_network(scenario.model, federation.sample_shape, federation.outputs), scenario.seed, "model"
        )
    network = Network(module, scenario.buffers, method.needs("model")).to(torch.device("cpu"), dtype)
    _check_output(network, federation, dtype)
    network = network.to(device, dtype)
    rules = Rules(
        method=method,
        network=network,
        federation=federation,
        pool=federation.train.to(device),
        dtype=dtype,
        autocast=torch.bfloat16 if scenario.precision == "bf16" else None,
        clip=scenario.clip,
        weight_decay=scenario.weight_decay,
        augmentation=scenario.augmentation,
        squared=scenario.loss == "squared",
    )
    return World(scenario, method, federation, network, rules, device, split)
