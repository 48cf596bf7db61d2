"""ε: against dp-accounting itself, closed forms and printed numbers; in records, in budgets and after a resume."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from scipy import optimize, stats
from typer.testing import CliRunner

import headway as hw
from conftest import SMALL, norm_free, unequal_clients
from headway.cli.main import app
from headway.errors import CallbackError, DamagedRun, UserError
from headway.random import built
from headway.runs.accountant import Accountant, Kind, Mechanism, accountant, least_noise

dp = pytest.importorskip("dp_accounting", reason="the extra dp is not installed")

QUICK = SMALL.changed(
    weights="uniform", sampling="poisson", executor="serial", deterministic=True, checkpoint_every=3, rounds=12
)
KINDS: tuple[Kind, ...] = ("pld", "rdp")


def mechanism(noise: float, sampling: str = "poisson", share: float = 0.05, population: int = 100) -> Mechanism:
    return Mechanism(noise, sampling, share, population, round(share * population))


def simulate(spelled: str, **given: Any) -> hw.Result:
    objects = {name: given.pop(name) for name in ("out", "callbacks") if name in given}
    own = {"model": built(norm_free, 7, "test"), **unequal_clients()}
    return hw.simulate(spelled, QUICK.changed(**given), **objects, **own)


# ── the number ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("kind", "printed"), [("rdp", 12.0), ("pld", 11.0)])
def test_the_printed_numbers_of_a_known_setting(kind: Kind, printed: float) -> None:
    """q = 0.05, z = 1, T = 1000, δ = 1e-5."""
    assert round(Accountant(mechanism(1.0), 1e-5, kind).epsilon(1000), 1) == printed


@pytest.mark.parametrize(("noise", "rounds", "delta"), [(5.0, 100, 1e-5), (1.0, 1000, 1e-5), (20.0, 30, 1e-6)])
def test_without_sampling_it_is_the_exact_and_the_closed_form(noise: float, rounds: int, delta: float) -> None:
    """Losses: the exact ε of a Gaussian of μ = √T/z (Balle and Wang 2018). Rényi: at most T/(2z²) + √(2T ln(1/δ))/z."""
    mu = math.sqrt(rounds) / noise

    def excess(epsilon: float) -> float:
        one, two = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return float(stats.norm.cdf(one) - math.exp(epsilon + stats.norm.logcdf(two)) - delta)

    exact = optimize.brentq(excess, 0, 1e5)
    closed = rounds / (2 * noise**2) + math.sqrt(2 * rounds * math.log(1 / delta)) / noise
    losses, renyi = (Accountant(mechanism(noise, "full"), delta, kind).epsilon(rounds) for kind in KINDS)
    assert losses == pytest.approx(exact, rel=1e-3)
    assert exact <= losses * (1 + 1e-9)
    assert losses < renyi < 1.01 * closed  # at ε = 652 the best order lies between two that are tried
    orders = optimize.minimize_scalar(
        lambda order: (
            order * rounds / (2 * noise**2) + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        ),
        bounds=(1.01, 300),
        method="bounded",
    )
    assert orders.fun <= renyi * (1 + 1e-9)
    assert renyi == pytest.approx(orders.fun, rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("noise", "share", "rounds"), [(1.0, 0.2, 40), (0.7, 0.01, 500), (3.0, 1.0, 9)])
def test_it_is_what_dp_accounting_says(noise: float, share: float, rounds: int, kind: Kind) -> None:
    from dp_accounting import pld, rdp

    event = dp.PoissonSampledDpEvent(share, dp.GaussianDpEvent(noise))
    theirs = (pld.PLDAccountant() if kind == "pld" else rdp.RdpAccountant()).compose(event, rounds).get_epsilon(1e-5)
    ours = Accountant(mechanism(noise, share=share), 1e-5, kind).epsilon(rounds)
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_more_rounds_more_clients_and_less_noise_cost_more() -> None:
    def spent(noise: float = 1.0, share: float = 0.1, rounds: int = 50, kind: Kind = "pld") -> float:
        return Accountant(mechanism(noise, share=share), 1e-5, kind).epsilon(rounds)

    assert spent(rounds=0) == 0.0
    assert spent(rounds=10) < spent(rounds=11) < spent(rounds=50) < spent(share=0.2) < spent(share=0.2, noise=0.9)
    for kind in KINDS:
        assert spent(share=1.0, kind=kind) == Accountant(mechanism(1.0, "full"), 1e-5, kind).epsilon(50)


def test_without_replacement_costs_more_than_poisson_and_less_than_no_sampling_at_its_sensitivity() -> None:
    """The sum changes by up to 2C, as one that is away makes room for another: z counts half."""
    fixed = accountant(mechanism(4.0, "fixed"), None, None)
    assert fixed.kind == "rdp"
    poisson = Accountant(mechanism(4.0), 1e-5, "rdp")
    always = Accountant(mechanism(2.0, "full"), 1e-5, "rdp")
    assert 2 * poisson.epsilon(200) < fixed.epsilon(200) < always.epsilon(200)
    with pytest.raises(UserError, match="accountant is 'pld', which does not know sampling 'fixed'"):
        accountant(mechanism(4.0, "fixed"), None, "pld")
    everybody = accountant(mechanism(4.0, "fixed", share=1.0), None, None)
    assert everybody.epsilon(7) == Accountant(mechanism(4.0, "full")).epsilon(7)


@pytest.mark.parametrize("budget", [0.5, 8.0, 60.0])
def test_the_least_noise_of_a_budget_is_the_least(budget: float) -> None:
    def of(noise: float) -> Accountant:
        return Accountant(mechanism(noise, "full"), 1e-5, "rdp")

    found = least_noise(budget, 100, of)
    assert of(found).epsilon(100) <= budget < of(found * 0.998).epsilon(100)


# ── in a run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_record_has_the_epsilon_of_its_rounds(tmp_path: Path) -> None:
    result = simulate("fedacg+dp:clip=0.5,noise=1.5", out=tmp_path / "run", delta=1e-4, accountant="rdp", rounds=5)
    expected = [Accountant(Mechanism(1.5, "poisson", 0.5, 6, 3), 1e-4, "rdp").epsilon(round) for round in range(1, 6)]
    assert [record["epsilon"] for record in result.records] == expected
    assert (result.summary["epsilon"], result.summary["delta"]) == (expected[-1], 1e-4)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["epsilon"], summary["delta"]) == (expected[-1], 1e-4)
    assert hw.load_run(tmp_path / "run", model=built(norm_free, 7, "test"), **unequal_clients()).summary["epsilon"]


def test_the_command_ends_with_what_was_spent(tmp_path: Path) -> None:
    given = "--clients 20 --participation 0.5 --sampling poisson --weights uniform --rounds 2 --model linear --steps 1"
    more = f"--device cpu --executor serial --out {tmp_path / 'run'} --quiet"
    found = CliRunner().invoke(app, ["run", "fedavg+dp:noise=3", *given.split(), *more.split()])
    assert found.exit_code == 0, found.output
    assert re.search(
        r"^privacy: fedavg\+dp:noise=3 has spent epsilon \S+ at delta 1e-05 in 2 rounds$", found.stdout, re.M
    )


def test_without_noise_there_is_no_epsilon() -> None:
    with pytest.warns(UserWarning, match="nobody is protected"):
        result = simulate("fedavg+dp:noise=0", rounds=1)
    assert "epsilon" not in result.records[0]
    assert "epsilon" not in result.summary
    with pytest.raises(UserError, match="epsilon is 3, but noise is 0, which spends any budget"):
        simulate("fedavg+dp:noise=0", epsilon=3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_ends_before_its_budget_and_a_resume_in_the_same_round(tmp_path: Path, kind: str) -> None:
    private = "fedavg+dp:clip=0.5,noise=2"
    whole = simulate(private, epsilon=4.0, accountant=kind, out=tmp_path / "whole")
    spent = [record["epsilon"] for record in whole.records]
    assert 2 < len(spent) < 12
    assert spent[-1] <= 4.0
    assert whole.stopped is not None
    assert whole.stopped.startswith(f"the budget of epsilon 4 is spent: {spent[-1]:.4g} after round {len(spent)}, and ")

    def breaks(run: hw.Run) -> None:
        if run.round == len(spent) - 1:
            raise OSError("the disk is full")

    with pytest.raises(CallbackError):
        simulate(private, epsilon=4.0, accountant=kind, out=tmp_path / "run", callbacks=breaks)
    own = {"model": built(norm_free, 7, "test"), **unequal_clients()}
    resumed = hw.resume(tmp_path / "run", **own)
    assert resumed.stopped == whole.stopped
    assert [record["epsilon"] for record in resumed.records] == spent
    assert hw.resume(tmp_path / "run", **own).stopped == whole.stopped
    text = (tmp_path / "run" / "scenario.toml").read_text()
    (tmp_path / "run" / "scenario.toml").write_text(text.replace("epsilon = 4.0", "epsilon = 7.0"))
    with pytest.raises(DamagedRun, match=r"epsilon is 7\.0, but the run was made with 4\.0"):
        hw.load_run(tmp_path / "run", **own)


def test_a_budget_that_the_last_round_fills_stops_nothing() -> None:
    result = simulate("fedavg+dp:clip=0.5,noise=2", epsilon=1e6, rounds=3)
    assert result.stopped is None
    assert len(result.records) == 3


@pytest.mark.parametrize(
    ("spelled", "given", "words"),
    [
        ("fedavg+dp:noise=0.5", {"epsilon": 0.1}, "epsilon is 0.1, but the first round spends .*; allow more"),
        ("fedavg+dp", {"sampling": "fixed", "accountant": "pld"}, "does not know sampling 'fixed'"),
    ],
)
def test_what_cannot_be_accounted_is_refused_before_a_folder_is_made(
    spelled: str, given: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        simulate(spelled, out=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_without_the_package_a_private_run_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "dp_accounting"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    for kind in KINDS:
        with pytest.raises(UserError, match=r"needs the package dp-accounting: pip install 'headway\[dp\]'"):
            simulate("fedavg+dp", accountant=kind, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_command_says_what_a_noise_costs_and_what_a_budget_needs() -> None:
    def answer(*given: str) -> Any:
        found = CliRunner().invoke(app, ["privacy", "--json", *given])
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)

    told = answer("--noise", "1", "--participation", "0.05", "--rounds", "1000")
    assert [round(told["epsilon"][kind], 1) for kind in KINDS] == [11.0, 12.0]
    need = answer("--epsilon", "8", "--sampling", "full")
    less = answer("--noise", str(need["noise"] * 0.998), "--sampling", "full")
    assert need["epsilon"]["pld"] <= 8 < less["epsilon"]["pld"]
    assert need["epsilon"]["pld"] == need["epsilon_without_sampling"]
    lines = CliRunner().invoke(app, ["privacy", "--noise", "2", "--sampling", "fixed"]).stdout.splitlines()
    assert lines[0] == "noise 2, 80 rounds, sampling fixed of 60 of 600 clients, delta 1e-05"
    assert "(rdp)" in lines[1]
    assert "(pld)" not in lines[1]
    assert lines[2] == "the mean update has noise of deviation 0.03333 · clip on every coordinate"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "give one of --noise"),
        (("--noise", "1", "--epsilon", "2"), "give one of --noise"),
        (("--noise", "0"), "noise is 0; it must be above 0"),
        (("--noise", "1", "--sampling", "bernoulli"), "sampling is 'bernoulli', of which no accountant knows"),
        (("--noise", "1", "--delta", "1"), "delta is 1.0; it must be below 1"),
        (("--epsilon", "0"), "epsilon is 0.0; it must be above 0"),
    ],
)
def test_the_command_refuses_what_has_no_answer(given: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(app, ["privacy", *given])
    assert isinstance(result.exception, UserError)
    assert words in str(result.exception)
