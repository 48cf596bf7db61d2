"""More cheap truths: FedNAG and centralised Nesterov, GradMA and its quadratic program, FedPAQ's code, traffic.

In float64, with unequal clients and, where nothing else is said, partial participation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional as F

import headway as hw
from conftest import SIZES, SMALL, norm_free, played, unequal_clients, world
from headway import random
from headway.data.batches import plan
from headway.engine.cost import cost
from headway.engine.round import Model, play, start
from headway.engine.serial import Serial
from headway.engine.states import ClientStates
from headway.engine.world import World, build
from headway.errors import UserError
from headway.methods.catalogue import METHODS
from headway.methods.projection import project_rows, project_three, project_three_by_tensor
from headway.methods.server import remembering
from headway.methods.slots import Uploads
from headway.methods.spelling import method
from headway.methods.wire import quantised
from headway.methods.wire.quantised import packed, unpacked
from headway.scenario import Scenario
from headway.vectors import Vector, leaves_of, nbytes

EVERYBODY = [list(range(len(SIZES)))] * 6
RETURNING = [[number % 6, (number + 2) % 6, (number + 3) % 6] for number in range(1, 7)]
"""Three of six clients a round; everybody comes back after one to three rounds."""


def states(chosen: World, cohorts: list[list[int]]) -> list[Model]:
    """What the server holds after each round with these cohorts."""
    model, hand, store = start(chosen), Serial(chosen.rules), ClientStates()
    found = []
    with chosen.arithmetic():
        for number, cohort in enumerate(cohorts, 1):
            model, _ = play(chosen, model, store, hand, cohort, number)
            found.append(model)
    return found


def path(spelled: Any, cohorts: list[list[int]] = RETURNING, **given: Any) -> list[Tensor]:
    """θ after each round."""
    return [model.theta.flat() for model in states(world(spelled, **given), cohorts)]


def gap(left: list[Tensor], right: list[Tensor]) -> float:
    """The largest difference between two paths of the same length."""
    return max(float((one - two).abs().max()) for one, two in zip(left, right, strict=True))


# FedNAG.

WHOLE = {"steps": 1, "batch_size": sum(SIZES), "clip": 0.0, "weight_decay": 0.0, "rate": 0.4, "rate_decay": 0.95}
"""One step a round on everything a client has."""


def softmax_regression(spelled: str, **given: Any) -> World:
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
    chosen = world(f"fednag:gamma={gamma}", rate=rate, rate_decay=1.0, weight_decay=0.0, clip=0.0)
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
def test_everybody_takes_part_in_fednag_and_a_tenth_otherwise(name: str) -> None:
    """Where the scenario says nothing. cNAG shares FedNAG's server and has one client."""

    def share(**given: Any) -> float | None:
        chosen = build(SMALL.changed(**given), method(name), model=norm_free(), **unequal_clients())
        return chosen.scenario.participation

    assert share(participation=None) == (1.0 if name in ("fednag", "cnag") else 0.1)
    assert share(participation=0.5) == 0.5


# GradMA.


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_gradma_s_without_memory_is_fedavgm(momentum: float) -> None:
    """At a rate so large that updates of different clients disagree, and a memory would matter."""
    found = path(f"gradma-s:memory=0,momentum={momentum}", rate=2.0)
    assert gap(found, path(f"fedavgm:momentum={momentum}", rate=2.0)) < 1e-12
    assert gap(found, path(f"gradma-s:memory=6,momentum={momentum}", rate=2.0)) > 1e-3


def agreeing(spelled: str) -> World:
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
    records, _ = played(world(spelled, rounds=8, rate=2.0), executor)
    for record in records:
        assert {name for name in record if name.endswith("_correction")} == measured
        assert all(0 <= record[name] < 10 for name in measured)
    assert all(max(record[name] for record in records) > 1e-3 for name in measured)


@pytest.mark.parametrize("name", ["gradma", "gradma-s"])
def test_a_memory_smaller_than_a_cohort_is_refused(name: str) -> None:
    """Before anything runs, in one line; 0 and the cohort's size are fine."""
    for memory in (1, 2):
        with pytest.raises(UserError) as refusal:
            world(f"{name}:memory={memory}")
        assert str(refusal.value) == (f"memory is {memory}, less than the 3 clients of a round; use 0 or at least 3")
    for memory in (0, 3):
        world(f"{name}:memory={memory}")


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
    decay, slot = 0.5, remembering(0.9, 0.5, 3)
    draw = np.random.default_rng(4)
    theta = _vector(np.zeros(5))
    state = slot.server_state(theta, 8)
    rows: dict[int, np.ndarray] = {}
    for cohort, counters in EVICTIONS:
        deltas = {client: draw.normal(size=5) for client in cohort}
        entered = {client for client in cohort if client not in rows}
        rows = {client: decay * row - deltas.get(client, 0) for client, row in rows.items() if client in counters}
        rows |= {client: -deltas[client] for client in entered}
        each = tuple({"delta": _vector(deltas[client])} for client in cohort)
        mean = {"delta": 0.5 * (each[0]["delta"] + each[1]["delta"])}
        uploads = Uploads(
            mean, {"model": theta}, rate=0.1, share=0.25, clients=cohort, weights=(0.5, 0.5), population=8, each=each
        )
        theta, state = slot.update(theta, uploads, state)
        kept = [int(client) for client in state["clients"] if client >= 0]
        assert dict(zip(kept, state["counts"].tolist(), strict=False)) == counters
        for place, client in enumerate(kept):
            assert np.abs(state["rows"].map(lambda leaf: leaf[place]).flat().numpy() - rows[client]).max() < 1e-14  # noqa: B023


# GradMA's quadratic program.


def _vector(values: np.ndarray) -> Vector:
    """An array of one or more rows as two leaves."""
    tensor = torch.from_numpy(np.array(values))
    return Vector({"a": tensor[..., :1], "b": tensor[..., 1:]})


@dataclass(frozen=True)
class Programme:
    p: np.ndarray
    rows: np.ndarray
    angle: float
    """The smallest between two rows that are not exactly parallel; 1 where there is no small one."""


KINDS = ("free", "zero", "parallel", "opposite", "nearly parallel", "nearly opposite", "balanced", "nearly balanced")
"""A balanced row is opposite to the sum of all free ones before it: together they leave no room in their span."""


@st.composite
def programmes(draw: st.DrawFn, least: int = 1, most: int = 8) -> Programme:
    """Rows that are random, zero, tiny, repeated, opposite or within a small angle of another; p may be one of them."""
    width = draw(st.integers(2, 10))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=least, max_size=most))
    sizes = draw(st.lists(st.integers(-24, 2), min_size=len(kinds), max_size=len(kinds)))
    angle = draw(st.sampled_from([1e-2, 1e-4, 1e-6]))
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    free = [numbers.normal(size=width)]
    rows: list[np.ndarray] = []
    for kind in kinds:
        if kind == "free":
            free.append(numbers.normal(size=width))
        base = free[-1] if kind == "free" else free[numbers.integers(len(free))]
        if "balanced" in kind:
            base = sum(free[1:], start=free[0])
        sign = -1.0 if "opposite" in kind or "balanced" in kind else 1.0
        turned = angle * numbers.normal(size=width) if "nearly" in kind else 0.0
        rows.append(np.zeros(width) if kind == "zero" else sign * base + turned)
    scaled = np.array([row * 10.0**size for row, size in zip(rows, sizes, strict=True)])
    p = draw(st.sampled_from([numbers.normal(size=width), free[0], -free[0], 1e-9 * numbers.normal(size=width)]))
    return Programme(p, scaled, angle if any("nearly" in kind for kind in kinds) else 1.0)


def kkt_residual(problem: Programme, found: np.ndarray) -> float:
    """The largest violation, for ‖p‖ = 1 and unit rows, of p̃ − p = Mᵀz, z ≥ 0, Mp̃ ≥ 0 and z_i⟨M[i], p̃⟩ = 0.

    Together these say that p̃ is feasible and that no feasible point is closer to p.
    """
    size = np.linalg.norm(problem.p)
    units = np.array([row / np.linalg.norm(row) for row in problem.rows if row.any()]).reshape(-1, len(problem.p))
    if not len(units):
        return float(np.abs(found - problem.p).max() / size)
    multipliers, away = nnls(units.T, (found - problem.p) / size, maxiter=1000)
    products = units @ found / size
    return max(float(away), float(-products.min()), float(np.abs(multipliers * products).max()))


def by_rows(problem: Programme) -> np.ndarray:
    return project_rows(_vector(problem.p), _vector(problem.rows), len(problem.rows)).flat().numpy()


def by_three(problem: Programme) -> np.ndarray:
    one, two, three = (_vector(row) for row in problem.rows)
    return project_three(_vector(problem.p), (one, two, three)).flat().numpy()


@given(programmes())
@settings(deadline=None, max_examples=1500, derandomize=True)
def test_the_server_s_programme_gives_the_closest_feasible_vector(problem: Programme) -> None:
    assert kkt_residual(problem, by_rows(problem)) < 1e-9


@given(programmes(least=3, most=3))
@settings(deadline=None, max_examples=400, derandomize=True)
def test_the_clients_programme_gives_the_closest_feasible_vector_too(problem: Programme) -> None:
    """And the same one, as well as a residual of 1e-12 settles it for rows that are nearly parallel."""
    found = by_three(problem)
    assert kkt_residual(problem, found) < 1e-9
    tolerance = (1e-9 + 1e-12 / problem.angle) * np.linalg.norm(problem.p)
    assert np.abs(found - by_rows(problem)).max() < tolerance


@given(programmes(least=3, most=3))
@settings(deadline=None, max_examples=400, derandomize=True)
def test_the_clients_programme_from_products_of_short_numbers(problem: Programme) -> None:
    """In float32 it is the exact one, as well as rows rounded to float32 and nearly parallel can say."""
    p, one, two, three = (_vector(row).to(torch.float32) for row in (problem.p, *problem.rows))
    found = project_three(p, (one, two, three)).flat().double().numpy()
    assert np.abs(found - by_three(problem)).max() < 1e-6 / problem.angle * np.linalg.norm(problem.p)


@pytest.mark.parametrize("order", [(1, 2, 3), (1, 3, 2), (3, 1, 2)])
def test_a_projection_never_lengthens(order: tuple[int, int, int]) -> None:
    """Two rows nearly opposite and the third nearly in their plane: rounding must not pass for a direction."""
    draw = torch.Generator().manual_seed(0)

    def units() -> Tensor:
        return F.normalize(torch.randn(50_000, 12, generator=draw, dtype=torch.float64), dim=1)

    row, across, p = units(), units(), units()
    angle = 10 ** (-4 * torch.rand(50_000, 1, generator=draw, dtype=torch.float64) - 3.5)
    vectors = torch.stack([p + row - across, row, -row - angle * across, 0.5 * (across - row)], 1)[:, [0, *order]]
    four = vectors.float().unbind(1)

    def projected(*vectors: Tensor) -> Any:
        first, one, two, three = (Vector({"a": vector}) for vector in vectors)
        return project_three(first, (one, two, three)).leaves["a"]

    longer = vmap(projected)(*four).norm(dim=1) / four[0].norm(dim=1)
    assert float(longer.max()) < 1 + 1e-5


@pytest.mark.parametrize("project", [project_three, project_three_by_tensor])
def test_short_numbers_stack(project: Any) -> None:
    """Stacked problems are each their own; by tensor, every tensor is its own problem."""
    draw = torch.Generator().manual_seed(4)
    four = [{name: torch.randn(5, size, generator=draw) for name, size in (("a", 3), ("b", 4))} for _ in range(4)]

    def projected(p: Any, *rows: Any) -> Any:
        return project(Vector(p), tuple(Vector(row) for row in rows)).leaves

    together = vmap(projected)(*four)
    moved = torch.zeros(5)
    for number in range(5):
        own = [{name: leaf[number] for name, leaf in one.items()} for one in four]
        alone = projected(*own)
        parts = {name: projected(*({name: one[name]} for one in own))[name] for name in own[0]}
        for name, leaf in alone.items():
            assert torch.allclose(leaf, together[name][number], atol=1e-6)
            assert project is project_three or torch.allclose(leaf, parts[name], atol=1e-6)
            moved[number] += (leaf - own[0][name]).norm()
    assert float(moved.max()) > 0.1


@pytest.mark.parametrize("angle", [1e-13, 1e-12, 1e-11])
@pytest.mark.parametrize("count", [3, 6])
def test_rounding_in_opposite_rows_is_no_constraint(angle: float, count: int) -> None:
    """Rows within the rank tolerance of opposite to another, or to a sum of two: the rest of them is no direction."""
    draw = np.random.default_rng(8)
    for turn in range(200):
        p, first, *free = draw.normal(size=(count + 1, 5))
        opposite = first + (turn % 2) * free[0]
        rows = [first, angle * draw.normal(size=5) - opposite, *free[: count - 2]]
        problem = Programme(p, np.array(rows)[draw.permutation(count)], 1.0)
        assert kkt_residual(problem, by_rows(problem)) < 1e-9
        if count == 3:
            assert kkt_residual(problem, by_three(problem)) < 1e-9


@given(programmes(), st.integers(0, 4))
@settings(deadline=None, max_examples=100, derandomize=True)
def test_the_programme_reads_so_many_rows_and_changes_none(problem: Programme, spare: int) -> None:
    """Rows after the first `count` are not there: garbage in them changes nothing. No input is modified."""
    count = len(problem.rows)
    memory = _vector(np.concatenate([problem.rows, np.full((spare, len(problem.p)), np.nan)]))
    p = _vector(problem.p)
    before = [leaf.clone() for leaf in (*leaves_of(memory), *leaves_of(p))]
    found = project_rows(p, memory, count).flat().numpy()
    assert np.array_equal(found, by_rows(problem))
    after = (*leaves_of(memory), *leaves_of(p))
    assert all(torch.equal(one.nan_to_num(7.0), two.nan_to_num(7.0)) for one, two in zip(before, after, strict=True))
    assert np.array_equal(project_rows(p, memory, 0).flat().numpy(), problem.p)


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


def test_the_rate_ratio_matters_only_where_the_rate_decays() -> None:
    plain, ratio = "fedavgm:momentum=0.6", "fedavgm:momentum=0.6,rate_ratio=true"
    assert gap(path(ratio, rate_decay=1.0), path(plain, rate_decay=1.0)) < 1e-12
    assert gap(path(ratio, rate_decay=0.8), path(plain, rate_decay=0.8)) > 1e-3


# FedPAQ.

BITS = range(1, 17)
SHAPES = {"a": (4, 3), "b": (1,), "c": (7,)}


def spread(seed: int = 0, scale: float = 1.0) -> Vector:
    draw = np.random.default_rng(seed)
    return Vector({name: torch.from_numpy(scale * draw.normal(size=shape)) for name, shape in SHAPES.items()})


def keys(count: int) -> Tensor:
    return torch.tensor([random.key(1, "wire", number) for number in range(count)])


def arrivals(code: quantised, vector: Vector, count: int) -> Tensor:
    """Q(x) for so many keys, shape (count, d)."""
    return vmap(lambda key: code.decode(code.encode(vector, key), vector).flat())(keys(count))


def scales(code: quantised, vector: Vector) -> Tensor:
    """s of each coordinate as the wire carries it, shape (d,)."""
    sent = code.encode(vector, keys(1)[0])["scales"]
    sizes = [len(vector)] if code.scope == "vector" else [leaf.numel() for leaf in leaves_of(vector)]
    return torch.cat([scale.double().expand(size) for scale, size in zip(sent, sizes, strict=True)])


@pytest.mark.parametrize("scope", ["vector", "tensor"])
@pytest.mark.parametrize("bits", BITS)
def test_quantising_is_unbiased_and_within_its_bounds(bits: int, scope: str) -> None:
    """Over 3,000 keys: the mean within six deviations of x, every error below one grid step, the square as promised.

    A rounding between two points a step apart has a deviation of at most half a step.
    """
    code, vector = quantised(bits, scope), spread()
    x, s = vector.flat(), scales(code, vector)
    step = 2 * s / (2**bits - 1)
    errors = arrivals(code, vector, 3000) - x
    assert (s >= (x.abs() if scope == "tensor" else x.abs().max())).all()
    assert (errors.abs() <= step * (1 + 1e-12)).all()
    assert (errors.mean(0).abs() <= 6 * step / 2 / 3000**0.5).all()
    assert float((errors**2).sum(1).mean()) <= float((s**2).sum()) / (2**bits - 1) ** 2
    assert len(errors.unique(dim=0)) > 1


@pytest.mark.parametrize("bits", [1, 2, 5, 8])
def test_the_bound_on_the_square_is_reached_half_way_between_points(bits: int) -> None:
    """x in the middle of its interval: (Q−x)² is s²/(2^b − 1)² whichever way it is rounded, up or down."""
    levels = 2**bits - 1
    middle = (torch.arange(levels, dtype=torch.float64) + 0.5) * (2 / levels) - 1
    vector = Vector({"w": torch.cat([torch.ones(1, dtype=torch.float64), middle])})
    errors = (arrivals(quantised(bits), vector, 500) - vector.flat())[:, 1:]
    assert torch.allclose(errors.abs(), torch.full_like(errors, 1 / levels), rtol=1e-9)
    assert ((errors > 0).double().mean(0) - 0.5).abs().max() < 0.15


@pytest.mark.parametrize("scope", ["vector", "tensor"])
@pytest.mark.parametrize("bits", BITS)
def test_counted_bytes_are_the_bytes_of_the_payload(bits: int, scope: str) -> None:
    """In a real round: every code packed to the bit, a four-byte scale for the vector or for each tensor."""
    records, progress = played(world(f"fedpaq:bits={bits},scope={scope}", rounds=1, steps=1))
    sizes = [leaf.numel() for leaf in leaves_of(progress.model.theta)]
    pieces = [sum(sizes)] if scope == "vector" else sizes
    expected = sum(-(-bits * size // 8) + 4 for size in pieces)
    payload = quantised(bits, scope).encode(progress.model.theta, keys(1)[0])
    written = b"".join(leaf.numpy().tobytes() for leaf in leaves_of(payload))
    assert len(written) == nbytes(payload) == expected
    assert records[0]["bytes_up"] == 3 * expected
    assert records[0]["bytes_down"] == 3 * 8 * sum(sizes)


@given(st.integers(1, 16).flatmap(lambda b: st.tuples(st.just(b), st.lists(st.integers(0, 2**b - 1), max_size=40))))
@settings(deadline=None)
def test_what_is_packed_is_unpacked(case: tuple[int, list[int]]) -> None:
    bits, codes = case
    content = packed(torch.tensor(codes, dtype=torch.int64), bits)
    assert content.dtype == torch.uint8
    assert len(content) == -(-bits * len(codes) // 8)
    assert unpacked(content, bits, len(codes)).tolist() == codes
    assert int.from_bytes(content.numpy().tobytes(), "little") == sum(c << bits * at for at, c in enumerate(codes))


@pytest.mark.parametrize("scope", ["vector", "tensor"])
@pytest.mark.parametrize("bits", [1, 8, 16])
def test_vectors_that_are_zero_or_have_one_element(bits: int, scope: str) -> None:
    """0 arrives as 0, also one zero tensor among others; a single number arrives as itself to float32's rounding."""
    code = quantised(bits, scope)
    assert (arrivals(code, spread(scale=0.0), 20) == 0).all()
    if scope == "tensor":
        part = Vector({**spread().leaves, "b": torch.zeros(1, dtype=torch.float64)})
        assert (arrivals(code, part, 20)[:, 12] == 0).all()
    for number in (0.3, -7e-12, 1e30):
        single = Vector({"w": torch.tensor([number], dtype=torch.float64)})
        found = arrivals(code, single, 50)
        near = (found - number).abs() < 1e-6 * abs(number)
        assert near.all()
        exact = Vector({"w": torch.tensor([number], dtype=torch.float32)})
        assert (arrivals(code, exact, 50) == exact.flat()).all()


@pytest.mark.parametrize("scope", ["vector", "tensor"])
@pytest.mark.parametrize("bits", [1, 5, 16])
def test_quantised_runs_are_the_same_in_serial_and_batched(bits: int, scope: str) -> None:
    """Every client rounds by its own key, wherever it is trained."""
    chosen = world(f"fedpaq:bits={bits},scope={scope}")
    (mine, end), (theirs, other) = played(chosen, "serial"), played(chosen, "batched")
    assert gap([end.model.theta.flat()], [other.model.theta.flat()]) < 1e-12
    assert [record["bytes_up"] for record in mine] == [record["bytes_up"] for record in theirs]


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
    records, progress = played(world(name, rounds=2, steps=2))
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
