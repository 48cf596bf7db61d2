"""A run's method, settings and network bound to what lies here: at a site its samples, at the server none.

Both sides make the same `Experiment` from the same words, and compare digests of what they made.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from headway import random
from headway.data import columns
from headway.data.columns import Tensors
from headway.data.federation import Census, Federation, Samples
from headway.data.held_out import rows_held_out
from headway.data.own_data import NUMERIC, federate
from headway.data.own_samples import Padding
from headway.deploy.apps import OwnModel, ServerApp, built_model
from headway.deploy.codes import Code, Refused
from headway.engine import server
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.engine.local_training import Upload
from headway.engine.serial import ClientTrainer
from headway.engine.trial import first_rounds, round_input
from headway.errors import UserError
from headway.methods.method import Method
from headway.methods.slots import Message
from headway.runs.digest import content, digest
from headway.runs.given import catalogue_method
from headway.runs.roster import blank_samples
from headway.scenario import Scenario, settings_of
from headway.tasks.known import OwnTask
from headway.trees import tree_map

VERSION = str(vars(sys.modules[__name__.partition(".")[0]])["__version__"])
"""Of Headway: a site and a server of different versions refuse each other."""
_LOCAL = (settings_of("execution") - {"precision", "deterministic"}) | (settings_of("watching") - {"metrics"})
_AT_SERVER = _LOCAL | {"method", "seeds", "data", "partition", "clients", "participation"}
_AT_SERVER |= {"cohort_size", "sampling", "profile", "dropout", "stragglers", "over_selection", "on_failure"}
_AT_SERVER |= {"attendance"}
_AT_SERVER -= {"client_test"}
"""Settings that no site reads."""


@dataclass(frozen=True)
class Common:
    """What the server tells every site of a run, in words."""

    run: str
    version: str
    method: str
    scenario: str
    classes: int

    @classmethod
    def of(cls, run: str, method: Method, scenario: Scenario, classes: int) -> Common:
        told = {name: value for name, value in scenario.as_dict().items() if name not in _AT_SERVER}
        if ":" in str(told.get("metrics", "")):
            del told["metrics"]  # objects and other libraries' metrics are not sums over samples
        return cls(run, VERSION, method.name, json.dumps(told, sort_keys=True), classes)


def site_scenario(text: str, population: int) -> Scenario:
    """The settings that the server told."""
    try:
        told = json.loads(text)
        if not isinstance(told, dict) or told.keys() & _AT_SERVER:
            raise UserError("they are no settings of a site")
        here = Scenario(clients=population, participation=1.0, method=None, data="own", partition="own")
        return here.with_settings(told)
    except (ValueError, TypeError) as fault:
        raise Refused(Code.OTHER_SCENARIO, f"the settings of the run are not understood: {fault}") from None


def site_method(name: str, own: Method | None) -> Method:
    """The method that the server named: one of the catalogue, or the site's own of this name."""
    if own is not None and own.name == name:
        return own
    known = catalogue_method(name)
    if known is None:
        raise Refused(Code.OTHER_METHOD, f"the method '{name[:60]}' is neither in the catalogue nor given to the site")
    return known


def method_digest(method: Method) -> str:
    """A digest of all that a method does."""
    parts = [f"{name} {digest(part)}" for name, part in method.parts()]
    return hashlib.sha256("\n".join([*parts, digest(method.wire)]).encode()).hexdigest()


def model_digest(experiment: Experiment) -> str:
    """A digest of a network's layers, names, types and shapes, and of all numbers that are not learnt."""
    network = experiment.network
    found = hashlib.sha256(digest(network.original).encode())
    for name, leaf in network.parameters.leaves.items():
        found.update(f"{name} {leaf.dtype} {tuple(leaf.shape)}\n".encode())
    for kept in (network.buffers, network.constants, network.frozen):
        for name, leaf in kept.items():
            found.update(f"{name} {leaf.dtype} {tuple(leaf.shape)}\n".encode() + content(leaf))
    return found.hexdigest()


@dataclass(frozen=True)
class OwnParts:
    """What of an experiment has no words."""

    model: OwnModel
    task: OwnTask | None
    padding: Padding
    device: str


def site_experiment(
    common: Common, method: Method, parts: OwnParts, samples: Samples, client: int, sizes: tuple[int, int]
) -> Experiment:
    """The experiment at a site: its own samples, and of all others their number. `sizes` are N and Σ n_i.

    They stand for the test set too, which a site does not have: on its first two the network is tried.
    """
    population, total = sizes
    scenario = site_scenario(common.scenario, population)
    kept, _ = own_rows(scenario, len(samples), client)
    known = np.zeros(population, np.int64)
    known[client] = len(kept)
    rows = Census(known, total, {client: kept})
    federation = Federation(samples, samples, rows, common.classes)
    return _built(scenario, method, parts, federation)


def own_rows(scenario: Scenario, samples: int, client: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows that a client trains on, rows that it is judged on) of its own samples."""
    rows = np.arange(samples)
    if scenario.client_test is None:
        return rows, rows[:0]
    return rows_held_out(rows, scenario.client_test, scenario.split_seed, client, "client_test")


def server_experiment(
    app: ServerApp, scenario: Scenario, method: Method, sizes: Sequence[int], form: str | None = None
) -> Experiment:
    """The experiment at the server: a test set, two samples to try the network on, and of all clients their n_i.

    `form` is that of the sites' samples, for a server without a test set.
    """
    federation = server_data(app, scenario)
    if app.test is None and form is not None:
        blank = blank_samples(form)
        federation = replace(federation, train=blank, test=blank)
        _check_sample(app, federation, "sites have")
    census = Census(np.asarray(sizes, np.int64), int(sum(sizes)))
    parts = OwnParts(app.model, app.task, app.padding, scenario.device)
    made = _built(scenario, method, parts, replace(federation, clients=census), app.metrics)
    return replace(made, noise_source=lambda round: random.secret_normals)


def _built(
    scenario: Scenario, method: Method, parts: OwnParts, federation: Federation, metrics: Sequence[object] = ()
) -> Experiment:
    model = built_model(parts.model, scenario.seed)
    scenario = scenario.changed(device=parts.device)
    if model is None:
        scenario = scenario.changed(model=str(parts.model))
    return build(scenario, method, model=model, federation=federation, task=parts.task, metrics=metrics)


def server_data(app: ServerApp, scenario: Scenario) -> Federation:
    """The server's test set, and two samples of its form as training data, on which nobody trains."""
    task = "own" if app.task is not None else scenario.task
    if app.test is None:
        return _without_test(app, scenario)
    if scenario.client_test is not None:
        raise UserError("test and client_test are both given; the server's test set judges the model: leave one out")
    whole = federate([app.test], None, task=task, padding=app.padding)
    _check_sample(app, whole)
    rows = np.arange(len(whole.train))
    blank = whole.train.rows(rows[np.array([0, min(1, len(rows) - 1)])])
    classes = whole.classes if app.classes is None else app.classes
    if classes < whole.classes:
        raise UserError(f"classes is {classes}, but the test set has the label {whole.classes - 1}")
    return Federation(blank, whole.train, [np.arange(2)], classes)


def _without_test(app: ServerApp, scenario: Scenario) -> Federation:
    """Blank samples of the form that was given, where the server has no samples."""
    if app.sample is None or app.classes is None:
        raise UserError("the server has no test set; give test=…, or sample=(…) and classes=…, the form of a sample")
    if scenario.task in ("tokens", "segmentation", "multilabel") and app.task is None:
        raise UserError(
            f"the server has no test set, the task is {scenario.task}, and sample=… does not say what its targets look "
            "like; give test=…"
        )
    x = torch.zeros((2, *app.sample))
    labels = bool(app.classes) and scenario.task not in NUMERIC
    y = torch.zeros(2, dtype=torch.int64 if labels else torch.float32)
    blank = Samples(x, y)
    return Federation(blank, blank, [np.arange(2)], app.classes)


def _check_sample(app: ServerApp, federation: Federation, who: str = "test set has") -> None:
    if app.sample is not None and federation.sample_shape != tuple(app.sample):
        raise UserError(f"sample is {tuple(app.sample)}, but the {who} samples of shape {federation.sample_shape}")


def trial_experiment(experiment: Experiment) -> Experiment:
    """The server's experiment with its two blank samples as those of client 0."""
    sizes = experiment.federation.sizes.copy()
    sizes[0] = len(experiment.federation.train)
    clients = Census(sizes, int(sizes.sum()), {0: np.arange(int(sizes[0]))})
    return replace(experiment, federation=replace(experiment.federation, clients=clients))


def blank_upload(experiment: Experiment) -> Upload:
    """An upload of this method and model, from one step on blank samples: it shows names, types and shapes."""
    trial = trial_experiment(experiment)
    with trial.arithmetic():
        trainer = ClientTrainer(trial, compiled=False)
        upload, _ = trainer.upload(round_input(trial), first_rounds(trial, [0], 1)[0])
    return upload


def blank_payloads(experiment: Experiment) -> dict[str, object]:
    """The payloads of a message of this method and model: they show names, types and shapes."""
    with experiment.arithmetic():
        return server.broadcast(experiment, server.initial_state(experiment), 1).payloads


def received(experiment: Experiment, payloads: Mapping[str, object]) -> Message:
    """The message as a client reads it."""
    down, like = experiment.method.wire.down, experiment.network.parameters
    return {name: down.decode(payload, like) for name, payload in payloads.items()}


def finite(tree: object) -> bool:
    """Whether all numbers of a tree are finite."""
    found = True

    def look(leaf: Tensor) -> Tensor:
        nonlocal found
        found = found and (not leaf.is_floating_point() or bool(torch.isfinite(leaf).all()))
        return leaf

    tree_map(look, tree)
    return found


def first_of(tensors: Tensors) -> Tensor:
    """One tensor of several."""
    return next(iter(columns.parts(tensors).values()))
