"""Headway against `tests/reference`: the same batches, cohorts and initial model, and the same θ in every round."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from torch import nn

import headway as hw
from conftest import EXECUTORS
from headway.data.batches import plan
from headway.data.cohort import Cohort
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.engine.round import RoundOutcome, run_round
from headway.engine.server import initial_state
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.methods.projection import project_rows, project_three
from headway.models.networks import Staged
from headway.random import built
from headway.scenario import Scenario
from headway.vectors import Vector
from reference import averaging, cone, deep, further, further_stateful, gradma, stateful
from reference.problem import Problem, Trace, softmax_gradient, softmax_loss

SIZES = (3, 17, 8, 24, 5, 11)
FEATURES, CLASSES = 5, 4
COHORTS = [[1, 3, 0], [3, 1, 4], [0, 2, 3], [4, 0, 1], [2, 3, 1], [0, 4, 2], [5, 1, 3], [0, 5, 1], [2, 4, 5], [3, 5, 0]]
"""Clients return after one to five rounds; client 2 is new in round 3, client 5 in round 7."""
ALL = [list(range(len(SIZES)))] * 8
TENSORS = [slice(0, CLASSES * FEATURES), slice(CLASSES * FEATURES, None)]

BASE = Scenario(
    participation=0.5,
    epochs=2,
    batch_size=4,
    rate=0.4,
    rate_decay=0.9,
    weight_decay=0.01,
    clip=0.0,
    precision="fp64",
    device="cpu",
)
VARIANTS: dict[str, dict[str, Any]] = {
    "size": {},
    "uniform-clipped": {"weights": "uniform", "clip": 1.0},
    "equal-steps": {"steps": 5, "rate_decay_epoch": 0.8, "executor": "batched"},
}
"""Unequal K_i and weights by size; uniform weights and clipping; K = 5 for all, and η falls inside a round."""


@cache
def _samples() -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """Clients of unequal size that hold two or more of the four classes, most of them not all; and a test set."""
    draw = np.random.default_rng(3)
    centres = draw.normal(size=(CLASSES, FEATURES))
    labels = []
    for client, size in enumerate(SIZES):
        mix = draw.dirichlet(np.full(CLASSES, 0.4))
        labels.append(draw.choice(CLASSES, size, p=mix))
        labels[-1][:2] = client % CLASSES, (client + 1) % CLASSES
    labels.append(np.arange(20) % CLASSES)
    pairs = [(centres[y] + 0.7 * draw.normal(size=(len(y), FEATURES)), y) for y in labels]
    return pairs[:-1], pairs[-1]


def _experiment(
    spelled: Any, network: Callable[[], nn.Module] = lambda: nn.Linear(FEATURES, CLASSES), **settings: Any
) -> Experiment:
    clients, test = _samples()
    module = built(network, 11, "reference")
    return build(BASE.changed(**settings), hw.method(spelled), model=module, clients=clients, test=test)


def _exported(experiment: Experiment, cohorts: list[list[int]]) -> Problem:
    """The run's data, batches, settings and initial model as plain arrays."""
    scenario, federation = experiment.scenario, experiment.federation
    batches = {}
    for t, cohort in enumerate(cohorts, 1):
        for client in cohort:
            found = plan(scenario, federation.clients[client], scenario.seed, t, client, 0)
            batches[t, client] = [rows[:count] for rows, count in zip(found.rows, found.counts, strict=True)]
    return Problem(
        x=federation.train.x.double().numpy(),
        y=federation.train.y.numpy(),
        clients=[np.asarray(rows) for rows in federation.clients],
        cohorts=cohorts,
        batches=batches,
        batch_size=scenario.batch_size,
        start=experiment.network.parameters.flat().double().numpy(),
        rate=scenario.rate,
        rate_decay=scenario.rate_decay,
        rate_decay_epoch=scenario.rate_decay_epoch,
        weight_decay=scenario.weight_decay,
        clip=scenario.clip,
        by_size=scenario.weights == "size",
    )


def _trace(experiment: Experiment, cohorts: list[list[int]]) -> tuple[Trace, list[RoundOutcome]]:
    """θ and every leaf of the server's state after each round, flat, and what the rounds reported."""
    name = experiment.scenario.executor
    hand = EXECUTORS["serial" if name == "auto" else name](experiment)
    model, store = initial_state(experiment), ClientStates()
    trace, outcomes = [], []
    with experiment.arithmetic():
        for number, cohort in enumerate(cohorts, 1):
            model, outcome = run_round(experiment, model, store, hand, Cohort(tuple(cohort)), number)
            trace.append({"theta": model.theta.flat().numpy().copy(), **_server(model.server)})
            outcomes.append(outcome)
    hand.close()
    return trace, outcomes


def _server(state: Any) -> dict[str, np.ndarray]:
    """Vectors of the server's slots, flat, by name. GradMA's memory: (client, counter) and rows, by client."""
    found = {}
    for kept in state.values():
        found |= {name: value.flat().numpy().copy() for name, value in kept.items() if isinstance(value, Vector)}
        if "counts" in kept:
            places = [place for place in np.argsort(kept["clients"].numpy()) if kept["clients"][place] >= 0]
            rows = np.concatenate([leaf.flatten(1).numpy() for leaf in kept["rows"].leaves.values()], axis=1)
            found["stored"] = np.stack([kept["clients"].numpy(), kept["counts"].numpy()], axis=1)[places]
            found["rows"] = rows[places]
    return found


def _agree(found: Trace, expected: Trace, letters: dict[str, str], tolerance: float = 1e-9) -> None:
    """The same θ in every round, and the same server state: letter in the paper → name in Headway, − for its sign."""
    assert len(found) == len(expected)
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True), 1):
        for letter, name in {"theta": "theta", **letters}.items():
            value = -ours[name[1:]] if name.startswith("-") else ours[name]
            assert value.shape == theirs[letter].shape, f"{letter} after round {number}"
            gap = float(np.abs(value - theirs[letter]).max(initial=0.0))
            assert gap < tolerance, f"{letter} after round {number} differs by {gap:.2e}"
    moved = np.abs(expected[-1]["theta"] - expected[0]["theta"]).max()
    assert 1e-2 < moved < 1e2, "a trajectory that stands still or runs away shows nothing"


Reference = Callable[[Problem], Trace]
MEMORY = {"m": "momentum", "stored": "stored", "D": "rows"}
METHODS: dict[str, tuple[Reference, dict[str, str]]] = {
    "fedavg": (averaging.fedavg, {}),
    "fedavg:server_rate=.6": (lambda p: averaging.fedavg(p, 0.6), {}),
    "fedprox:mu=.3": (lambda p: averaging.fedprox(p, 0.3), {}),
    "fedprox:mu=.3,half=false": (lambda p: averaging.fedprox(p, 0.3, half=False), {}),
    "fedavgm:momentum=.6": (lambda p: averaging.fedavgm(p, 0.6), {"m": "-momentum"}),
    "fedavgm:momentum=.6,server_rate=.7": (lambda p: averaging.fedavgm(p, 0.6, 0.7), {"m": "-momentum"}),
    "fedavgm:momentum=.6,rate_ratio=true": (lambda p: averaging.slowmo(p, 0.6), {}),
    "fedavgm:momentum=.6,server_rate=.7,rate_ratio=true": (lambda p: averaging.slowmo(p, 0.6, 0.7), {}),
    "fedproxm:mu=.3,momentum=.6": (lambda p: averaging.fedavgm(p, 0.6, mu=0.3), {"m": "-momentum"}),
    "fedadam:beta1=.9,beta2=.99,eps=.001,server_rate=.01": (
        lambda p: averaging.fedadam(p, 0.9, 0.99, 1e-3, 0.01),
        {"m": "m", "v": "v"},
    ),
    "fedadam:beta1=.8,beta2=.9,eps=.1,server_rate=.2": (
        lambda p: averaging.fedadam(p, 0.8, 0.9, 0.1, 0.2),
        {"m": "m", "v": "v"},
    ),
    "fedadam:beta1=.9,beta2=.99,eps=.001,server_rate=.01,from_momentum=true": (
        lambda p: averaging.fedadam(p, 0.9, 0.99, 1e-3, 0.01, from_momentum=True),
        {"m": "m", "v": "v"},
    ),
    "fedcm:alpha=.3": (lambda p: averaging.fedcm(p, 0.3), {"direction": "direction"}),
    "mimelite:momentum=.5": (lambda p: averaging.mimelite(p, 0.5), {"m": "statistics"}),
    "fedacg:lam=.7,beta=.1": (lambda p: averaging.fedacg(p, 0.7, 0.1), {"m": "momentum"}),
    "fedacg:lam=.7,beta=.1,half=false": (lambda p: averaging.fedacg(p, 0.7, 0.1, half=False), {"m": "momentum"}),
    "fedprox:mu=.2+acg:lam=.7": (lambda p: averaging.fedacg(p, 0.7, 0.2), {"m": "momentum"}),
    "fedagm:lam=.6,beta=.1,alpha=.8,server_rate=.7": (
        lambda p: averaging.fedagm(p, 0.6, 0.1, 0.8, 0.7),
        {"V": "-momentum"},
    ),
    "fednag:gamma=.6": (lambda p: averaging.fednag(p, 0.6), {"v": "velocity"}),
    "scaffold": (stateful.scaffold, {"c": "control"}),
    "scaffold:server_rate=.8": (lambda p: stateful.scaffold(p, 0.8), {"c": "control"}),
    "feddyn:alpha=.1": (lambda p: stateful.feddyn(p, 0.1), {"h": "h"}),
    "feddyn:alpha=.1,mu=.05": (lambda p: stateful.feddyn(p, 0.1, 0.05), {"h": "h"}),
    "feddc:alpha=.1": (lambda p: stateful.feddc(p, 0.1), {"c": "control", "h": "drift"}),
    "feddc:alpha=.1,program=true": (lambda p: stateful.feddc(p, 0.1, program=True), {"c": "control", "h": "drift"}),
    "mifa:rate_ratio=true,wait=true": (stateful.mifa_program, {}),
    "mifa:rate_ratio=true": (lambda p: stateful.mifa_program(p, wait=False), {}),
    "mifa:wait=true": (lambda p: stateful.mifa_program(p, in_rates=False), {}),
    "mifa": (stateful.mifam, {"d": "-latest"}),
    "mifa:server_rate=.7": (lambda p: stateful.mifam(p, server_rate=0.7), {"d": "-latest"}),
    "mifam:momentum=.5": (lambda p: stateful.mifam(p, 0.5), {"d": "-latest", "m": "-momentum"}),
    "gradma-w": (gradma.gradma_w, {}),
    "gradma-w:server_rate=.8,previous=last-or-received": (
        lambda p: gradma.gradma_w(p, 0.8, previous="last-or-received"),
        {},
    ),
    "gradma-w:previous=received": (lambda p: gradma.gradma_w(p, previous="received"), {}),
    "gradma-w:scope=tensor": (lambda p: gradma.gradma_w(p, tensors=TENSORS), {}),
    "gradma-s:momentum=.5,memory_decay=.5,memory=4": (lambda p: gradma.gradma_s(p, 0.5, 0.5, 4), MEMORY),
    "gradma-s:momentum=.5,memory_decay=.5,memory=6": (lambda p: gradma.gradma_s(p, 0.5, 0.5, 6), MEMORY),
    "gradma-s:momentum=.9,memory_decay=.1,memory=6,server_rate=.5": (
        lambda p: gradma.gradma_s(p, 0.9, 0.1, 6, 0.5),
        MEMORY,
    ),
    "gradma-s:momentum=.5,memory_decay=.5,memory=0": (lambda p: gradma.gradma_s(p, 0.5, 0.5, 0), MEMORY),
    "gradma-s:momentum=.5,memory_decay=.5,memory=4,scope=tensor": (
        lambda p: gradma.gradma_s(p, 0.5, 0.5, 4, tensors=TENSORS),
        MEMORY,
    ),
    "gradma:momentum=.5,memory_decay=.5,memory=4": (lambda p: gradma.gradma(p, 0.5, 0.5, 4), MEMORY),
    "gradma:momentum=.5,memory_decay=.5,memory=6,scope=tensor,previous=received": (
        lambda p: gradma.gradma(p, 0.5, 0.5, 6, tensors=TENSORS, previous="received"),
        MEMORY,
    ),
}


FURTHER: dict[str, tuple[Reference, dict[str, str]]] = {
    "fedmom:momentum=.6": (lambda p: further.fedmom(p, 0.6), {"v": "v"}),
    "fedmom:momentum=.6,server_rate=.7": (lambda p: further.fedmom(p, 0.6, 0.7), {"v": "v"}),
    "slowmo:momentum=.5,server_rate=.8,local_momentum=.6": (lambda p: further.slowmo(p, 0.5, 0.8, 0.6), {}),
    "domo:momentum=.6,fusion=.5,local_momentum=.4,server_rate=.9": (
        lambda p: further.domo(p, 0.6, 0.5, 0.4, 0.9),
        {"m": "-momentum"},
    ),
    "ghbm:beta=.8,tau=3": (lambda p: further.ghbm(p, 0.8, 3), {}),
    "ghbm:beta=.6,tau=1": (lambda p: further.ghbm(p, 0.6, 1), {}),
    "local-ghbm:beta=.8,share=.5": (lambda p: further.local_ghbm(p, 0.8, 0.5), {}),
    "fedadc:momentum=.6,local_momentum=.5,server_rate=.9": (
        lambda p: further.fedadc(p, 0.6, 0.5, 0.9),
        {"m": "pull"},
    ),
    "fedac:gamma=2,alpha=4": (lambda p: further.fedac(p, 2, 4, 5), {"w": "companion"}),
    "fedac:gamma=1.5,alpha=3,beta=2": (lambda p: further.fedac(p, 1.5, 3, 2), {"w": "companion"}),
    "fedadagrad:beta1=.5,eps=.01,server_rate=.1": (
        lambda p: further.fedadagrad(p, 0.5, 0.01, 0.1),
        {"m": "m", "v": "v"},
    ),
    "fedyogi:beta1=.8,beta2=.9,eps=.05,server_rate=.1": (
        lambda p: further.fedyogi(p, 0.8, 0.9, 0.05, 0.1),
        {"m": "m", "v": "v"},
    ),
    "fedams:beta1=.8,beta2=.5,eps=.01,server_rate=.05": (
        lambda p: further.fedams(p, 0.8, 0.5, 0.01, 0.05),
        {"v": "v", "top": "top"},
    ),
    "fedexp:eps=.01": (lambda p: further.fedexp(p, 0.01), {"before": "before"}),
    "fedprox:mu=.3+exp:eps=0": (lambda p: further.fedexp(p, 0.0, mu=0.3), {"before": "before"}),
    "fedavgm:momentum=.5+exp:eps=0": (lambda p: further.fedexp(p, 0.0, 0.5), {"before": "before"}),
    "fednova": (further.fednova, {}),
    "fednova:server_rate=.7": (lambda p: further.fednova(p, 0.7), {}),
    "fedvarp": (further_stateful.fedvarp, {"y": "latest"}),
    "fedvarp:server_rate=.7": (lambda p: further_stateful.fedvarp(p, 0.7), {"y": "latest"}),
    "fedinit:beta=.3": (lambda p: further_stateful.fedinit(p, 0.3), {}),
    "fedspeed:rho=.3,alpha=.7,mu=.2": (lambda p: further_stateful.fedspeed(p, 0.3, 0.7, 5.0), {}),
    "fedsam:rho=.2": (lambda p: further.fedsam(p, 0.2), {}),
    "fedasam:rho=.5,eta=.1": (lambda p: further.fedsam(p, 0.5, 0.1), {}),
    "mofedsam:rho=.2,alpha=.3": (lambda p: further.mofedsam(p, 0.2, 0.3), {"direction": "direction"}),
    "fedgamma:rho=.2": (lambda p: further_stateful.fedgamma(p, 0.2), {"c": "control"}),
    "fedlesam:rho=.2": (lambda p: further_stateful.fedlesam(p, 0.2), {}),
    "fedgloss:rho=.2,local_rho=.1,alpha=.125": (
        lambda p: further_stateful.fedgloss(p, 0.2, 0.1, 8.0),
        {"sigma": "h"},
    ),
    "local-adamw:beta2=.99": (lambda p: further.diloco(p, (1.0, 0.0), (0.9, 0.99), keep=False), {}),
    "diloco:momentum=.5,server_rate=.7": (lambda p: further.diloco(p, (0.7, 0.5), (0.9, 0.95)), {}),
    "local-muon:momentum=.8,matrices=all": (lambda p: further.local_muon(p, 0.8, CLASSES), {}),
}
"""The further methods: each is played in one of the variants, and with all of them in `make soak`."""
SMALLER = ("local-adamw", "diloco", "local-muon")
"""Methods whose steps are as long as the rate, and not as a gradient times it."""
PLAYED = [
    pytest.param(spelled, variant, marks=() if at % len(VARIANTS) == place else pytest.mark.soak)
    for at, spelled in enumerate(FURTHER)
    for place, variant in enumerate(VARIANTS)
]


@pytest.mark.parametrize(("spelled", "variant"), PLAYED)
def test_a_further_method_is_the_reference_one(spelled: str, variant: str) -> None:
    reference, letters = FURTHER[spelled]
    rate = 0.02 if spelled.startswith(SMALLER) else BASE.rate
    experiment = _experiment(spelled, **{**VARIANTS[variant], "rate": rate})
    found, _ = _trace(experiment, COHORTS)
    _agree(found, reference(_exported(experiment, COHORTS)), letters)


@pytest.mark.parametrize(
    ("spelled", "reference"),
    [
        ("scaffnew", further_stateful.scaffnew),
        ("fedac:gamma=2,alpha=4", lambda p: further.fedac(p, 2, 4, 5)),
    ],
)
def test_a_further_method_for_everybody_is_the_reference_one(spelled: str, reference: Reference) -> None:
    experiment = _experiment(spelled, participation=1.0, steps=5)
    found, _ = _trace(experiment, ALL)
    _agree(found, reference(_exported(experiment, ALL)), {})


def test_snoo_trains_one_client_with_everybody_s_data() -> None:
    experiment = _experiment("snoo:momentum=.5,server_rate=.7", rate=0.02)
    cohorts = [[0]] * 8
    found, _ = _trace(experiment, cohorts)
    _agree(found, further.diloco(_exported(experiment, cohorts), (0.7, 0.5), (0.9, 0.95)), {})


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("spelled", METHODS)
def test_the_trajectory_is_the_reference_one(spelled: str, variant: str) -> None:
    reference, letters = METHODS[spelled]
    experiment = _experiment(spelled, **VARIANTS[variant])
    found, _ = _trace(experiment, COHORTS)
    _agree(found, reference(_exported(experiment, COHORTS)), letters)


@pytest.mark.parametrize("variant", VARIANTS)
def test_fednag_with_all_workers_is_the_reference_one(variant: str) -> None:
    """Yang et al. 2022, Alg. 1, as printed: every worker takes part in every round."""
    experiment = _experiment("fednag:gamma=.6", participation=1.0, **VARIANTS[variant])
    found, _ = _trace(experiment, ALL)
    _agree(found, averaging.fednag(_exported(experiment, ALL), 0.6), {"v": "velocity"})


def test_fednag_hands_over_the_aggregate_of_least_global_loss() -> None:
    """w^f = argmin_k F(w(kτ)), F = Σ_i D_i F_i / D: Yang et al. 2022, Eq. 6.

    A large rate makes the last iterate not the best.
    """
    experiment = _experiment("fednag:gamma=.9", participation=1.0, rounds=8, rate=1.5, rate_decay=1.0)
    hand = EXECUTORS["serial"](experiment)
    for _, progress in simulate(experiment, hand, ClientStates(), begin(experiment)):  # noqa: B007
        pass
    hand.close()
    problem = _exported(experiment, ALL)
    trace = averaging.fednag(problem, 0.9)
    losses = [softmax_loss(entry["theta"], problem.x, problem.y) for entry in trace]
    best = int(np.argmin(losses))
    assert best < len(losses) - 1
    assert np.abs(progress.output(experiment).theta.flat().numpy() - trace[best]["theta"]).max() < 1e-9


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("spelled", "reference"), [("csgd", averaging.fedavg), ("cnag:gamma=.6", lambda p: averaging.fednag(p, 0.6))]
)
def test_the_centralised_methods_train_one_client_with_everybody_s_data(
    spelled: str, reference: Reference, variant: str
) -> None:
    experiment = _experiment(spelled, **VARIANTS[variant])
    cohorts = [[0]] * 8
    problem = _exported(experiment, cohorts)
    assert [list(rows) for rows in problem.clients] == [list(range(sum(SIZES)))]
    found, _ = _trace(experiment, cohorts)
    _agree(found, reference(problem), {})


@pytest.mark.parametrize(
    ("scope", "settings"),
    [("model", {}), ("tensor", {"steps": 2}), ("tensor", {"steps": 2, "executor": "batched"})],
)
def test_the_model_before_the_first_step_matters_where_rounds_overshoot(scope: str, settings: dict[str, Any]) -> None:
    """x_{−1} of Alg. 2 is a row of the first local step only, and active only where gradients turn between rounds."""
    tensors = TENSORS if scope == "tensor" else None
    expected = {}
    for previous in ("last", "last-or-received", "received"):
        experiment = _experiment(f"gradma-w:server_rate=4,scope={scope},previous={previous}", rate=2.0, **settings)
        found, _ = _trace(experiment, COHORTS)
        expected[previous] = gradma.gradma_w(_exported(experiment, COHORTS), 4.0, tensors, previous)
        _agree(found, expected[previous], {})
    for one, two in itertools.combinations(expected.values(), 2):
        assert np.abs(one[-1]["theta"] - two[-1]["theta"]).max() > 1e-5


def test_gradma_s_evicts_as_worked_out_by_hand() -> None:
    """Counters of Alg. 4 on paper for COHORTS and m = 4; in rounds 6, 9 and 10 the earliest stored of a tie goes."""
    memory = gradma.Memory(4)
    for cohort in COHORTS:
        memory.reduce(cohort)
    assert memory.evicted == [4, 2, 4, 1, 4, 2, 1, 3, 2]


# The references themselves.


def test_the_references_import_numpy_and_each_other_only() -> None:
    for source in (Path(__file__).parent / "reference").glob("*.py"):
        imports = re.findall(r"^\s*(?:from|import) (\w+)", source.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(imports) <= {
            "__future__",
            "collections",
            "dataclasses",
            "fractions",
            "itertools",
            "numpy",
            "reference",
        }, source


def test_the_reference_gradient_is_the_slope_of_the_reference_loss() -> None:
    problem = _exported(_experiment("fedavg"), COHORTS)
    rows = problem.clients[1]
    slope = softmax_gradient(problem.start, problem.x[rows], problem.y[rows])
    for j in range(len(slope)):
        step = np.zeros_like(slope)
        step[j] = 1e-5
        after, before = (softmax_loss(problem.start + s, problem.x[rows], problem.y[rows]) for s in (step, -step))
        assert abs((after - before) / 2e-5 - slope[j]) < 1e-9


def test_the_clipped_variant_clips_some_gradients_and_not_others() -> None:
    experiment = _experiment("fedavg", **VARIANTS["uniform-clipped"])
    problem = _exported(experiment, COHORTS)
    thetas = [problem.start, *(entry["theta"] for entry in averaging.fedavg(problem))]
    norms = [
        float(np.linalg.norm(problem.gradient(thetas[t - 1], rows)))
        for t, cohort in problem.rounds()
        for i in cohort
        for rows, _ in problem.steps(t, i)
    ]
    clipped = sum(norm > problem.clip for norm in norms)
    assert 0.1 * len(norms) < clipped < 0.9 * len(norms)


def _kkt_residual(p: np.ndarray, found: np.ndarray, rows: Sequence[np.ndarray]) -> float:
    """The largest violation, for ‖p‖ = 1 and unit rows, of p̃ − p = Mᵀz, z ≥ 0, Mp̃ ≥ 0 and z_i⟨M[i], p̃⟩ = 0."""
    size = np.linalg.norm(p)
    units = np.array([row / np.linalg.norm(row) for row in rows if row.any()])
    multipliers, gap = nnls(units.T, (found - p) / size)
    products = units @ found / size
    return max(float(gap), float(-products.min()), float(np.abs(multipliers * products).max()))


@pytest.mark.parametrize("rows", [1, 3, 4, 6])
@pytest.mark.parametrize("width", [2, 5, 24])
def test_the_reference_quadratic_program_meets_its_conditions(rows: int, width: int) -> None:
    draw = np.random.default_rng(rows * 100 + width)
    for _ in range(20):
        p, matrix = draw.normal(size=width), draw.normal(size=(rows, width))
        assert _kkt_residual(p, cone.nearest_in_cone(p, list(matrix)), list(matrix)) < 1e-11


def test_the_reference_quadratic_program_with_dependent_and_tiny_rows() -> None:
    draw = np.random.default_rng(5)
    p, row = draw.normal(size=6), draw.normal(size=6)
    flat = p - row * (p @ row) / (row @ row)
    opposite = cone.nearest_in_cone(p, [row, -3 * row])
    assert np.abs(opposite - flat).max() < 1e-14, "antiparallel rows leave their complement"
    toward = row if p @ row < 0 else -row
    twice = cone.nearest_in_cone(p, [toward, 2 * toward])
    assert np.abs(twice - flat).max() < 1e-14, "a row and its double are one constraint"
    decayed = cone.nearest_in_cone(p, [1e-20 * toward, 1e6 * flat])
    assert np.abs(decayed - flat).max() < 1e-14, "a row is kept however far it has decayed"
    assert np.array_equal(cone.nearest_in_cone(p, [0 * row, 1e-31 * toward, flat]), p), "but not under the floor"


# Headway's own quadratic programs.


def _vector(values: np.ndarray) -> Vector:
    """An array of one or more rows of length 10 as two tensors of shape (…, 3, 2) and (…, 4)."""
    tensor = torch.from_numpy(np.array(values))
    shape = tensor.shape[:-1]
    return Vector({"a": tensor[..., :6].reshape(*shape, 3, 2), "b": tensor[..., 6:].reshape(*shape, 4)})


@pytest.mark.parametrize("angle", [1.0, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("scale", [1.0, 1e-12])
def test_the_quadratic_programs_are_the_reference_one(angle: float, scale: float) -> None:
    """Rows nearly parallel and antiparallel to each other, one that has decayed, one zero and one twice.

    The conditions hold to 1e-9. For many rows the solution itself is then known to some 1e-8 near 1e-4 of parallel.
    """
    draw = np.random.default_rng(9)
    for _ in range(40):
        p, first, *free = draw.normal(size=(4, 10))
        near, opposite = first + angle * draw.normal(size=10), -first + angle * draw.normal(size=10)
        three = [first, (near, opposite, free[0])[draw.integers(3)], scale * free[1]]
        one, two, last = (_vector(row) for row in three)
        found = project_three(_vector(p), (one, two, last)).flat().numpy()
        assert np.abs(found - cone.nearest_in_cone(p, three)).max() < 1e-9
        many = [first, near, free[0], scale * opposite, scale * free[1], 0 * p, 3 * free[0]]
        found = project_rows(_vector(p), _vector(np.array(many)), len(many)).flat().numpy()
        assert _kkt_residual(p, found, many) < 1e-9
        assert np.abs(found - cone.nearest_in_cone(p, many)).max() < 1e-8 * np.linalg.norm(p)


# Objectives that look inside the network.

NETWORK = deep.Network(FEATURES, 6, 5, CLASSES)


def _staged() -> nn.Module:
    return Staged(
        nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh()),
        nn.Sequential(nn.Linear(6, 5), nn.Tanh()),
        nn.Linear(5, CLASSES),
    )


Chosen = Callable[[np.ndarray, np.ndarray, int], deep.Objective]
"""(received model, previous local model, client) → the objective of that client's round."""


def _counts(client: int) -> np.ndarray:
    return np.bincount(_samples()[0][client][1], minlength=CLASSES)


OBJECTIVES: dict[str, Chosen] = {
    "moon:mu=1,temperature=.5": lambda received, last, i: deep.moon(NETWORK, received, last, 1.0, 0.5),
    "moon:mu=5,temperature=2": lambda received, last, i: deep.moon(NETWORK, received, last, 5.0, 2.0),
    "fedmlb": lambda received, last, i: deep.fedmlb(NETWORK, received),
    "fedmlb:cross=.5,distil=2,temperature=3": lambda received, last, i: deep.fedmlb(NETWORK, received, 0.5, 2.0, 3.0),
    "fedntd:beta=1,temperature=1": lambda received, last, i: deep.fedntd(NETWORK, received, 1.0, 1.0),
    "fedntd:beta=.7,temperature=3": lambda received, last, i: deep.fedntd(NETWORK, received, 0.7, 3.0),
    "fedntd:beta=.3,temperature=1,mixed=true": lambda received, last, i: deep.fedntd(NETWORK, received, 0.3, 1.0, True),
    "fedlc:temperature=1": lambda received, last, i: deep.fedlc(NETWORK, _counts(i), 1.0),
    "fedlc:temperature=.5,others=true": lambda received, last, i: deep.fedlc(NETWORK, _counts(i), 0.5, others=True),
    "feddecorr:beta=.1": lambda received, last, i: deep.feddecorr(NETWORK, 0.1),
    "feddecorr:beta=.5,program=true": lambda received, last, i: deep.feddecorr(NETWORK, 0.5, program=True),
}
DEEP_COHORTS = [[1, 0, 3], [3, 0, 5], [4, 1, 2], [0, 5, 4]]


@cache
def _deep_reference(spelled: str) -> Trace:
    experiment = _experiment(spelled, _staged, steps=4, clip=2.0)
    return deep.averaged(_exported(experiment, DEEP_COHORTS), OBJECTIVES[spelled])


@pytest.mark.parametrize("executor", ["serial", "batched"])
@pytest.mark.parametrize("spelled", OBJECTIVES)
def test_a_deep_objective_trains_as_the_reference(spelled: str, executor: str) -> None:
    """Four rounds with unequal clients, absent classes, partial batches and clients that return."""
    experiment = _experiment(spelled, _staged, steps=4, clip=2.0, executor=executor)
    found, _ = _trace(experiment, DEEP_COHORTS)
    _agree(found, _deep_reference(spelled), {})


@pytest.mark.parametrize("client", [0, 1, 4])
@pytest.mark.parametrize("spelled", OBJECTIVES)
def test_loss_and_gradient_of_a_deep_objective(spelled: str, client: int) -> None:
    """Two rounds of two steps by one client, new and returning: the mean loss, and the gradient of the second step.

    That gradient is (w − w′)/η at w ≠ φ, where distillation and contrast are not at their minimum.
    """
    experiment = _experiment(spelled, _staged, steps=2, weight_decay=0.0, rate_decay=1.0)
    cohorts = [[client], [client]]
    problem = _exported(experiment, cohorts)
    found, outcomes = _trace(experiment, cohorts)
    received, last = problem.start, problem.start
    for t in (1, 2):
        objective = OBJECTIVES[spelled](received, last, client)
        w, losses = received, []
        for rows, rate in problem.steps(t, client):
            losses.append(np.real(objective(w, problem.x[rows], problem.y[rows])))
            before, gradient = w, deep.complex_step(lambda at: objective(at, problem.x[rows], problem.y[rows]), w)  # noqa: B023
            w = before - rate * gradient
        assert abs(outcomes[t - 1].train_loss - np.mean(losses)) < 1e-7 * max(1.0, abs(np.mean(losses)))
        moved = (before - found[t - 1]["theta"]) / rate
        assert np.abs(moved - gradient).max() < 1e-6 * np.abs(gradient).max()
        received = last = found[t - 1]["theta"]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("others", [False, True])
def test_calibration_with_one_class_a_client_or_a_batch_is_the_reference_one(others: bool, executor: str) -> None:
    """Clients 0 and 2 hold one class, client 1 two: in batches of 2, some of one class only. No client has class 2."""
    labels = [np.full(6, 1), np.array([0, 3, 0, 0, 3, 0, 0, 0, 3]), np.full(5, 3)]
    draw = np.random.default_rng(2)
    pairs = [(draw.normal(size=(len(y), FEATURES)), y) for y in labels]
    module = built(_staged, 11, "reference")
    scenario = BASE.changed(batch_size=2, epochs=1, executor=executor)
    spelled = hw.method(f"fedlc:others={str(others).lower()}")
    chosen = build(scenario, spelled, model=module, clients=pairs, test=_samples()[1])
    cohorts = [[0, 1, 2], [1, 2], [0, 1]]
    problem = _exported(chosen, cohorts)
    assert any(len(set(problem.y[rows])) == 1 for rows in problem.batches[1, 1])
    found, outcomes = _trace(chosen, cohorts)
    counts = [np.bincount(y, minlength=CLASSES) for y in labels]
    expected = deep.averaged(problem, lambda received, last, i: deep.fedlc(NETWORK, counts[i], 1.0, others))
    _agree(found, expected, {}, tolerance=1e-10)
    assert all(abs(outcome.train_loss) < 10 for outcome in outcomes)
    with chosen.arithmetic():
        alone, outcome = run_round(
            chosen, initial_state(chosen), ClientStates(), EXECUTORS["serial"](chosen), Cohort((0,)), 1
        )
    assert outcome.train_loss == 0.0
    shrunk = problem.start * np.prod([1 - rate * problem.weight_decay for _, rate in problem.steps(1, 0)])
    assert np.abs(alone.theta.flat().numpy() - shrunk).max() < 1e-14, "weight decay is all that moves it"


def test_distillation_may_weigh_more_than_the_task() -> None:
    """CE + β·KL has no reason for β ≤ 1; only (1−β)·CE + β·KL does."""
    experiment = _experiment("fedntd:beta=2,temperature=1", _staged, steps=4)
    found, _ = _trace(experiment, DEEP_COHORTS)
    _agree(
        found, deep.averaged(_exported(experiment, DEEP_COHORTS), lambda w, *_: deep.fedntd(NETWORK, w, 2.0, 1.0)), {}
    )


def test_decorrelation_does_not_see_padding() -> None:
    """Clients of 3, 5 and 17 samples in one batched cohort: rows that only fill a batch change nothing."""
    experiment = _experiment("feddecorr:beta=5", _staged, rate=0.1, executor="batched")
    cohorts = [[0, 4, 1], [1, 4, 0]]
    found, _ = _trace(experiment, cohorts)
    _agree(found, deep.averaged(_exported(experiment, cohorts), lambda *_: deep.feddecorr(NETWORK, 5.0)), {})


@pytest.mark.parametrize(
    ("spelled", "objective", "lookahead"),
    [
        ("moonm:mu=1,temperature=.5,momentum=.6", "moon:mu=1,temperature=.5", False),
        ("fedmlbm:momentum=.6", "fedmlb", False),
        ("moon:mu=1,temperature=.5+acg:lam=.6", "moon:mu=1,temperature=.5", True),
        ("fedmlb+acg:lam=.6", "fedmlb", True),
    ],
)
def test_momentum_goes_with_a_deep_objective(spelled: str, objective: str, lookahead: bool) -> None:
    """MOONM, FedMLBM (Luo et al. 2023, section 6.1) and +ACG: the objective compares with the lookahead.

    +ACG is that of Table 7 of FedACG's submission to ICLR 2024.
    """
    experiment = _experiment(spelled, _staged, steps=4)
    found, _ = _trace(experiment, DEEP_COHORTS)
    expected = deep.averaged(_exported(experiment, DEEP_COHORTS), OBJECTIVES[objective], 0.6, lookahead)
    _agree(found, expected, {"m": "momentum"})


def test_the_complex_step_is_the_slope() -> None:
    """Against central differences, at a point away from the received model."""
    draw = np.random.default_rng(1)
    width = sum((before + 1) * after for before, after in zip(NETWORK.sizes[:-1], NETWORK.sizes[1:], strict=True))
    received, last, w = draw.normal(size=(3, width))
    x, y = draw.normal(size=(4, FEATURES)), np.array([0, 1, 2, 1])
    for chosen in OBJECTIVES.values():
        objective = chosen(received, last, 0)
        exact = deep.complex_step(lambda at: objective(at, x, y), w)  # noqa: B023
        for j in range(0, width, 7):
            step = np.zeros(width)
            step[j] = 1e-5
            slope = np.real(objective(w + step, x, y) - objective(w - step, x, y)) / 2e-5
            assert abs(slope - exact[j]) < 1e-7 * max(1.0, float(np.abs(exact).max()))
