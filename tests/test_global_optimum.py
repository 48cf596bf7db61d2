"""Where methods end up on heterogeneous quadratics: SCAFFOLD, FedDyn and FedDC at the global optimum, FedAvg beside it.

A client is a linear regression read in whole batches, so f_i(w) = ‖X_i w − y_i‖²/n_i has its own Hessian 2X_iᵀX_i/n_i.
The optimum Σ p_i ∇f_i(w) = 0 is solved in NumPy. L is the largest curvature of any client; the conditions on η are
those of the identities in the specification.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from headway.data.cohort import Cohort
from headway.data.participation import cohort
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.engine.round import run_round
from headway.engine.serial import Serial
from headway.engine.server import GlobalState, initial_state
from headway.engine.states import ClientStates
from headway.errors import Diverged
from headway.methods.spelling import method
from headway.random import built
from headway.scenario import Scenario
from headway.vectors import Vector

Clients = list[tuple[np.ndarray, np.ndarray]]

SIZES, FEATURES = (3, 9, 5, 14, 4), 3
LARGEST = 2.0
"""L."""

EXACT = Scenario(
    steps=3, batch_size=max(SIZES), rate_decay=1.0, weight_decay=0.0, clip=0.0, precision="fp64", device="cpu"
)


def quadratics(alike: bool = False) -> Clients:
    """(X_i, y_i) whose Hessians have eigenvalues from 0.4 to L along their own axes, or all the same (`alike`)."""
    draw = np.random.default_rng(1)
    found = []
    for client, size in enumerate(SIZES):
        columns, _ = np.linalg.qr(draw.normal(size=(size, FEATURES)))
        axes, _ = np.linalg.qr(draw.normal(size=(FEATURES, FEATURES)))
        curvature = draw.uniform(0.4, LARGEST, size=FEATURES)
        curvature[client % FEATURES] = LARGEST
        if alike:
            curvature, axes = np.array([0.8, 1.0, LARGEST]), np.eye(FEATURES)
        x = np.sqrt(size / 2) * (columns * np.sqrt(curvature)) @ axes.T
        found.append((x, x @ draw.normal(scale=2.0, size=FEATURES) + draw.normal(size=size)))
    return found


def hessians(clients: Clients) -> list[np.ndarray]:
    return [2 * x.T @ x / len(y) for x, y in clients]


def optimum(clients: Clients, weights: str) -> np.ndarray:
    """argmin Σ p_i f_i, p_i = n_i/Σn or 1/N."""
    sizes = np.array([len(y) for _, y in clients], dtype=float)
    shares = sizes / sizes.sum() if weights == "size" else np.full(len(sizes), 1 / len(sizes))
    curvature = sum(share * hessian for share, hessian in zip(shares, hessians(clients), strict=True))
    slope = sum(share * 2 * x.T @ y / len(y) for share, (x, y) in zip(shares, clients, strict=True))
    return np.linalg.solve(curvature, slope)


def regression(spelled: str, clients: Clients, **settings: Any) -> Experiment:
    module = built(lambda: nn.Linear(FEATURES, 1, bias=False), 3, "optima")
    return build(EXACT.changed(**settings), method(spelled), model=module, clients=clients, test=clients[0])


def distances(spelled: str, rounds: int, clients: Clients | None = None, **settings: Any) -> list[float]:
    """max |θ_t − w*| after each round, cohorts as a simulation draws them. Five below 1e-9 in a row are enough."""
    clients = clients or quadratics()
    experiment = regression(spelled, clients, **settings)
    best = optimum(clients, experiment.scenario.weights)
    model, hand, store = initial_state(experiment), Serial(experiment), ClientStates()
    found = []
    with experiment.arithmetic():
        for number in range(1, rounds + 1):
            taking = cohort(experiment.population, experiment.scenario.cohort, experiment.scenario.seed, number)
            model, _ = run_round(experiment, model, store, hand, Cohort(tuple(taking)), number)
            found.append(float(np.abs(model.theta.flat().numpy() - best).max()))
            if max(found[-5:]) < 1e-9 and len(found) >= 5:
                break
    return found


def test_the_problem_is_one_in_which_the_claims_mean_something() -> None:
    """L is the largest curvature, Hessians differ, and the two weightings have different optima."""
    curvatures = hessians(quadratics())
    assert max(np.linalg.eigvalsh(one).max() for one in curvatures) == pytest.approx(LARGEST, abs=1e-12)
    assert min(np.linalg.eigvalsh(one).min() for one in curvatures) > 0.39
    assert all(np.abs(one - two).max() > 0.1 for i, one in enumerate(curvatures) for two in curvatures[:i])
    assert np.abs(optimum(quadratics(), "size") - optimum(quadratics(), "uniform")).max() > 0.1
    same = hessians(quadratics(alike=True))
    assert all(np.abs(one - same[0]).max() < 1e-12 for one in same)


@pytest.mark.parametrize("weights", ["size", "uniform"])
@pytest.mark.parametrize(("participation", "rounds"), [(1.0, 100), (0.6, 200)])
@pytest.mark.parametrize(
    ("spelled", "rate"), [("scaffold", 0.3), ("feddyn:alpha=1", 0.3), ("feddc:alpha=0.5", 0.3)], ids=str
)
def test_corrected_methods_reach_the_global_optimum(
    spelled: str, rate: float, participation: float, rounds: int, weights: str
) -> None:
    """All five clients or three drawn in each round; the optimum is the one of the weights in use."""
    assert distances(spelled, rounds, rate=rate, participation=participation, weights=weights)[-1] < 1e-9


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_fedavg_does_not(weights: str) -> None:
    """With everybody and K = 3 it stands still somewhere else: its last rounds do not move, away from the optimum."""
    far = distances("fedavg", 80, rate=0.3, participation=1.0, weights=weights)
    assert far[-1] > 0.05
    assert abs(far[-1] - far[-20]) < 1e-9


def test_fedavg_with_partial_participation_does_not_settle_at_the_optimum() -> None:
    far = distances("fedavg", 80, rate=0.3, participation=0.6)
    assert min(far[40:]) > 0.05


def test_fedavg_does_with_one_local_step() -> None:
    """K = 1 with everybody is gradient descent on the global objective."""
    assert distances("fedavg", 100, rate=0.5, participation=1.0, steps=1)[-1] < 1e-9


def test_fedavg_does_where_all_hessians_are_the_same() -> None:
    assert distances("fedavg", 80, clients=quadratics(alike=True), rate=0.3, participation=1.0)[-1] < 1e-9


EDGES: dict[str, tuple[str, int, float]] = {
    "scaffold, ηL = 1.9 < 2": ("scaffold", 3, 1.9 / LARGEST),
    "feddyn, η(L+α) = 4/3": ("feddyn:alpha=1", 3, 4 / 3 / (LARGEST + 1)),
    "feddyn, η(L+α) = 4/3, K = 6": ("feddyn:alpha=1", 6, 4 / 3 / (LARGEST + 1)),
    "feddc, η(L+α) = 1 and ηKL ≤ 2": ("feddc:alpha=0.02", 2, 1 / (LARGEST + 0.02)),
    "feddc, η(L+α) = 1 and α = 0.1 L": ("feddc:alpha=0.2", 5, 1 / (LARGEST + 0.2)),
}


@pytest.mark.parametrize("edge", EDGES)
def test_rates_up_to_the_condition_still_reach_it(edge: str) -> None:
    """Full participation, at the ends of the intervals for η (ηL just inside where the end is left out)."""
    spelled, steps, rate = EDGES[edge]
    assert distances(spelled, 120, rate=rate, steps=steps, participation=1.0)[-1] < 1e-9


@pytest.mark.parametrize(
    ("spelled", "rate"), [("scaffold", 2.1 / LARGEST), ("feddyn:alpha=1", 2.1 / (LARGEST + 1))], ids=str
)
def test_rates_beyond_it_run_away(spelled: str, rate: float) -> None:
    """ηL = 2.1 and η(L+α) = 2.1: every local step overshoots by more than it corrects."""
    try:
        far = distances(spelled, 100, rate=rate, participation=1.0)
    except Diverged:
        return
    assert far[-1] > 1e3


def _after_one_round(experiment: Experiment, model: GlobalState) -> np.ndarray:
    with experiment.arithmetic():
        after, _ = run_round(experiment, model, ClientStates(), Serial(experiment), Cohort((0, 3)), 1)
    return after.theta.flat().numpy()


@pytest.mark.parametrize("steps", [1, 4])
def test_changing_c_changes_scaffold_s_update(steps: int) -> None:
    """c enters each step as + c: after K steps client i has moved by −η Σ_k (I − ηH_i)^k c more than without."""
    clients = quadratics()
    experiment = regression("scaffold", clients, rate=0.3, steps=steps, participation=0.4)
    plain = initial_state(experiment)
    c = np.array([0.5, -1.0, 0.25])
    control = {"server.control_mean": {"control": plain.theta.unflat(torch.from_numpy(c))}}
    changed = replace(plain, server={**plain.server, **control})
    assert plain.server.keys() == control.keys()
    sizes = np.array([len(clients[client][1]) for client in (0, 3)])
    expected = np.zeros(FEATURES)
    for share, hessian in zip(sizes / sizes.sum(), (hessians(clients)[0], hessians(clients)[3]), strict=True):
        step = np.eye(FEATURES) - 0.3 * hessian
        expected -= share * 0.3 * sum(np.linalg.matrix_power(step, k) for k in range(steps)) @ c
    moved = _after_one_round(experiment, changed) - _after_one_round(experiment, plain)
    assert np.abs(moved - expected).max() < 1e-12
    assert np.abs(moved).max() > 0.05


def test_a_client_s_own_control_is_subtracted() -> None:
    """c_i enters as − c_i: where c_i = c the step is plain SGD."""
    experiment = regression("scaffold", quadratics(), rate=0.3, participation=0.4)
    plain = initial_state(experiment)
    c: Vector = plain.theta.unflat(torch.tensor([0.5, -1.0, 0.25], dtype=torch.float64))
    changed = replace(plain, server={"server.control_mean": {"control": c}})
    store = ClientStates()
    for client in (0, 3):
        store.put(client, {"slots": {"local.controlled": {"c": c.copy()}}})
    with experiment.arithmetic():
        after, _ = run_round(experiment, changed, store, Serial(experiment), Cohort((0, 3)), 1)
    assert np.abs(after.theta.flat().numpy() - _after_one_round(experiment, plain)).max() < 1e-12
