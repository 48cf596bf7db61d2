"""Cheap truths about the methods, in float64, with partial participation and unequal clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import headway as hw
from conftest import experiment
from headway.data.cohort import Cohort
from headway.engine.round import run_round
from headway.engine.serial import Serial
from headway.engine.server import GlobalState, initial_state
from headway.engine.states import ClientStates
from headway.vectors import Vector


def path(spelled: Any, **settings: Any) -> list[torch.Tensor]:
    """θ after each round."""
    chosen = experiment(spelled, **settings)
    model, hand, store = initial_state(chosen), Serial(chosen), ClientStates()
    thetas = []
    with chosen.arithmetic():
        for number in range(1, chosen.scenario.rounds + 1):
            cohort = [number % 6, (number + 2) % 6, (number + 3) % 6]
            model, _ = run_round(chosen, model, store, hand, Cohort(tuple(cohort)), number)
            thetas.append(model.theta.flat())
    return thetas


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.allclose(one, two, rtol=0, atol=1e-12) for one, two in zip(left, right, strict=True))


def test_fedacg_without_momentum_is_fedprox() -> None:
    assert same(path("fedacg:lam=0,beta=0.3", rounds=6), path("fedprox:mu=0.3", rounds=6))


def test_fedacg_without_momentum_and_pull_is_fedavg() -> None:
    assert same(path("fedacg:lam=0,beta=0", rounds=6), path("fedavg", rounds=6))


def test_fedprox_without_pull_is_fedavg_and_with_it_is_not() -> None:
    assert same(path("fedprox:mu=0", rounds=6), path("fedavg", rounds=6))
    assert not same(path("fedprox:mu=0.5", rounds=6), path("fedavg", rounds=6))


def test_fedavgm_without_momentum_is_fedavg() -> None:
    assert same(path("fedavgm:momentum=0", rounds=6), path("fedavg", rounds=6))


def test_fedacg_differs_from_fedavgm_from_round_two_on() -> None:
    """In round 1 there is no momentum yet; then the place where clients start differs."""
    ahead, behind = path("fedacg:lam=0.8,beta=0", rounds=4), path("fedavgm:momentum=0.8", rounds=4)
    assert torch.allclose(ahead[0], behind[0], rtol=0, atol=1e-14)
    assert all(not torch.allclose(one, two, rtol=0, atol=1e-6) for one, two in zip(ahead[1:], behind[1:], strict=True))


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.85])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_fedagm_at_full_rate_is_fedacg(lam: float, beta: float) -> None:
    """τ = 1 and α = 1: the same model in every round."""
    assert same(path(f"fedagm:lam={lam},beta={beta}", rounds=6), path(f"fedacg:lam={lam},beta={beta}", rounds=6))


def test_fedacg_lands_on_the_lookahead_plus_the_update() -> None:
    """θ_{t+1} = φ_t + Δ_t with φ_t = θ_t + λm_t: the two-step form of Alg. 1."""
    steps = recorded("fedacg:lam=0.7,beta=0.05")
    for before, message, mean, after in steps:
        ahead = before.theta + 0.7 * before.server["server.momentum"]["momentum"]
        assert close(message["model"], ahead)
        assert close(after.theta, ahead + mean["delta"])


@pytest.mark.parametrize("rate", [0.3, 1.0, 1.4])
def test_lemma_4_1_of_fedagm(rate: float) -> None:
    """V_{t+1} = −τΔ + λV_t for any τ, with V = −(θ_{t+1} − θ_t)."""
    lam = 0.6
    velocity = None
    for before, _, mean, after in recorded(f"fedagm:lam={lam},server_rate={rate}"):
        now = -(after.theta - before.theta)
        expected = -rate * mean["delta"] + lam * (velocity if velocity is not None else now.zeros())
        assert close(now, expected)
        velocity = now


def test_fedagm_weighs_the_task_by_alpha() -> None:
    """α = 0 leaves the proximal pull alone, and clients start at its minimum: only weight decay could move them."""
    thetas = path("fedagm:alpha=0", rounds=3, weight_decay=0.0)
    assert same(thetas[:1] * 3, thetas)


def test_weights_by_size_and_uniform_differ_for_unequal_clients() -> None:
    assert not same(path("fedavg"), path("fedavg", weights="uniform"))


def test_a_weighted_mean_is_taken() -> None:
    """Δ = Σ n_i Δ_i / Σ n_i, from each client's own round played alone."""
    chosen = experiment("fedavg")
    model, hand = initial_state(chosen), Serial(chosen)
    with chosen.arithmetic():
        alone = {
            client: run_round(chosen, model, ClientStates(), hand, Cohort((client,)), 1)[0].theta
            for client in (0, 1, 3)
        }
        together = run_round(chosen, model, ClientStates(), hand, Cohort((0, 1, 3)), 1)[0].theta
    sizes = {client: len(chosen.federation.clients[client]) for client in alone}
    parts = [(sizes[client] / sum(sizes.values())) * alone[client] for client in alone]
    assert close(together, parts[0] + parts[1] + parts[2])


def test_local_sgd_is_torch_sgd() -> None:
    """One client's round is torch.optim.SGD with clipping and weight decay on the same batches."""
    chosen = experiment("fedavg", weight_decay=0.01, clip=0.5, rate_decay=0.5)
    hand = Serial(chosen)
    with chosen.arithmetic():
        theta = run_round(chosen, initial_state(chosen), ClientStates(), hand, Cohort((3,)), 2)[0].theta
    from headway.data.batches import plan

    scenario, federation = chosen.scenario, chosen.federation
    module = chosen.network.module(chosen.network.parameters, {}).double()
    optimiser = torch.optim.SGD(module.parameters(), lr=scenario.rate * 0.5, weight_decay=0.01)
    batches = plan(scenario, np.asarray(federation.clients[3]), scenario.seed, 2, 3, 0)
    for rows, count in zip(batches.rows, batches.counts, strict=True):
        x, y = federation.train.x[rows[:count]], federation.train.y[rows[:count]]
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(x.double()), y).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimiser.step()
    assert close(theta, Vector({name: leaf.detach() for name, leaf in module.named_parameters()}))


class Spy:
    """A server slot that remembers what it was given and leaves the work to another."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.seen = inner, []
        self.provides = getattr(inner, "provides", ())
        self.server_state = inner.server_state

    def update(self, model: Vector, uploads: Any, state: Any) -> Any:
        self.seen.append(uploads)
        return self.inner.update(model, uploads, state)


def recorded(spelled: str) -> list[tuple[GlobalState, Any, Any, GlobalState]]:
    """(server before, message, mean upload, server after) of five rounds."""
    built = hw.method(spelled)
    spy = Spy(built.server[0])
    chosen = experiment(hw.Method(broadcast=built.broadcast, objective=built.objective, local=built.local, server=spy))
    model, hand, store = initial_state(chosen), Serial(chosen), ClientStates()
    found = []
    with chosen.arithmetic():
        for number in range(1, 6):
            after, _ = run_round(chosen, model, store, hand, Cohort((number % 6, (number + 1) % 6)), number)
            state = {"server.momentum": model.server["server.Spy"]}
            found.append((GlobalState(model.theta, {}, state), spy.seen[-1].sent, spy.seen[-1].mean, after))
            model = after
    return found


def close(left: Vector, right: Vector) -> bool:
    return torch.allclose(left.flat(), right.flat(), rtol=0, atol=1e-12)
