"""Builds an experiment: from names alone, or with the user's own model, data and federation. All is checked here."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from headway import random
from headway.data import augmentation, partition, sources
from headway.data.batches import planned_steps
from headway.data.cohort import Attendance, check_attendance
from headway.data.federation import ClientTests, Federation
from headway.data.finite import check_finite
from headway.data.held_out import judged, tests_by_owner
from headway.data.own_data import federate, for_task
from headway.data.own_samples import Padding
from headway.data.own_tests import OwnClients
from headway.engine import diagnostics, population, privacy
from headway.engine.answers import check_answer
from headway.engine.experiment import Experiment, check_rate, sampling_of
from headway.engine.network import Network, roles_of
from headway.engine.task_choice import check_shifted, check_target, named_metrics, named_task, task_for
from headway.errors import UserError
from headway.methods.method import Method
from headway.models.networks import network as build_network
from headway.models.twins import check_module
from headway.scenario import DEFAULT_PARTICIPATION, Scenario
from headway.tasks.known import OwnTask
from headway.tasks.task import Task
from headway.waiting import part

_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.float32, "fp64": torch.float64}
FIRST_ROUNDS = 1000
"""Rounds whose rates are looked at before a run begins."""
MOST_SAMPLES = 100_000_000
"""Samples that a client may read in one round: their order is held in memory, eight bytes each."""


def device_of(name: str) -> torch.device:
    """The device of a setting: `auto` is the GPU where there is one. One that is not there is refused."""
    if name != "cpu":
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # streams side by side; read when CUDA starts
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device is '{name}', but this machine has no CUDA device that torch can use; use --device cpu")
    if name.startswith("cuda:") and int(name[5:]) >= torch.cuda.device_count():
        raise UserError(f"device is '{name}', but there are {torch.cuda.device_count()} CUDA devices")
    return torch.device(name)


def _scenario_federation(scenario: Scenario) -> Federation:
    source = sources.load(scenario.data, scenario.data_dir)
    if source.clients is not None:
        return population.federation_of(scenario, source)
    labels, seed = source.train.labels.numpy(), scenario.split_seed
    clients = partition.split(scenario.partition, labels, scenario.clients, seed, source.users, source.groupings)
    rows = tests_by_owner(scenario.partition, clients, source.users, source.test_users, source.groupings)
    tests = None if rows is None else ClientTests(source.test, rows)
    constants = source.normalisation(scenario.profile)
    return Federation(
        source.train,
        source.test,
        clients,
        source.classes,
        constants.mean,
        constants.std,
        tests,
        source.class_names,
    )


def _check_steps(scenario: Scenario, federation: Federation) -> None:
    """Refuse a round that no memory holds."""
    largest = int(federation.sizes.max())
    steps = planned_steps(scenario, largest)
    if steps * min(scenario.batch_size, largest) > MOST_SAMPLES:
        name = "epochs" if scenario.steps is None else "steps"
        raise UserError(
            f"{name} is {getattr(scenario, name)}: a client of {largest} samples would take {steps} steps a round and "
            f"read more than {MOST_SAMPLES} samples; use fewer {name}"
        )


def _check_rates(scenario: Scenario, dtype: torch.dtype) -> None:
    """Refuse a schedule whose rate is rounded to 0 in the first rounds: it is least in a warm-up, or later.

    What comes later is refused when it comes: of many rounds a run may need few.
    """
    for round in (1, min(scenario.rounds, FIRST_ROUNDS)):
        check_rate(scenario, round, dtype)


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


def _checked_model(model: nn.Module) -> nn.Module:
    """A user's own network, if its parameters hold numbers."""
    check_module(model)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if nn.parameter.is_lazy(tensor):
            raise UserError(f"the model's '{name}' has no shape yet; give it one batch before: model(x)")
        if tensor.is_meta:
            raise UserError(f"the model's '{name}' holds no numbers (its device is 'meta'); build it on the CPU")
    return model


def _given(
    scenario: Scenario, clients: OwnClients | None, test: object, task: OwnTask | None, padding: Padding
) -> Federation | None:
    """The user's own clients and test data; None where the scenario names the data."""
    if clients is not None or test is not None:
        return _own_federation(clients, test, "own" if task is not None else scenario.task, padding)
    if padding is not None:
        raise UserError("padding fills samples of your own, but none are given: clients=[…]; leave padding out")
    return None


def build(
    scenario: Scenario,
    method: Method,
    *,
    model: nn.Module | None = None,
    clients: OwnClients | None = None,
    test: object = None,
    federation: Federation | None = None,
    task: OwnTask | None = None,
    metrics: Sequence[object] = (),
    padding: Padding = None,
    attendance: Attendance | None = None,
) -> Experiment:
    """An experiment from names alone, or with the user's own model, and own clients and test data or federation.

    `task` is a loss of the user's own, `metrics` are the user's own, and `padding` fills samples of different lengths.
    `attendance` are the cohorts of the run that the scenario's `attendance` names.

    Everything is checked here, so that a run does not fail over something that was known before its first round.
    """
    with part("data"):
        own = _given(scenario, clients, test, task, padding) if federation is None else federation
        scenario, federation = _with_data(scenario, own)
    population.check(scenario, method, federation)
    learnt = task_for(scenario, federation, task, metrics)
    check_shifted(federation, learnt)
    scenario = dataclasses.replace(scenario, task=named_task(scenario, task), metrics=named_metrics(scenario, metrics))
    whole = federation
    federation = judged(federation, scenario)
    augmentation.check(scenario.augmentation, federation.train.x)
    check_target(scenario, method, federation, learnt)
    scenario = _settled(scenario, method, len(federation.clients))
    split = federation
    if method.pooled:
        together = [np.concatenate(list(federation.clients))]
        federation = dataclasses.replace(federation, clients=together, client_tests=None)
    _check_cohort(scenario, method, federation, attendance)
    _check_steps(scenario, federation)
    device = device_of(scenario.device)
    scenario = _on_device(scenario, device)
    dtype = _DTYPES[scenario.precision]
    _check_rates(scenario, dtype)
    with part("data"):
        check_finite(whole, dtype)
        samples = federation.train.to(device)
    if model is not None:
        scenario = dataclasses.replace(scenario, model="own")
    with part("model"):
        module = _module(scenario, federation, model)
        method = method.for_model(roles_of(module))
        network = _network(module, scenario, method, federation, learnt).to(device, dtype)
    experiment = Experiment(
        scenario=scenario,
        method=method,
        federation=federation,
        split=split,
        task=learnt,
        network=network,
        samples=samples,
        device=device,
        dtype=dtype,
        autocast=torch.bfloat16 if scenario.precision == "bf16" else None,
        attendance=attendance,
    )
    privacy.check(experiment)
    diagnostics.check(experiment)
    return experiment


def _with_data(scenario: Scenario, own: Federation | None) -> tuple[Scenario, Federation]:
    """The scenario with the user's own federation, or with the one that it names."""
    if own is None:
        return scenario, for_task(_scenario_federation(scenario), scenario.task)
    return dataclasses.replace(scenario, clients=len(own.clients), data="own", partition="own"), own


def _own_federation(clients: OwnClients | None, test: object, task: str, padding: Padding) -> Federation:
    """The user's own data."""
    if clients is None:
        raise UserError("own data needs both clients (one dataset each) and a test set")
    return federate(clients, test, task=task, padding=padding)


def _on_device(scenario: Scenario, device: torch.device) -> Scenario:
    """The scenario with the precision that `auto` is on this device; what determinism needs there is set."""
    if scenario.deterministic and device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what torch asks for; read at the first product
    if scenario.precision != "auto":
        return scenario
    return dataclasses.replace(scenario, precision="tf32" if device.type == "cuda" else "fp32")


def _module(scenario: Scenario, federation: Federation, model: nn.Module | None) -> nn.Module:
    """The user's module, or the scenario's."""
    if model is not None:
        return _checked_model(model)
    shape = federation.sample_shape
    if not isinstance(shape, tuple):
        raise UserError(f"a sample has several parts; the network '{scenario.model}' takes one: give a model")
    return random.built(lambda: build_network(scenario.model, shape, federation.outputs), scenario.seed, "model")


def _network(module: nn.Module, scenario: Scenario, method: Method, federation: Federation, task: Task) -> Network:
    """A module as a network, on the CPU in the type of the run's parameters; it is tried on two samples."""
    dtype = _DTYPES[scenario.precision]
    network = Network(module, scenario.buffers, method.needs("model")).to(torch.device("cpu"), dtype)
    with network.watched():
        check_answer(network, federation, task, dtype)
    return network


def _check_cohort(scenario: Scenario, method: Method, federation: Federation, attendance: Attendance | None) -> None:
    """Refuse a population or a cohort that some slot of the method cannot work with."""
    check_attendance(scenario, attendance, len(federation.clients))
    invited = sampling_of(scenario, method).most(scenario.rounds)
    method.fits(len(federation.clients), min(scenario.cohort, invited) if scenario.over_selection else invited)
