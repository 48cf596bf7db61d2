"""Runs that differ in what was told, runs of different length, and runs that go on to more rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headway as hw
from command_line import called, one_line
from conftest import round_lines
from headway.errors import UserError
from headway.report.page.commands import commands
from headway.runs.load import load_run
from headway.runs.side_by_side import side_by_side
from headway.runs.study import load_study, study_of

LITTLE: dict[str, Any] = {
    "model": "linear",
    "rounds": 3,
    "clients": 10,
    "steps": 1,
    "device": "cpu",
    "executor": "serial",
    "eval_samples": 50,
    "deterministic": True,
}
FLAGS = "--model linear --clients 10 --steps 1 --device cpu --executor serial --eval-samples 50 --deterministic --quiet"


def run(method: str = "fedavg", **changed: Any) -> hw.Result:
    return hw.simulate(method, **{**LITTLE, **changed})


@pytest.fixture(autouse=True)
def _quiet(capsys: pytest.CaptureFixture[str]) -> None:
    """The task that each run says."""


# ── by ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_combination_of_what_is_told_is_a_row_with_its_numbers() -> None:
    runs = [run(rate=rate, seed=seed) for rate in (0.05, 0.1) for seed in (0, 1)] + [run("fedacg", rate=0.1)]
    study = study_of(runs, by=["rate"])
    assert list(study.runs) == ["fedavg, rate=0.05", "fedavg, rate=0.1", "fedacg, rate=0.1"]
    assert [len(seeds) for seeds in study.runs.values()] == [2, 2, 1]
    for row, seeds in zip(study.summary(), study.runs.values(), strict=True):
        mean = sum(one.summary["smoothed_accuracy"] or 0 for one in seeds) / len(seeds)
        assert row["smoothed_accuracy"] == pytest.approx(mean)


def test_without_it_they_are_refused_and_told_how() -> None:
    with pytest.raises(UserError, match=r"rate is 0\.05 and 0\.1; --by rate makes a row of each"):
        study_of([run(rate=0.05), run(rate=0.1)])
    with pytest.raises(UserError, match="batch_size is 20 and 10; --by batch_size"):
        study_of([run(rate=0.05), run(rate=0.1, batch_size=10)], by=["rate"])


def test_what_does_not_differ_is_in_no_label() -> None:
    assert list(study_of([run(), run("fedacg")], by=["rate", "partition"]).runs) == ["fedavg", "fedacg"]


def test_another_split_is_a_row(tmp_path: Path) -> None:
    """Also of runs in folders, whose split is checked where it is not told that it differs."""
    for name, partition in (("one", "iid"), ("two", "dirichlet:0.3")):
        run(partition=partition, out=tmp_path / name)
    study = load_study([tmp_path / "one", tmp_path / "two"], by=["partition"])
    assert list(study.runs) == ["fedavg, partition=iid", "fedavg, partition=dirichlet:0.3"]


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("seed", "by is 'seed', which may differ anyway"),
        ("method", "by is 'method', which may differ anyway"),
        ("ratee", "by is 'ratee', which is not a setting of a scenario; did you mean 'rate'"),
    ],
)
def test_what_is_no_setting_is_refused(by: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        study_of([run()], by=[by])


def test_the_report_says_by_what_and_its_commands_make_it_again(tmp_path: Path) -> None:
    for name, rate in (("slow", 0.05), ("fast", 0.1)):
        called(tmp_path, f"run fedavg {FLAGS} --rounds 2 --rate {rate} --out {name}")
    answer = called(tmp_path, "report slow fast --by rate --json --out told")
    assert answer.returncode == 0, answer.stderr
    assert [row["name"] for row in json.loads(answer.stdout)["methods"]] == ["fedavg, rate=0.05", "fedavg, rate=0.1"]
    first, second, last = commands(load_study([tmp_path / "slow", tmp_path / "fast"], by=["rate"]))
    assert "headway compare fedavg --" in first
    assert "--rate 0.1 " in second
    assert last == "headway report runs/again-1 runs/again-2 --by rate --out report"
    one_line(called(tmp_path, "report slow fast --out other"))
    assert "rate=0.05" in (tmp_path / "told" / "compare.tex").read_text(encoding="utf-8")


def test_by_is_for_runs_and_not_for_a_comparison(tmp_path: Path) -> None:
    study = study_of([run(), run("fedacg")])
    with pytest.raises(UserError, match="by is"):
        hw.report.write(study, tmp_path, by=["rate"])


# ── runs of different length ─────────────────────────────────────────────────────────────────────────────────────────


def test_runs_of_different_length_are_shown_up_to_the_shortest() -> None:
    """Which is what a run of so many rounds would have shown."""
    short, long = run(rounds=3), run("fedacg", rounds=5)
    study = study_of([short, long])
    assert [len(seeds[0].records) for seeds in study.runs.values()] == [3, 3]
    row = study.summary()[1]
    whole = run("fedacg", rounds=3).summary
    for key in ("rounds", "smoothed_accuracy", "last_accuracy", "bytes_down", "bytes_up", "steps"):
        assert row[key] == whole[key]  # type: ignore[literal-required]
    assert study.note == "fedacg, seed 0: the first 3 of 5 rounds"
    with pytest.raises(UserError, match="is shown up to round 3; there is no model"):
        study.runs["fedacg"][0].model  # noqa: B018
    with pytest.raises(UserError, match="do not have their own test samples"):
        study.runs["fedacg"][0].clients  # noqa: B018
    assert len(long.records) == 5, "the run that was given is as it was"


def test_the_first_rounds_of_another_schedule_are_no_shorter_run() -> None:
    """A cosine over 5 rounds had other rates in the first 3."""
    with pytest.raises(UserError, match="rounds is 3 and 5"):
        study_of([run(rounds=3, schedule="cosine"), run("fedacg", rounds=5, schedule="cosine")])


def test_rounds_that_are_told_are_a_row_and_nothing_is_cut() -> None:
    study = study_of([run(rounds=2), run(rounds=4)], by=["rounds"])
    assert {name: len(seeds[0].records) for name, seeds in study.runs.items()} == {
        "fedavg, rounds=2": 2,
        "fedavg, rounds=4": 4,
    }


def test_one_round_of_each_is_the_least() -> None:
    rows, notes = side_by_side([run(rounds=1), run("fedacg", rounds=2)], frozenset())
    assert [len(seeds[0].records) for seeds in rows.values()] == [1, 1]
    assert len(notes) == 1


# ── more rounds ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", ["fedavg", "fedacg", "scaffold"])
def test_a_run_that_goes_on_is_the_longer_run_bit_for_bit(method: str, tmp_path: Path) -> None:
    run(method, rounds=5, out=tmp_path / "whole")
    run(method, rounds=3, out=tmp_path / "longer")
    result = hw.resume(tmp_path / "longer", rounds=5)
    assert result.scenario.rounds == 5
    assert round_lines(tmp_path / "longer") == round_lines(tmp_path / "whole")
    assert load_run(tmp_path / "longer").summary["rounds"] == 5
    assert len(hw.resume(tmp_path / "longer", rounds=5).records) == 5, "nothing is left to do"


def test_more_rounds_at_the_shell(tmp_path: Path) -> None:
    called(tmp_path, f"run fedacg {FLAGS} --rounds 2 --out one")
    answer = called(tmp_path, "resume one --rounds 4 --json --quiet")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["runs"][0]["rounds"] == 4
    assert "rounds is 3" in one_line(called(tmp_path, "resume one --rounds 3 --quiet"))
    assert "cosine" in one_line(
        called(tmp_path, f"run fedacg {FLAGS} --rounds 2 --schedule cosine --out tied")
        and called(tmp_path, "resume tied --rounds 4 --quiet")
    )
    assert json.loads((tmp_path / "tied" / "summary.json").read_text())["finished"], "a refusal changes nothing"


def test_more_rounds_of_a_comparison(tmp_path: Path) -> None:
    called(tmp_path, f"compare fedavg fedacg {FLAGS} --rounds 2 --seeds 2 --out short")
    called(tmp_path, f"compare fedavg fedacg {FLAGS} --rounds 4 --seeds 2 --out whole")
    answer = called(tmp_path, "resume short --rounds 4 --quiet --json")
    assert answer.returncode == 0, answer.stderr
    assert [row["rounds"] for row in json.loads(answer.stdout)["methods"]] == [4, 4]
    for name in ("fedavg/seed-0", "fedavg/seed-1", "fedacg/seed-0", "fedacg/seed-1"):
        assert round_lines(tmp_path / "short" / name) == round_lines(tmp_path / "whole" / name)
    assert "rounds is 2" in one_line(called(tmp_path, "resume short --rounds 2 --quiet"))
    assert called(tmp_path, "resume short --quiet").returncode == 0


@pytest.mark.parametrize("by_target", [True, False])
def test_a_run_that_was_stopped_goes_no_further(by_target: bool, tmp_path: Path) -> None:
    ends = {"target": 0.0001, "stop_at_target": True} if by_target else {"callbacks": [lambda run: run.stop("enough")]}
    run(rounds=5, out=tmp_path / "run", **ends)
    with pytest.raises(UserError, match="ended after round 1 of 5"):
        hw.resume(tmp_path / "run", rounds=8)
    assert load_run(tmp_path / "run").scenario.rounds == 5
