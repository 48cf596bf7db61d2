"""The rounds of a run played again: who arrived, in which order, and with how many steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import headway
from command_line import called
from conftest import NETWORKS, distance, unequal_clients
from headway.data.cohort import Attendance, Cohort, check_attendance
from headway.errors import UserError
from headway.random import built
from headway.runs.load import recorded
from headway.runs.result import Result
from headway.runs.resume import lengthen
from headway.scenario import Scenario

CHANCE: dict[str, Any] = {"dropout": 0.4, "stragglers": "partial", "over_selection": 0.5, "cohort_size": 3}


def run(method: str = "scaffold", **given: Any) -> Result:
    plain = {"rounds": 5, "epochs": 2, "batch_size": 4, "precision": "fp64", "device": "cpu", "executor": "serial"}
    model = built(NETWORKS["batch_norm_dropout"], 7, "test")
    return headway.simulate(method, model=model, **unequal_clients(), **{**plain, **given})


def numbers(result: Result) -> list[dict[str, object]]:
    return [{name: value for name, value in one.items() if "seconds" not in name} for one in result.records]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("executor", ["serial", pytest.param("batched", marks=pytest.mark.soak)])
def test_a_run_of_the_same_method_is_the_same_again(tmp_path: Path, executor: str) -> None:
    first = run(out=tmp_path / "first", executor=executor, **CHANCE)
    again = run(attendance=tmp_path / "first", executor=executor)
    assert numbers(again) == [{**one, "clients": one["clients"]} for one in numbers(first)]
    assert distance(list(first.model.parameters()), list(again.model.parameters())) == 0
    partial = [one for one in first.records if one["partial"]]
    assert partial
    assert all(len(one["client_steps"]) == len(one["clients"]) for one in partial)
    assert all(("client_steps" in one) == (one["partial"] > 0) for one in first.records)


def test_other_methods_see_the_same_clients(tmp_path: Path) -> None:
    first = run(out=tmp_path / "first", **CHANCE)
    other = run("fedacg", attendance=tmp_path / "first", rounds=3, epochs=1)
    assert [one["clients"] for one in other.records] == [one["clients"] for one in first.records[:3]]


def test_a_run_that_plays_rounds_again_can_be_resumed(tmp_path: Path) -> None:
    run(out=tmp_path / "first", **CHANCE)
    whole = run(attendance=tmp_path / "first")
    run(attendance=tmp_path / "first", out=tmp_path / "again", rounds=2)
    lengthen(tmp_path / "again", 5)
    model = built(NETWORKS["batch_norm_dropout"], 7, "test")
    resumed = headway.resume(tmp_path / "again", model=model, **unequal_clients())
    assert [list(one["clients"]) for one in resumed.records] == [list(one["clients"]) for one in whole.records]
    assert distance(list(resumed.model.parameters()), list(whole.model.parameters())) == 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rounds": 6}, r"rounds is 6, but the run of attendance has 5; use at most these \(--rounds 5\)"),
        ({"dropout": 0.1}, "attendance says who arrives, and dropout draws it; leave one of them out"),
        ({"over_selection": 0.1}, "attendance says who arrives, and over_selection draws it"),
        ({"attendance": "nowhere"}, "nowhere is not a run folder: it has no scenario.toml"),
    ],
)
def test_what_cannot_be_played_again_is_refused(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    run(out=tmp_path / "first")
    with pytest.raises(UserError, match=says):
        run(**{"attendance": tmp_path / "first", "out": tmp_path / "second", **given})
    assert not (tmp_path / "second").exists()


def test_clients_that_are_not_there_are_refused() -> None:
    with pytest.raises(UserError, match="client 7 took part in the run of attendance, but there are 4 clients"):
        check_attendance(Scenario(rounds=1, attendance="x"), Attendance((Cohort((1, 7)),)), 4)
    with pytest.raises(UserError, match=r"by `headway run` and hw\.simulate only"):
        check_attendance(Scenario(rounds=1, attendance="x"), None, 4)


@settings(max_examples=50, deadline=None)
@given(some.lists(some.integers(0, 9), min_size=1, max_size=6), some.integers(0, 3), some.integers(0, 3))
def test_who_was_invited_is_who_came_who_was_lost_and_who_was_late(clients: list[int], lost: int, late: int) -> None:
    cohort = Attendance((Cohort(tuple(clients), {}, lost, late),)).cohort(1)
    assert cohort.invited == len(clients) + lost + late
    assert sorted(place for turn in cohort.turns for place in turn) == list(range(len(clients)))


def test_the_flag(tmp_path: Path) -> None:
    few = "run fedavg --clients 6 --rounds 2 --steps 1 --model mlp --deterministic --executor serial"
    first = called(tmp_path, f"{few} --dropout 0.5 --participation 0.5 --out first")
    assert first.returncode == 0, first.stderr
    again = called(tmp_path, f"{few} --participation 0.5 --attendance first --out again")
    assert again.returncode == 0, again.stderr
    one, other = (recorded(tmp_path / name) for name in ("first", "again"))
    assert numbers(one) == numbers(other)
    wrong = called(tmp_path, f"{few} --attendance nowhere")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
