"""More cheap truths: FedNAG and centralised Nesterov, GradMA, terms that are switched off, traffic.

In float64, with unequal clients and, where nothing else is said, partial participation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import headway as hw
from conftest import SIZES, SMALL, experiment, norm_free, played, two_leaves, unequal_clients
from headway import random
from headway.data.batches import plan
from headway.data.cohort import Cohort
from headway.engine.building import build
from headway.engine.cost import cost
from headway.engine.experiment import Experiment
from headway.engine.round import run_round
from headway.engine.serial import Serial
from headway.engine.server import GlobalState, initial_state
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods.catalogue import METHODS
from headway.methods.server import update_memory
from headway.methods.slots import Uploads
from headway.methods.spelling import method
from headway.scenario import Scenario
from headway.trees import nbytes

EVERYBODY = [list(range(len(SIZES)))] * 6
RETURNING = [[number % 6, (number + 2) % 6, (number + 3) % 6] for number in range(1, 7)]
"""Three of six clients a round; everybody comes back after one to three rounds."""


def states(chosen: Experiment, cohorts: list[list[int]]) -> list[GlobalState]:
    """What the server holds after each round with these cohorts."""
    model, hand, store = initial_state(chosen), Serial(chosen), ClientStates()
    found = []
    with chosen.arithmetic():
        for number, cohort in enumerate(cohorts, 1):
            model, _ = run_round(chosen, model, store, hand, Cohort(tuple(cohort)), number)
            found.append(model)
    return found


def path(spelled: Any, cohorts: list[list[int]] = RETURNING, **given: Any) -> list[Tensor]:
    """θ after each round."""
    return [model.theta.flat() for model in states(experiment(spelled, **given), cohorts)]


def gap(left: list[Tensor], right: list[Tensor]) -> float:
    """The largest difference between two paths of the same length."""
    return max(float((one - two).abs().max()) for one, two in zip(left, right, strict=True))


# FedNAG.

WHOLE = {"steps": 1, "batch_size": sum(SIZES), "clip": 0.0, "weight_decay": 0.0, "rate": 0.4, "rate_decay": 0.95}
"""One step a round on everything a client has."""


def softmax_regression(spelled: str, **given: Any) -> Experiment:
    module = random.built(lambda: nn.Linear(6, 3), 5, "test")
    return build(SMALL.changed(**given), method(spelled), model=module, **unequal_clients())


def pooled_slope(w: np.ndarray) -> np.ndarray:
    """∇F at w = (W, b) of softmax regression on everybody's samples in one heap."""
    pairs = unequal_clients()["clients"]
    x, y = np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs])
    logits = x @ w[:18].reshape(3, 6).T + w[18:]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    excess = (shares / shares.sum(1, keepdims=True) - np.eye(3)[y]) / len(y)
    return np.concatenate([(excess.T @ x).reshape(-1), excess.sum(0)])


def centralised_nesterov(w: np.ndarray, gamma: float, rounds: int) -> list[np.ndarray]:
    """v ← γv − ηg ; w ← w + γv − ηg with g at w, one step a round."""
    v, found = np.zeros_like(w), []
    for number in range(rounds):
        rate = WHOLE["rate"] * WHOLE["rate_decay"] ** number
        g = pooled_slope(w)
        v = gamma * v - rate * g
        w = w + gamma * v - rate * g
        found.append(w)
    return found


@pytest.mark.parametrize("gamma", [0.3, 0.9])
def test_fednag_in_single_steps_is_centralised_nesterov(gamma: float) -> None:
    """One local step, all workers, whole batches, weights by size: NumPy's loop, and `cnag` on the pooled data."""
    chosen = softmax_regression(f"fednag:gamma={gamma}", **WHOLE)
    assert chosen.scenario.participation == SMALL.participation
    found = [model.theta.flat() for model in states(chosen, EVERYBODY)]
    expected = centralised_nesterov(chosen.network.parameters.flat().numpy(), gamma, len(EVERYBODY))
    assert gap(found, [torch.from_numpy(one) for one in expected]) < 1e-12
    pooled = states(softmax_regression(f"cnag:gamma={gamma}", **WHOLE), [[0]] * len(EVERYBODY))
    assert gap(found, [model.theta.flat() for model in pooled]) < 1e-12


@pytest.mark.parametrize("change", [{"weights": "uniform"}, {"steps": 2}, {"batch_size": 4}], ids=str)
def test_fednag_is_not_centralised_nesterov_otherwise(change: dict[str, Any]) -> None:
    """Each condition is needed: weights by size, one step, whole batches."""
    chosen = softmax_regression("fednag:gamma=0.9", **(WHOLE | change))
    found = [model.theta.flat() for model in states(chosen, EVERYBODY)]
    expected = centralised_nesterov(chosen.network.parameters.flat().numpy(), 0.9, len(EVERYBODY))
    assert gap(found, [torch.from_numpy(one) for one in expected]) > 1e-3


@pytest.mark.parametrize("cohorts", [EVERYBODY, RETURNING], ids=["everybody", "some"])
def test_fednag_without_momentum_is_fedavg(cohorts: list[list[int]]) -> None:
    assert gap(path("fednag:gamma=0", cohorts), path("fedavg", cohorts)) < 1e-12
    assert gap(path("fednag:gamma=0.5", cohorts), path("fedavg", cohorts)) > 1e-3


def test_fednag_steps_as_torch_s_nesterov() -> None:
    """Two rounds of one client are torch.optim.SGD(nesterov=True) throughout, and v = −η · its buffer."""
    rate, gamma = 0.1, 0.8
    chosen = experiment(f"fednag:gamma={gamma}", rate=rate, rate_decay=1.0, weight_decay=0.0, clip=0.0)
    after = states(chosen, [[3], [3]])[-1]
    module = chosen.network.module(chosen.network.parameters, {}).double()
    optimiser = torch.optim.SGD(module.parameters(), lr=rate, momentum=gamma, nesterov=True)
    steps = 0
    for number in (1, 2):
        batches = plan(chosen.scenario, np.asarray(chosen.federation.clients[3]), chosen.scenario.seed, number, 3, 0)
        for rows, count in zip(batches.rows, batches.counts, strict=True):
            x, y = chosen.federation.train.x[rows[:count]], chosen.federation.train.y[rows[:count]]
            optimiser.zero_grad()
            F.cross_entropy(module(x.double()), y).backward()
            optimiser.step()
            steps += 1
    assert steps == 24
    velocity = after.server["server.velocity_mean"]["velocity"]
    for name, leaf in module.named_parameters():
        assert torch.allclose(after.theta.leaves[name], leaf, rtol=0, atol=1e-12)
        buffer = optimiser.state[leaf]["momentum_buffer"]
        assert torch.allclose(velocity.leaves[name], -rate * buffer, rtol=0, atol=1e-12)


def test_fednag_hands_over_the_model_of_least_recorded_global_loss(tmp_path: Path) -> None:
    """A rate so large that the last is not the best: the result, and what its folder has, is the best aggregate."""
    module = random.built(lambda: nn.Linear(6, 3), 5, "test").double()
    given = {"model": module, **unequal_clients()}
    settings = SMALL.changed(rounds=10, rate=3.0, rate_decay=1.0, participation=None)
    result = hw.simulate("fednag:gamma=0.9", settings, out=tmp_path / "run", **given)
    losses = [record["global_loss"] for record in result.records]
    assert min(losses) < losses[-1]
    x, y = (torch.as_tensor(np.concatenate(part)) for part in zip(*given["clients"], strict=True))
    for handed in (result.model, hw.load_run(tmp_path / "run", **given).model):
        with torch.no_grad():
            assert float(F.cross_entropy(handed(x), y)) == pytest.approx(min(losses), rel=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_everybody_takes_part_where_the_paper_says_so_and_a_tenth_otherwise(name: str) -> None:
    """Where the scenario says nothing. cNAG shares FedNAG's server and has one client."""

    def share(**given: Any) -> float | None:
        chosen = build(SMALL.changed(**given), method(name), model=norm_free(), **unequal_clients())
        return chosen.scenario.participation

    assert share(participation=None) == (1.0 if name in ("fednag", "cnag", "fedac", "scaffnew") else 0.1)
    assert share(participation=0.5) == 0.5


# GradMA.


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_gradma_s_without_memory_is_fedavgm(momentum: float) -> None:
    """At a rate so large that updates of different clients disagree, and a memory would matter."""
    found = path(f"gradma-s:memory=0,momentum={momentum}", rate=2.0)
    assert gap(found, path(f"fedavgm:momentum={momentum}", rate=2.0)) < 1e-12
    assert gap(found, path(f"gradma-s:memory=6,momentum={momentum}", rate=2.0)) > 1e-3


def agreeing(spelled: str) -> Experiment:
    """Clients far from a common optimum on the same side: all gradients, from round to round, point the same way."""
    draw = np.random.default_rng(2)
    pairs = []
    for size in SIZES:
        x = 0.5 + np.abs(draw.normal(size=(size, 4)))
        pairs.append((x, 50 + draw.normal(size=size)))
    module = random.built(lambda: nn.Linear(4, 1), 5, "test")
    scenario = SMALL.changed(steps=1, rate=1e-3, clip=0.0, weight_decay=0.0)
    return build(scenario, method(spelled), model=module, clients=pairs, test=pairs[0])


def test_gradma_with_no_constraint_active_is_fedavgm() -> None:
    """K = 1, and nothing to correct on clients or server in any round, exactly."""
    records, _ = played(agreeing("gradma:momentum=0.5,memory=6"))
    assert [record["local_correction"] for record in records] == [0.0] * 4
    assert [record["server_correction"] for record in records] == [0.0] * 4
    found = [model.theta.flat() for model in states(agreeing("gradma:momentum=0.5,memory=6"), RETURNING)]
    expected = [model.theta.flat() for model in states(agreeing("fedavgm:momentum=0.5"), RETURNING)]
    assert gap(found, expected) < 1e-12
    assert gap(expected[:1] * 6, expected) > 1e-2


@pytest.mark.parametrize("executor", ["serial", "batched"])
@pytest.mark.parametrize(
    ("spelled", "measured"),
    [
        ("gradma", {"local_correction", "server_correction"}),
        ("gradma-w", {"local_correction"}),
        ("gradma-s", {"server_correction"}),
        ("fedavgm", set()),
    ],
)
def test_every_record_of_gradma_has_its_corrections(spelled: str, measured: set[str], executor: str) -> None:
    """Relative lengths; where clients disagree, some are above 0."""
    records, _ = played(experiment(spelled, rounds=8, rate=2.0), executor)
    for record in records:
        assert {name for name in record if name.endswith("_correction")} == measured
        assert all(0 <= record[name] < 10 for name in measured)
    assert all(max(record[name] for record in records) > 1e-3 for name in measured)


@pytest.mark.parametrize("name", ["gradma", "gradma-s"])
def test_a_memory_smaller_than_a_cohort_is_refused(name: str) -> None:
    """Before anything runs, in one line; 0 and the cohort's size are fine."""
    for memory in (1, 2):
        with pytest.raises(UserError) as refusal:
            experiment(f"{name}:memory={memory}")
        assert str(refusal.value) == (
            f"server slot update_memory of method '{name}:memory={memory}': "
            f"memory is {memory}, less than the 3 clients of a round; use 0 or at least 3"
        )
    for memory in (0, 3):
        experiment(f"{name}:memory={memory}")


EVICTIONS: list[tuple[tuple[int, int], dict[int, int]]] = [
    ((0, 1), {0: 1, 1: 1}),
    ((0, 2), {0: 2, 1: 1, 2: 1}),
    ((3, 2), {0: 2, 3: 1, 2: 2}),  # 1 goes: seen once, 0 twice
    ((4, 5), {5: 1, 4: 1, 2: 2}),  # 3 goes for 4; then 0 and 2 are equal and 0 was stored first
    ((2, 0), {5: 1, 0: 1, 2: 3}),  # 4 and 5 are equal, 4 was stored first; 0 returns and counts from 1 again
    ((0, 5), {5: 2, 0: 2, 2: 3}),
    ((1, 6), {1: 1, 6: 1, 2: 3}),  # 5 was stored before 0 returned, so 5 goes for 1, then 0 for 6
    ((6, 2), {1: 1, 6: 2, 2: 4}),
]
"""Alg. 4 on paper, for a memory of three: the cohort, and then who is in the memory with which counter."""


def test_evictions_follow_algorithm_4_step_by_step() -> None:
    """Counters as on paper; a row is −Δ_i when it enters, β₂D[i] − Δ_i when its client returns, β₂D[i] when not."""
    decay, slot = 0.5, update_memory(0.9, 0.5, 3)
    draw = np.random.default_rng(4)
    theta = two_leaves(np.zeros(5))
    state = slot.server_state(theta, 8)
    rows: dict[int, np.ndarray] = {}
    for cohort, counters in EVICTIONS:
        deltas = {client: draw.normal(size=5) for client in cohort}
        entered = {client for client in cohort if client not in rows}
        rows = {client: decay * row - deltas.get(client, 0) for client, row in rows.items() if client in counters}
        rows |= {client: -deltas[client] for client in entered}
        each = tuple({"delta": two_leaves(deltas[client])} for client in cohort)
        mean = {"delta": 0.5 * (each[0]["delta"] + each[1]["delta"])}
        uploads = Uploads(
            mean, {"model": theta}, rate=0.1, share=0.25, clients=cohort, weights=(0.5, 0.5), population=8, each=each
        )
        theta, state = slot.update(theta, uploads, state)
        kept = [int(client) for client in state["clients"] if client >= 0]
        assert dict(zip(kept, state["counts"].tolist(), strict=False)) == counters
        for place, client in enumerate(kept):
            assert np.abs(state["rows"].map(lambda leaf: leaf[place]).flat().numpy() - rows[client]).max() < 1e-14  # noqa: B023


# Methods that are FedAvg when their own term is switched off.

SWITCHED_OFF = {
    "feddecorr:beta=0": "feddecorr:beta=2",
    "fedntd:beta=0": "fedntd:beta=2",
    "moon:mu=0": "moon:mu=2",
    "fedcm:alpha=1": "fedcm:alpha=0.5",
    "mimelite:momentum=0": "mimelite:momentum=0.5",
    "fedmlb:cross=0,distil=0": "fedmlb",
    "fedprox:mu=0": "fedprox:mu=2",
    "fedavgm:momentum=0": "fedavgm:momentum=0.5",
}


@pytest.mark.parametrize("spelled", SWITCHED_OFF)
def test_without_its_own_term_it_is_fedavg(spelled: str) -> None:
    """And with it, it is not."""
    plain = path("fedavg")
    assert gap(path(spelled), plain) < 1e-12
    assert gap(path(SWITCHED_OFF[spelled]), plain) > 1e-4


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_mifa_with_everybody_is_fedavg(weights: str) -> None:
    assert gap(path("mifa", EVERYBODY, weights=weights), path("fedavg", EVERYBODY, weights=weights)) < 1e-12
    assert gap(path("mifa", weights=weights), path("fedavg", weights=weights)) > 1e-3


def test_the_program_of_mifa_with_everybody_is_fedavg_a_round_later() -> None:
    """Updates in units of the rate change nothing where none is old; the first round only sees everybody."""
    assert gap(path("mifa:rate_ratio=true", EVERYBODY), path("fedavg", EVERYBODY)) < 1e-12
    late = path("mifa:rate_ratio=true,wait=true", EVERYBODY)
    chosen = experiment("fedavg")
    model, hand, expected = initial_state(chosen), Serial(chosen), [initial_state(chosen).theta.flat()]
    with chosen.arithmetic():
        for number in range(2, 7):
            model, _ = run_round(chosen, model, ClientStates(), hand, Cohort(tuple(EVERYBODY[0])), number)
            expected.append(model.theta.flat())
    assert gap(late, expected) < 1e-12


def test_old_updates_count_at_the_round_s_rate_in_mifa_s_program() -> None:
    assert gap(path("mifa:rate_ratio=true", rate_decay=1.0), path("mifa", rate_decay=1.0)) < 1e-12
    assert gap(path("mifa:rate_ratio=true", rate_decay=0.8), path("mifa", rate_decay=0.8)) > 1e-3


def test_mifa_waits_until_everybody_was_seen_and_says_for_how_many() -> None:
    """Three of six clients: 1, 3, 4 then 2, 4, 5 then 3, 5, 0 are all, so θ moves from round 4 on."""
    records, _ = played(experiment("mifa:wait=true", rounds=8))
    unseen = [6 - len({one for record in records[: t + 1] for one in record["clients"]}) for t in range(8)]
    assert [record["clients_unseen"] for record in records] == unseen
    assert 0 < unseen.index(0) < 7
    moved = [record["update_norm"] > 0 for record in records]
    assert moved == [t > unseen.index(0) for t in range(8)]
    thetas = path("mifa:wait=true")
    assert gap(thetas[:3], [experiment("mifa").network.parameters.flat()] * 3) == 0
    assert gap(thetas[3:4], thetas[2:3]) > 1e-3


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_the_program_of_feddc_matters_only_where_sizes_differ(weights: str) -> None:
    """u_i = n_i/n̄ is 1 for clients of one size."""

    def found(spelled: str, sizes: tuple[int, ...]) -> list[Tensor]:
        module = random.built(norm_free, 7, "test")
        given = unequal_clients(sizes)
        chosen = build(SMALL.changed(weights=weights, rate=0.5), method(spelled), model=module, **given)
        return [model.theta.flat() for model in states(chosen, RETURNING)]

    own, program = "feddc:alpha=0.1", "feddc:alpha=0.1,program=true"
    assert gap(found(own, (8,) * 6), found(program, (8,) * 6)) < 1e-12
    assert gap(found(own, SIZES), found(program, SIZES)) > 1e-3


def test_the_rate_ratio_matters_only_where_the_rate_decays() -> None:
    plain, ratio = "fedavgm:momentum=0.6", "fedavgm:momentum=0.6,rate_ratio=true"
    assert gap(path(ratio, rate_decay=1.0), path(plain, rate_decay=1.0)) < 1e-12
    assert gap(path(ratio, rate_decay=0.8), path(plain, rate_decay=0.8)) > 1e-3


# Traffic.

TRAFFIC = {
    "fedavg": (1, 1),
    "fedacg": (1, 1),
    "fedagm": (1, 1),
    "gradma": (1, 1),
    "gradma-w": (1, 1),
    "gradma-s": (1, 1),
    "feddyn": (1, 1),
    "mifa": (1, 1),
    "moon": (1, 1),
    "fedcm": (2, 1),
    "scaffold": (2, 2),
    "feddc": (2, 2),
    "fednag": (2, 2),
    "mimelite": (2, 2),
    "csgd": (0, 0),
    "cnag": (0, 0),
}
"""Models down and up for each client and round, as the papers' tables have them."""


@pytest.mark.parametrize("name", TRAFFIC)
def test_traffic_is_what_the_papers_say(name: str) -> None:
    """As computed from one client's messages, and as counted in a run of three clients a round."""
    price = cost(method(name))
    assert (price.down, price.up) == TRAFFIC[name]
    records, progress = played(experiment(name, rounds=2, steps=2))
    size = nbytes(progress.model.theta)
    assert len(records) == 2
    for record in records:
        count = len(record["clients"])
        assert count == (1 if method(name).pooled else 3)
        assert (record["bytes_down"], record["bytes_up"]) == tuple(way * size * count for way in TRAFFIC[name])
    assert progress.bytes_down == sum(record["bytes_down"] for record in records)


def test_scenario_default_of_participation_is_a_tenth() -> None:
    assert Scenario().participation is None
    assert Scenario().cohort == 6
