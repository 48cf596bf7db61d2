"""The limits of the further methods: with which arguments each is another one, and what never fails to hold of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from conftest import experiment, played
from headway.data.batches import plan
from headway.data.cohort import Cohort
from headway.engine.experiment import Experiment
from headway.engine.round import run_round
from headway.engine.serial import Serial
from headway.engine.server import GlobalState, handed_over, initial_state
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods import broadcast, server
from headway.methods.method import Method
from headway.methods.spelling import method
from headway.vectors import Vector
from iterations import gap, iterates, single

SETTINGS: dict[str, Any] = {"rounds": 5, "rate_decay": 0.9, "weight_decay": 0.01}
LIMITS: dict[tuple[str, str], dict[str, Any]] = {
    ("fedmom:momentum=0,server_rate=0.7", "fedavg:server_rate=0.7"): {},
    ("slowmo:momentum=0,local_momentum=0.6", "fedavg+sgd:momentum=0.6,nesterov=true"): {},
    (
        "slowmo:momentum=0.5,server_rate=0.8,local_momentum=0",
        "fedavgm:momentum=0.5,server_rate=0.8",
    ): {"rate_decay": 1.0},
    ("ghbm:beta=0", "fedavg"): {},
    ("local-ghbm:beta=0", "fedavg"): {},
    ("fedadc:momentum=0,local_momentum=0", "fedavg"): {},
    ("domo:fusion=0,local_momentum=0,momentum=0", "fedavg"): {},
    ("fedexp:eps=1e6", "fedavg"): {},
    ("fedinit:beta=0", "fedavg"): {},
    ("fedsam:rho=0", "fedavg"): {},
    ("fedasam:rho=0", "fedavg"): {},
    ("fedlesam:rho=0", "fedavg"): {},
    ("mofedsam:rho=0,alpha=0.3", "fedcm:alpha=0.3"): {},
    ("mofedsam:rho=0.2,alpha=1", "fedsam:rho=0.2"): {},
    ("fedgamma:rho=0", "scaffold"): {},
    ("diloco:momentum=0,server_rate=1", "fedavg+adamw:beta2=0.95,state=keep"): {"rate": 0.01},
    ("diloco:momentum=0,server_rate=0.6", "fedavg:server_rate=0.6+adamw:beta2=0.95,state=keep"): {"rate": 0.01},
}


@pytest.mark.parametrize(("spelled", "limit"), LIMITS)
def test_a_limit_is_another_method(spelled: str, limit: str) -> None:
    settings = {**SETTINGS, **LIMITS[spelled, limit]}
    assert gap(iterates(spelled, **settings), iterates(limit, **settings)) <= 1e-12


@pytest.mark.parametrize(("spelled", "parent"), [("fedsam", "fedavg"), ("mofedsam", "fedcm"), ("fedgamma", "scaffold")])
def test_without_an_ascent_it_is_its_parent_bit_for_bit(spelled: str, parent: str) -> None:
    assert gap(iterates(f"{spelled}:rho=0", **SETTINGS), iterates(parent, **SETTINGS)) == 0


def states(spelled: Any, rounds: int = 6, **settings: Any) -> tuple[Experiment, list[GlobalState]]:
    """The server's whole state after each round."""
    chosen = experiment(spelled, rounds=rounds, **settings)
    model, hand, store, found = initial_state(chosen), Serial(chosen), ClientStates(), []
    with chosen.arithmetic():
        for number in range(1, rounds + 1):
            cohort = Cohort(tuple({number % 6, (number + 2) % 6, (number + 3) % 6}))
            model, _ = run_round(chosen, model, store, hand, cohort, number)
            found.append(model)
    return chosen, found


@pytest.mark.parametrize(
    ("spelled", "part", "name"), [("fedadagrad", "adagrad", "v"), ("fedams:beta2=0.5", "ams", "top")]
)
def test_a_scale_that_never_falls(spelled: str, part: str, name: str) -> None:
    _, found = states(spelled)
    scales = [state.server[f"server.{part}"][name].flat() for state in found]
    assert all(bool((later >= earlier).all()) for earlier, later in pairwise(scales))
    assert float((scales[-1] - scales[0]).abs().max()) > 0


def test_the_second_moments_agree_in_the_first_round_up_to_a_factor() -> None:
    """v − v₀ is Δ² in Adagrad, ±(1−β₂)Δ² in Yogi, and in Adam (1−β₂)Δ² above β₂v₀."""
    eps, beta2 = 0.01, 0.9
    options = f"eps={eps},beta1=0"
    square = states(f"fedadagrad:{options}", 1)[1][0].server["server.adagrad"]["v"].flat() - eps**2
    yogi = states(f"fedyogi:{options},beta2={beta2}", 1)[1][0].server["server.yogi"]["v"].flat() - eps**2
    adam = states(f"fedadam:{options},beta2={beta2}", 1)[1][0].server["server.adam"]["v"].flat() - beta2 * eps**2
    assert torch.allclose(yogi.abs(), (1 - beta2) * square, rtol=1e-9, atol=1e-15)
    assert torch.allclose(adam, (1 - beta2) * square, rtol=1e-9, atol=1e-15)
    assert bool((yogi > 0).any())


def test_one_client_alone_is_not_extrapolated() -> None:
    """Clients that agree make η_g = 1; its records never say less."""
    alone = played(single("fedexp:eps=0", rounds=3))[0]
    assert [record["server_rate"] for record in alone] == [1.0, 1.0, 1.0]
    chosen = experiment("fedexp:eps=0", rounds=8, rate=0.5, epochs=6, participation=1.0)
    several = [record["server_rate"] for record in played(chosen)[0]]
    assert min(several) >= 1
    assert max(several) > 1


def test_the_mean_of_two_iterates_is_handed_over() -> None:
    chosen, found = states("fedexp")
    for before, after in pairwise(found):
        output = handed_over(chosen.method, after).theta
        assert torch.allclose(output.flat(), (before.theta.flat() + after.theta.flat()) / 2, rtol=0, atol=1e-15)
    _, progress = played(experiment("fedexp", rounds=4))
    assert gap([progress.output(chosen).theta.flat()], [progress.model.theta.flat()]) > 1e-6
    plain, last = states("fedavg")
    assert handed_over(plain.method, last[-1]) is last[-1]


@pytest.mark.parametrize(
    ("spelled", "words"),
    [
        ("feddyn+exp", "must sum up the updates"),
        ("feddyn+fednova", "must sum up the updates"),
        ("fednova+exp", "both scale the mean update"),
        ("fedcm+init", "start at the received model"),
        ("fednova+adam", "plain SGD"),
        ("mifa+exp", "'delta'"),
        ("fedinit+init:beta=0.5", "both set the local slot"),
    ],
)
def test_what_would_be_a_silent_wrong_number_is_refused(spelled: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        method(spelled)


def test_a_start_goes_with_a_probe_a_correction_and_an_optimiser() -> None:
    """And it is felt beside each."""
    for rest in ("sam", "scaffold", "sgd:momentum=0.5", "acg"):
        assert gap(iterates(f"fedavg+{rest}+init:beta=0.3"), iterates(f"fedavg+{rest}")) > 1e-6


def test_a_control_variate_is_of_the_steps_from_where_a_client_began() -> None:
    """SCAFFOLD's c_i of a client that begins elsewhere: the mean of its own gradients, and not −Δ_i/(ηK)."""
    chosen = experiment("scaffold+init:beta=0.3", weight_decay=0.0, participation=1.0, rounds=2)
    model, hand, store = initial_state(chosen), Serial(chosen), ClientStates()
    for number in (1, 2):
        before = model
        with chosen.arithmetic():
            model, _ = run_round(chosen, model, store, hand, Cohort(tuple(range(6))), number)
    state = store.get(0)
    assert state is not None
    slots: Any = state["slots"]
    control, last = slots["local.controlled"]["c"].flat(), slots["local.relaxed_start"]["last"].flat()
    naive = (before.theta.flat() - last) / 0.1
    assert float((control - naive / len(plan_of(chosen, 0, 2))).abs().max()) > 1e-3


def plan_of(chosen: Experiment, client: int, round: int) -> np.ndarray:
    scenario = chosen.scenario
    return plan(scenario, np.asarray(chosen.federation.clients[client]), scenario.seed, round, client, 0).rows


def test_one_worker_without_outer_momentum_is_adamw() -> None:
    """Rounds leave no trace: the moments are kept and θ is the worker's own model."""
    chosen = single("diloco:momentum=0,server_rate=1", rate=0.01, rate_decay=1.0, rounds=3, weight_decay=0.1, clip=0.0)
    _, progress = played(chosen)
    scenario, federation = chosen.scenario, chosen.federation
    module = chosen.network.module(chosen.network.parameters, {}).double()
    optimiser = torch.optim.AdamW(module.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)
    for number in (1, 2, 3):
        batches = plan(scenario, np.asarray(federation.clients[0]), scenario.seed, number, 0, 0)
        for rows, count in zip(batches.rows, batches.counts, strict=True):
            x, y = federation.train.x[rows[:count]], federation.train.y[rows[:count]]
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(x.double()), y).backward()
            optimiser.step()
    mine = Vector({name: leaf.detach() for name, leaf in module.named_parameters()})
    assert gap([progress.model.theta.flat()], [mine.flat()]) < 1e-12


def test_a_lookbehind_along_a_momentum_mirrors_the_lookahead() -> None:
    m = Vector({"a": torch.tensor([3.0, 4.0])})
    theta = Vector({"a": torch.tensor([1.0, 1.0])})
    back = broadcast.lookbehind(0.5, of="momentum").message(theta, {"momentum": m})["model"].flat()
    assert torch.allclose(back, torch.tensor([1 - 0.3, 1 - 0.4]))
    assert torch.equal(broadcast.lookbehind(0.5).message(theta, {"update": m.zeros()})["model"].flat(), theta.flat())
    Method(broadcast=broadcast.lookbehind(0.1, of="momentum"), server=server.momentum(0.5))
