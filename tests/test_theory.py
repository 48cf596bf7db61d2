"""The papers' bounds: closed forms beside recursions, theorems on random problems, measured gaps below bounds."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from typer.testing import CliRunner

import headway as hw
from command_line import called
from headway.cli.main import app
from headway.engine.building import build
from headway.errors import UserError
from headway.methods.spelling import method
from headway.scenario import Scenario
from headway.theory import fedacg, fednag, gradma
from headway.theory.convex import Logistic, is_logistic, minimum
from headway.theory.course import measure
from headway.theory.estimate import estimate
from headway.theory.fednag import Course, Smoothness, Steps

GAMMAS = st.floats(0.05, 0.95)
REACHES = st.floats(1e-3, 1.0)
"""ηβ, where the closed forms do not cancel."""


def roots(reach: float, gamma: float) -> tuple[float, float]:
    """A and B of the paper, at ηβ."""
    both = (1 + reach) * (1 + gamma)
    spread = math.sqrt(both**2 - 4 * gamma * (1 + reach))
    return (both + spread) / (2 * gamma), (both - spread) / (2 * gamma)


# ── FedNAG's formulas ────────────────────────────────────────────────────────────────────────────────────────────────


@given(reach=REACHES, gamma=GAMMAS, x=st.integers(0, 30))
def test_h_is_the_closed_form_of_theorem_1(reach: float, gamma: float, x: int) -> None:
    beta, delta = 2.0, 0.7
    eta = reach / beta
    a, b = roots(reach, gamma)
    e = (gamma * a + a - 1) / ((a - b) * (gamma * a - 1))
    f = (gamma * b + b - 1) / ((a - b) * (1 - gamma * b))
    powers = e * (gamma * a) ** x + f * (gamma * b) ** x
    closed = eta * delta * (powers - 1 / reach - (gamma**2 * (gamma**x - 1) - (gamma - 1) * x) / (gamma - 1) ** 2)
    assert e + f == pytest.approx(1 / reach)
    lost = 1e-11 * eta * delta * (abs(powers) + 1 / reach + 1 / (1 - gamma) ** 2)
    assert fednag.divergence(x, Smoothness(beta, 1.0, delta), eta, gamma) == pytest.approx(closed, rel=1e-9, abs=lost)


@given(reach=REACHES, gamma=GAMMAS, x=st.integers(0, 30))
def test_a_workers_distance_is_the_closed_form_of_lemma_2(reach: float, gamma: float, x: int) -> None:
    a, b = roots(reach, gamma)
    c, d = (a - 1) / (a - b), (1 - b) / (a - b)
    closed = 0.5 / 3.0 * (gamma**x * (c * a**x + d * b**x) - 1)
    assert fednag.worker_distance(x, 3.0, 0.5, reach / 3.0, gamma) == pytest.approx(closed, rel=1e-9, abs=1e-12)


@given(reach=st.floats(1e-9, 2.0), gamma=GAMMAS)
def test_h_begins_at_0_grows_and_becomes_fedavgs_without_momentum(reach: float, gamma: float) -> None:
    smoothness = Smoothness(1.0, 1.0, 1.0)
    values = [fednag.divergence(x, smoothness, reach, gamma) for x in range(12)]
    assert values[:2] == [0.0, 0.0]
    assert all(left < right for left, right in itertools.pairwise(values[1:]))
    plain = [fednag.divergence(x, smoothness, reach, 0.0) for x in range(12)]
    closed = [math.expm1(x * math.log1p(reach)) - reach * x for x in range(12)]
    assert plain == pytest.approx(closed, rel=1e-6, abs=1e-15)
    near = [fednag.divergence(x, smoothness, reach, 1e-9) for x in range(12)]
    assert near == pytest.approx(plain, rel=1e-6)


def test_f1_is_the_formula_of_theorem_3() -> None:
    """By hand: β = 2, η = 0.1, γ = 0.5, p = 1.5, q = 0.5, cos θ = 0.8, ω = 0.25, ρ = 3, τ = 2, T = 10."""
    smoothness, course, steps = Smoothness(2.0, 3.0, 1.0), Course(0.25, 1.5, 0.5, 0.8), Steps(0.1, 0.5, 2)
    alpha = 0.1 * 1.5 * (1 - 0.15) - 2 * 0.01 * 0.25 * 2.25 / 2 + 0.25 * 0.1 * 0.5 * (1 - 0.3) * 0.8
    assert fednag.decrease(2.0, course, 0.1, 0.5) == pytest.approx(alpha)
    apart = 3 * (1.5**2 * 0.1 * 2 * 0.1)  # h(2) = (1+γ) · ηβ · f(1), f(1) = (1+γ)ηδ
    gain = 0.25 * alpha
    bound = 1 / (20 * gain) + math.sqrt(1 / (400 * gain**2) + apart / (gain * 2)) + apart
    assert fednag.gap_bound(10, smoothness, course, steps) == pytest.approx(bound)
    fedavg = fednag.decrease(2.0, Course(0.25), 0.1, 0.0)
    assert fedavg == pytest.approx(0.1 * (1 - 2 * 0.1 / 2))


def test_fednags_bound_is_the_smaller_one_below_a_step_size_that_falls_as_the_paper_says() -> None:
    smoothness, course = Smoothness(1.0, 1.0, 1.0), Course(1.0, 0.5, 0.1, 0.5)

    def difference(total: int, eta: float) -> float:
        nag = fednag.gap_bound(total, smoothness, course, Steps(eta, 0.5, 4))
        return nag - fednag.gap_bound(total, smoothness, Course(1.0), Steps(eta, 0.0, 4))

    found = {total: fednag.threshold(total, smoothness, course, 0.5, 4) for total in (400, 40_000, 4_000_000)}
    for total, eta in found.items():
        assert all(difference(total, share * eta) < 0 for share in (1e-4, 0.01, 0.5, 0.999))
        assert difference(total, 1.001 * eta) > 0
    assert found[4_000_000] / found[40_000] == pytest.approx(100 ** (-2 / 3), rel=0.01)
    fixed = found[40_000]
    assert difference(400, fixed) < 0 < difference(4_000_000, fixed)  # at one step size it turns round


@pytest.mark.parametrize(
    ("eta", "gamma", "cosine", "p", "message"),
    [
        (0.6, 0.5, 0.5, 1.0, r"it needs βη\(1\+γ\) ≤ 1, and this is 1.8; eta of at most 0.3333 does it"),
        (0.1, 0.5, -0.1, 1.0, "it needs cos θ ≥ 0, and this is -0.1"),
        (0.1, 0.5, 0.5, 50.0, "it needs α > 0, and this is -"),
    ],
)
def test_a_bound_whose_condition_fails_is_refused(
    eta: float, gamma: float, cosine: float, p: float, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        fednag.gap_bound(8, Smoothness(2.0, 1.0, 1.0), Course(1.0, p, 0.5, cosine), Steps(eta, gamma, 4))
    with pytest.raises(UserError, match="T is 9 steps; it must be a multiple of tau"):
        fednag.gap_bound(9, Smoothness(2.0, 1.0, 1.0), Course(1.0), Steps(0.1, 0.5, 4))


# ── on random quadratics ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Quadratics:
    """F_i = ½ (w − c_i)ᵀA_i(w − c_i), each with its own Hessian."""

    hessians: Tensor
    centres: Tensor
    shares: Tensor

    @property
    def smoothness(self) -> float:
        return float(torch.linalg.eigvalsh(self.hessians)[:, -1].max())

    @property
    def strength(self) -> float:
        return float(torch.linalg.eigvalsh(torch.einsum("n,nde->de", self.shares, self.hessians))[0])

    def losses(self, at: Tensor) -> Tensor:
        return 0.5 * ((at - self.centres) * self.gradients(at)).sum(-1)

    def gradients(self, at: Tensor) -> Tensor:
        return torch.einsum("nde,ne->nd", self.hessians, at - self.centres)


def quadratics(draw: np.random.Generator) -> Quadratics:
    clients, width = int(draw.integers(2, 6)), int(draw.integers(1, 5))
    roots = draw.normal(size=(clients, width, width))
    hessians = roots @ roots.transpose(0, 2, 1) + 0.05 * np.eye(width)
    shares = draw.uniform(0.2, 1, clients)
    return Quadratics(
        torch.from_numpy(hessians),
        torch.from_numpy(draw.normal(size=(clients, width))),
        torch.from_numpy(shares / shares.sum()),
    )


@given(seed=st.integers(0, 10**6), tau=st.integers(1, 8), gamma=st.floats(0.0, 0.9), reach=st.floats(0.02, 1.0))
def test_no_course_on_quadratics_breaks_theorem_1_or_theorem_3(seed: int, tau: int, gamma: float, reach: float) -> None:
    draw = np.random.default_rng(seed)
    problem = quadratics(draw)
    start = torch.from_numpy(draw.normal(size=problem.centres.shape[1]))
    best = minimum(problem, start)
    steps, total = Steps(reach / (problem.smoothness * (1 + gamma)), gamma, tau), 6 * tau
    found = measure(problem, start, best, steps, total)
    for x, distance in enumerate(found.distances.tolist()):
        allowed = fednag.divergence(x, found.smoothness, steps.eta, gamma)
        assert distance <= allowed * (1 + 1e-9) + 1e-12
    if all(one.holds for one in fednag.conditions(found.smoothness, found.course, steps)):
        for rounds in range(1, 7):
            bound = fednag.gap_bound(rounds * tau, found.smoothness, found.course, steps)
            assert float(found.gaps[1 : rounds + 1].min()) <= bound


# ── on logistic regression ───────────────────────────────────────────────────────────────────────────────────────────


def clients(seed: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    """Six clients of unequal sizes whose classes differ, four features, three classes."""
    draw = np.random.default_rng(seed)
    found = []
    for number, size in enumerate((6, 9, 12, 5, 15, 8)):
        y = np.where(draw.uniform(size=size) < 0.7, number % 3, draw.integers(0, 3, size))
        found.append(((draw.normal(size=(size, 4)) + np.eye(3, 4)[y]).astype(np.float32), y))
    return found


OWN: dict[str, Any] = {"clients": clients(), "test": clients(4)[0], "model": "linear", "weight_decay": 0.05}


def problem() -> tuple[Logistic, Any]:
    scenario = Scenario(model="linear", precision="fp64", device="cpu", weight_decay=0.05)
    experiment = build(scenario, method("fednag"), clients=OWN["clients"], test=OWN["test"])
    assert is_logistic(experiment)
    return Logistic.of(experiment, 0.05), experiment


def test_the_gradients_of_logistic_regression_are_those_of_the_experiment() -> None:
    logistic, experiment = problem()
    at = torch.from_numpy(np.random.default_rng(0).normal(size=logistic.features.shape[-1] * 3))
    slopes = logistic.gradients(at)
    point = at.clone().requires_grad_()
    for client, rows in enumerate(experiment.federation.clients):
        x, y = experiment.samples.read(torch.as_tensor(rows))
        answer = experiment.network.evaluate(experiment.network.parameters.unflat(point), {}, x.double())
        loss = torch.nn.functional.cross_entropy(answer, y) + 0.025 * point.square().sum()
        assert float(logistic.losses(at)[client]) == pytest.approx(float(loss.detach()))
        torch.testing.assert_close(slopes[client], torch.autograd.grad(loss, point)[0])
    torch.testing.assert_close(logistic.gradients(at.expand(len(slopes), -1)), slopes)


def test_estimates_are_what_dense_hessians_and_gradients_say() -> None:
    logistic, experiment = problem()
    draw = np.random.default_rng(1)
    points = [torch.from_numpy(draw.normal(size=15)) for _ in range(3)]
    found = estimate(experiment, [(point, {}) for point in points], look_at=100)
    largest, slopes = 0.0, []
    for point in points:
        hessians = torch.autograd.functional.jacobian(logistic.gradients, point)
        largest = max(largest, float(torch.linalg.eigvalsh(hessians)[:, -1].max()))
        slopes.append(logistic.gradients(point))
    assert 0.98 * largest <= found.smoothness <= largest * (1 + 1e-9) <= logistic.smoothness
    apart = torch.stack([(one - logistic.shares @ one).norm(dim=1) for one in slopes])
    assert found.lipschitz == pytest.approx(max(float(one.norm(dim=1).max()) for one in slopes))
    assert found.delta == pytest.approx(float(logistic.shares @ apart.max(0).values))
    assert found.dissimilarity == pytest.approx(float(apart.max()))
    assert found.sigma_g**2 == pytest.approx(float((apart.square() @ logistic.shares).max()))
    assert found.loss == pytest.approx(float(logistic.shares @ logistic.losses(points[0])))
    assert found.sigma == 0.0  # a batch of 20 holds all samples of each client


def test_the_minimum_is_where_newtons_method_ends() -> None:
    logistic, _ = problem()
    best = minimum(logistic, torch.zeros(15, dtype=torch.float64))
    at = torch.zeros(15, dtype=torch.float64)
    for _ in range(30):
        slope = logistic.shares @ logistic.gradients(at)
        hessians = torch.autograd.functional.jacobian(logistic.gradients, at)
        at = at - torch.linalg.solve(torch.einsum("n,nde->de", logistic.shares, hessians), slope)
    value = float(logistic.shares @ logistic.losses(at))
    assert float((best.at - at).norm()) <= best.error + 1e-9
    assert best.least - 1e-12 <= value <= best.value + 1e-12


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[hw.Bounds, Path]:
    out = tmp_path_factory.mktemp("bounds")
    return hw.bounds("fednag:gamma=0.5", **OWN, taus=[1, 4, 8], total=32, out=out), out


def test_the_measured_gap_is_below_the_bound_for_three_tau(found: tuple[hw.Bounds, Path]) -> None:
    """Real runs of the engine; `bounds` itself refuses a run that is not the course whose constants it measures."""
    bounds, _ = found
    assert [row["tau"] for row in bounds.gaps] == [1, 4, 8]
    for row in bounds.gaps:
        assert 0 < row["gap"] < row["bound"]
        assert 0 < row["fedavg_gap"] < row["fedavg_bound"]
        assert bounds.eta is not None
        assert (row["difference"] < 0) == (bounds.eta < row["threshold"])
    lines = {curve.name: curve for curve in bounds.panels[0].curves}
    for tau in (1, 4, 8):
        measured, bound = lines[f"measured, τ = {tau}"], lines[f"bound f₁, τ = {tau}"]
        assert (measured.y < bound.y).all()
        assert len(measured.y) == 32 // tau


def test_f1_and_f2_cross_where_the_threshold_is(found: tuple[hw.Bounds, Path]) -> None:
    bounds, _ = found
    lines = {curve.name: curve for curve in bounds.panels[1].curves}
    for row in bounds.gaps:
        nag, plain = lines[f"f₁ of FedNAG, τ = {row['tau']}"], lines[f"f₂ of FedAvg, τ = {row['tau']}"]
        below = nag.x < row["threshold"] * (1 - 1e-6)
        assert below.any()
        assert (nag.y[below] < plain.y[below]).all()


def test_bounds_are_written_as_numbers_points_and_pictures(found: tuple[hw.Bounds, Path]) -> None:
    bounds, out = found
    assert json.loads((out / "bounds.json").read_text()) == json.loads(json.dumps(bounds.as_dict()))
    lines = (out / "bounds.csv").read_text().splitlines()
    assert len(lines) == 1 + sum(len(curve.x) for panel in bounds.panels for curve in panel.curves)
    assert (out / "bounds.png").read_bytes()[:4] == b"\x89PNG"
    assert b"<svg" in (out / "bounds.svg").read_bytes()


def test_a_step_size_that_is_too_large_is_refused() -> None:
    with pytest.raises(UserError, match=r"Theorem 3 of FedNAG says nothing here: it needs βη\(1\+γ\) ≤ 1"):
        hw.bounds("fednag:gamma=0.5", **OWN, taus=[4], total=8, eta=5.0)


# ── FedACG and GradMA ────────────────────────────────────────────────────────────────────────────────────────────────

ACG = fedacg.Problem(smoothness=2.0, sigma=3.0, sigma_g=0.5, b=1.5, gap=4.0)
GMA = gradma.Problem(smoothness=2.0, rho=0.5, gap=4.0, epsilon_l=0.1, epsilon_g=0.2)


def test_fedacgs_step_sizes_and_rate_by_hand() -> None:
    rounds = fedacg.Rounds(lam=0.75, local_steps=10, clients=20, cohort=5, rounds=99)
    assert fedacg.largest_step(ACG, rounds) == pytest.approx(0.0625 / (64 * 10 * 2 * 3.25))
    assert fedacg.largest_step_of_first_text(ACG, rounds) == pytest.approx(0.25 / (100 * 10 * 2 * 3.25))
    rate = fedacg.rate(ACG, rounds)
    assert rate.sampling == pytest.approx(math.sqrt((9 + 10 * 0.75 * 0.25) * 32) / math.sqrt(99 * 10 * 5))
    assert rate.drift == pytest.approx((32 * 0.0625) ** (2 / 3) * (0.9 + 0.25) ** (1 / 3) / 100 ** (2 / 3))
    assert rate.start == pytest.approx(2.25 * 32 / 99)
    assert rate.total == rate.sampling + rate.drift + rate.start


def test_the_constants_of_fedacgs_rate_by_hand() -> None:
    found = fedacg.constants(ACG, fedacg.Rounds(lam=0.75, local_steps=10, clients=21, cohort=5, rounds=99))
    assert found.d == pytest.approx(16.0)
    assert found.m1**2 == pytest.approx(9 + 10 * 16 / 21 * 0.25)
    assert found.m2 == pytest.approx(0.9 + 0.25)
    assert found.a == pytest.approx(1 + 4 * 21 * (16 / 21) / (20 * 5))
    for clients in (1, 7):
        everybody = fedacg.constants(ACG, fedacg.Rounds(0.75, 10, clients=clients, cohort=clients, rounds=99))
        assert everybody.a == 1.0
        assert everybody.m1 == ACG.sigma


@given(eta=st.floats(1e-9, 10.0))
def test_the_largest_lambda_is_the_one_whose_largest_step_it_is(eta: float) -> None:
    rounds = fedacg.Rounds(lam=0.0, local_steps=10, clients=20, cohort=5, rounds=99)
    lam = fedacg.largest_lam(ACG, rounds, eta)
    if lam is None:
        assert eta > fedacg.largest_step(ACG, rounds)
    else:
        at = fedacg.Rounds(lam=min(lam, 1 - 1e-12), local_steps=10, clients=20, cohort=5, rounds=99)
        assert fedacg.largest_step(ACG, at) == pytest.approx(eta)


@given(
    momentum=st.floats(0.0, 0.95),
    cohort=st.integers(1, 20),
    steps=st.integers(1, 50),
    server=st.floats(0.01, 50.0),
)
def test_gradmas_largest_step_holds_all_conditions_and_a_larger_one_does_not(
    momentum: float, cohort: int, steps: int, server: float
) -> None:
    rounds = gradma.Rounds(momentum, 0.5, steps, clients=20, cohort=cohort, rounds=10)
    eta = gradma.largest_step(GMA, rounds, server)
    assert all(one.holds for one in gradma.conditions(GMA, rounds, eta * (1 - 1e-9), server))
    assert not all(one.holds for one in gradma.conditions(GMA, rounds, eta * (1 + 1e-6), server))
    with pytest.raises(UserError, match="Theorem 1 of GradMA says nothing here: it needs"):
        gradma.rate(GMA, rounds, 1.01 * eta, server)


def test_gradmas_rate_by_hand() -> None:
    """L = 2, I = 4, S = 5 of N = 21, β₁ = 0.5, β₂ = 0.2, η_g = 0.5, η_l = 0.001, T = 50."""
    rounds = gradma.Rounds(0.5, 0.2, 4, clients=21, cohort=5, rounds=50)
    reach = 4 * 0.001 * 2
    third = 320 * reach**2 + 64 * 0.5 * reach * (1 + 40 * reach**2) / 0.25 * 16 / 100
    rate = gradma.rate(GMA, rounds, 0.001, 0.5)
    assert rate.start == pytest.approx(8 * 0.5 * 4 / (4 * 0.5 * 0.001 * 50))
    assert rate.local == pytest.approx((8 + third) * 0.01)
    second = 20 * 0.5 * 2 / (0.25 * 0.8 * 4 * 0.001) + 8 / (0.8 * 16e-6)
    assert rate.server == pytest.approx(second * 0.04)
    assert rate.clients == pytest.approx(third * 0.25)
    limit = 0.25 * 5 * 20 / (4 * 2 * (0.5 * 5 * 20 + 4 * 21 * 4))
    assert gradma.largest_product(GMA, rounds) == pytest.approx(limit)


@pytest.mark.parametrize("name", ["fednag:gamma=0.5", "fedacg", "gradma"])
def test_a_network_has_limits_from_estimates_beside_its_rate(name: str) -> None:
    found = hw.bounds(name, model="mlp", clients=OWN["clients"], test=OWN["test"], points=2, trained=1, look_at=2)
    assert found.origin.startswith("estimated: the largest over 2 points")
    assert all(math.isfinite(value) for value in {**found.constants, **found.rates}.values())
    first = found.limits[0]
    assert first.practice == 0.05
    assert first.allowed is not None
    assert first.holds == (first.allowed >= 0.05)
    assert any("orders of magnitude smaller" in note for note in found.notes)
    assert not found.gaps


# ── what is refused, and the command line ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "scaffold"}, "there is no theorem here for 'scaffold'.*there are for fednag, fedacg, gradma"),
        ({"method": "fednag+adam"}, "there is no theorem here for 'fednag.adam'"),
        ({"method": "fedacg", "constants": {"l": 1.0}}, "'l' is not a constant of fedacg"),
        ({"method": "fedacg", "constants": {"L": -1.0}}, "L is -1.0; it must be a number at least 0"),
        ({"method": "fednag", "taus": [3]}, "total is 64 steps; it must be a multiple of every tau"),
        ({"method": "fednag", "taus": []}, "taus is empty"),
        ({"method": "fednag", "eta": 0.0}, "eta is 0.0; it must be a number above 0"),
        (
            {"method": "fednag:gamma=0", "constants": {"beta": 1.0, "rho": 1.0, "delta": 1.0}},
            "gamma above 0 and below 1",
        ),
        (
            {"method": "fedacg", "constants": {"L": 1.0, "sigma": 1.0, "sigma_g": 1.0, "B": 1.0, "gap": 1.0}},
            "steps is not given",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        hw.bounds(**arguments)


def test_the_command_prints_what_is_allowed_and_as_json(tmp_path: Path) -> None:
    words = "theory fedacg --constants L=10,sigma=1,sigma_g=1,B=1,gap=2.3 --steps 50"
    answer = called(tmp_path, f"{words} --json")
    assert answer.returncode == 0, answer.stderr
    first = json.loads(answer.stdout)["limits"][0]
    assert first["allowed"] == pytest.approx(0.15**2 / (64 * 50 * 10 * 2))
    assert first["practice"] == 0.05
    answer = called(tmp_path, words)
    assert "times too large" in answer.stdout
    assert "orders of magnitude smaller" in " ".join(answer.stdout.split())
    answer = called(tmp_path, "theory fedacg --constants L")
    assert answer.returncode == 2
    assert "write NAME=VALUE" in answer.stderr


def test_what_the_page_on_theory_prints_works(capsys: pytest.CaptureFixture[str]) -> None:
    """Its Python; of its commands, that they exist."""
    page = (Path(__file__).parents[1] / "docs/theory.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "theory.md", "exec"), {})
    allowed, practice = map(float, capsys.readouterr().out.split())
    assert allowed == pytest.approx(0.15**2 / (64 * 50 * 10 * 2))
    assert practice == 0.05
    commands = [shlex.split(line)[1:] for line in re.findall(r"^headway .*", page, re.MULTILINE)]
    assert len(commands) == 4
    for command in commands:
        assert CliRunner().invoke(app, [*command, "--help"]).exit_code == 0
