"""The comparing part of `benchmarks/program_of_2021.py`, on made-up rounds."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import pytest

from headway.scenario import scenario

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("program_of_2021")


def test_a_bin_is_the_mean_of_all_its_rounds(program: ModuleType) -> None:
    rounds = [{"round": number, "accuracy": number / 1000, "train_loss": 2.0} for number in range(1, 101)]
    assert program.means(rounds, "accuracy") == [
        pytest.approx(1.3),
        pytest.approx(3.8),
        pytest.approx(6.3),
        pytest.approx(8.8),
        None,
    ]
    assert program.means(rounds, "loss") == [2.0, 2.0, 2.0, 2.0, None]


def test_a_bin_with_a_round_missing_has_no_mean(program: ModuleType) -> None:
    rounds = [{"round": number, "accuracy": 0.5, "train_loss": 1.0} for number in range(1, 119) if number != 60]
    assert program.means(rounds, "accuracy")[2] is None


def test_what_seeds_explain_is_welchs_interval(program: ModuleType) -> None:
    # Equal deviations and counts: n₁ + n₂ − 2 = 4 degrees of freedom, t = 2.776, s²/n = 1/3 on either side.
    half = 2.7764451 * math.sqrt(2 / 3)
    assert program.explained([10.0, 11.0, 12.0], [13.0, 14.0, 15.0]) == f"+3 ± {half:.3g}"
    assert program.explained([10.0, 12.0], [13.0]) == "+2 (one seed)"


def test_only_runs_on_the_programs_split_and_clients_count(program: ModuleType) -> None:
    wanted = scenario(
        "cifar10/authors0.3/100x5%", method="fedacg:lam=0.85,beta=0.01", sampling="authors", rate_decay=0.995
    )
    assert program.counts("fedacg", wanted)
    assert not program.counts("fedavg", wanted)
    assert not program.counts("fedacg", wanted.changed(sampling="fixed"))
    assert not program.counts("fedacg", wanted.changed(partition="dirichlet:0.3"))
    assert not program.counts("fedacg", wanted.changed(rate_decay=0.998))


def test_no_run_that_counts_is_said(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["program_of_2021.py", str(tmp_path)])
    assert program.main() == 1
    assert "no run has the program's split" in capsys.readouterr().err
