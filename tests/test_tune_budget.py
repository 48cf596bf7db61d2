"""Comparisons whose methods are tuned with equally many rounds: the plans, the winners, a kill, and what is refused."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import headway as hw
from command_line import called
from conftest import own_problem
from headway.errors import UserError
from headway.report.folder import write
from headway.runs.folder import read as read_folder
from headway.runs.study import load_study, unfinished
from headway.scenario import Scenario
from headway.tuning.compare import Plan, resume_tuning
from headway.tuning.halving import Stage, equal_plans, exact_stages, spent, stages

QUICK = Scenario(
    clients=6,
    participation=0.5,
    rounds=6,
    steps=1,
    model="linear",
    eval_samples=50,
    device="cpu",
    deterministic=True,
    executor="serial",
)
GRID: dict[str, Any] = {"rate": [0.01, 0.1, 0.5], "lam": [0.5, 0.9]}
METHODS = ["fedavg", "fedavgm", "fedacg"]


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    seeds=st.integers(1, 3),
    rounds=st.integers(1, 200),
    share=st.floats(0.0, 1.0),
)
def test_all_methods_spend_exactly_the_same_number_of_rounds(
    counts: list[int], seeds: int, rounds: int, share: float
) -> None:
    named = {f"method-{number}": count for number, count in enumerate(counts)}
    budget = round(share * min(counts) * seeds * rounds) + 1
    try:
        plans = equal_plans(named, seeds, rounds, budget)
    except UserError:
        assume(False)
    used = {spent(plan, seeds) for plan in plans.values()}
    assert len(used) == 1
    assert budget - 41 * seeds * len(counts) ** 2 <= used.pop() <= budget
    for method, plan in plans.items():
        assert plan[0].candidates == named[method]
        assert all(one.candidates > other.candidates for one, other in itertools.pairwise(plan))
        assert [0, *(one.rounds for one in plan)] == sorted({0, *(one.rounds for one in plan)})
        assert plan[-1].rounds <= rounds


def test_exact_stages_are_near_those_of_a_sweep_and_leave_nothing() -> None:
    assert exact_stages(12, 1, 100, 480) == [Stage(12, 20), Stage(6, 30), Stage(3, 70), Stage(2, 100)]
    assert spent(stages(12, 1, 100, 480), 1) == 420
    assert exact_stages(2, 1, 10, 7) is None  # two candidates cannot have 3½ rounds each
    assert exact_stages(5, 2, 10, 100) == [Stage(5, 10)]


def test_a_budget_that_a_method_cannot_spend_is_refused_before_anything_runs(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def compare(budget: Any, **more: Any) -> None:
        hw.compare(METHODS, QUICK, **{"tune_budget": budget, "grid": GRID, "out": out, **more})

    with pytest.raises(
        UserError, match="the smallest sweep of fedacg, 6 candidates of 1 seed, needs 18; give more rounds"
    ):
        compare(15)
    with pytest.raises(UserError, match="fedavg, 3 candidates of 1 seed, can spend 18 at most"):
        compare(20)
    with pytest.raises(UserError, match="tune_budget is 0; it must be a whole number of rounds"):
        compare(0)
    with pytest.raises(UserError, match="'lamda' is neither an argument of fedavg"):
        compare(12, grid={"lamda": [1.0]})
    with pytest.raises(UserError, match="the grid has nothing that fedavg could try"):
        compare(12, grid={"lam": [0.5, 0.9]})
    with pytest.raises(UserError, match="no paper searched a grid for 'fednag'"):
        hw.compare(["fednag"], QUICK, tune_budget=12, out=out)
    with pytest.raises(UserError, match="are one method, which is tuned once"):
        hw.compare(["fedacg", "fedacg:lam=0.9"], QUICK, tune_budget=12, grid=GRID, out=out)
    with pytest.raises(UserError, match="'mine' is no name of the catalogue"):
        hw.compare(["fedavg", hw.Method(name="mine")], QUICK, tune_budget=12, grid=GRID, out=out)
    with pytest.raises(UserError, match="grid is what tuning tries; give tune_budget too"):
        hw.compare(["fedavg"], QUICK, grid=GRID)
    assert not out.exists()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[hw.Study, Path]:
    out = tmp_path_factory.mktemp("tuned") / "study"
    return hw.compare(METHODS, QUICK, tune_budget=18, grid=GRID, out=out), out


def trained(sweep: Path) -> int:
    """Rounds in the run folders of a sweep."""
    return sum(len(read_folder(file.parent).rounds.records) for file in sweep.glob("*/seed-*/scenario.toml"))


def test_every_method_is_tuned_with_the_same_rounds_and_runs_with_its_best_values(
    study: tuple[hw.Study, Path],
) -> None:
    found, out = study
    assert [one.asked for one in found.tuned] == METHODS
    assert [one.candidates for one in found.tuned] == [3, 3, 6]
    for one in found.tuned:
        assert one.rounds == 18 == trained(out / one.sweep)
        content = json.loads((out / one.sweep / "sweep.json").read_text())
        best = content["best"]
        assert (one.method, dict(one.settings)) == (best["method"], best["settings"])
        scores = [row["score"] for row in content["candidates"] if row["rounds"] == best["rounds"]]
        assert best["score"] == max(scores)
        assert (out / one.sweep / "sweep.png").is_file()
        (run,) = found.runs[one.method]
        assert run.scenario.rate == one.settings["rate"]
        assert run.scenario.validation is None
        assert "each method was tuned with 18 rounds on samples held out" in found.note
        assert f"{one.asked}: {one.values} of {one.candidates} candidates" in found.note
    assert found.tuned[2].method.startswith("fedacg:lam=")


def test_the_comparison_is_that_of_the_chosen_values_without_tuning(study: tuple[hw.Study, Path]) -> None:
    found, _ = study
    for one in found.tuned:
        alone = hw.simulate(one.method, QUICK.changed(**one.settings))
        (run,) = found.runs[one.method]
        assert [row["accuracy"] for row in run.records] == [row["accuracy"] for row in alone.records]


def test_a_tuned_comparison_is_loaded_and_reported_with_its_tuning(
    study: tuple[hw.Study, Path], tmp_path: Path
) -> None:
    found, out = study
    loaded = load_study([out])
    assert loaded.tuned == found.tuned
    assert loaded.note == found.note
    report = write(loaded, tmp_path)
    for path in (report.page, report.markdown, report.latex):
        assert "each method was tuned with 18 rounds" in path.read_text(encoding="utf-8")


class Killed(BaseException):
    pass


class Killer:
    """An observer that ends everything after some rounds of all runs together."""

    def __init__(self, after: int) -> None:
        self.left = after

    def begins(self, experiment: Any, done: int, executor: str) -> None:
        pass

    def round(self, record: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def tell(self, message: str) -> None:
        pass


@pytest.mark.parametrize("after", [25, 60])
def test_a_comparison_killed_in_its_tuning_or_after_goes_on_there(
    after: int, study: tuple[hw.Study, Path], tmp_path: Path
) -> None:
    whole, _ = study
    out = tmp_path / "study"
    arguments: dict[str, Any] = {"tune_budget": 18, "grid": GRID, "out": out}
    scenario = QUICK.changed(checkpoint_every=1)
    with pytest.raises(Killed):
        hw.compare(METHODS, scenario, **arguments, observer=Killer(after))
    assert unfinished(out)
    before = sum(trained(one) for one in (out / "tuning").glob("*"))
    if after < 54:
        assert before < 54
        again = resume_tuning(out, Killer(10**6))
    else:
        again = hw.compare(METHODS, scenario, **arguments)
    assert again.tuned == whole.tuned
    assert again.note == whole.note
    assert {name: runs[0].records[-1]["accuracy"] for name, runs in again.runs.items()} == {
        name: runs[0].records[-1]["accuracy"] for name, runs in whole.runs.items()
    }
    assert all(trained(out / one.sweep) == 18 for one in again.tuned)
    with pytest.raises(UserError, match="already used"):
        hw.compare(METHODS[1:], scenario, **arguments)


def test_own_clients_are_tuned_on_in_memory() -> None:
    own = own_problem()
    found = hw.compare(["fedavg"], **own, rounds=2, tune_budget=4, grid={"rate": [0.01, 0.5]})
    assert found.folder is None
    (one,) = found.tuned
    assert one.sweep == ""
    assert one.rounds == 4


def test_the_command_tunes_resumes_and_says_so(tmp_path: Path) -> None:
    few = "--clients 8 --rounds 2 --steps 1 --model linear --executor serial --eval-samples 50"
    answer = called(
        tmp_path, f"compare fedavg fedacg {few} --tune-budget 8 --grid rate=0.01,0.1 --grid lam=0.5,0.9 --out s"
    )
    assert answer.returncode == 2
    assert "fedavg, 2 candidates of 1 seed, can spend 4 at most" in answer.stderr
    assert not (tmp_path / "s").exists()
    answer = called(tmp_path, f"compare fedavg fedavgm {few} --tune-budget 4 --grid rate=0.01,0.1 --out s")
    assert answer.returncode == 0, answer.stderr
    assert "each method was tuned with 4 rounds" in " ".join(answer.stdout.split())
    assert (tmp_path / "s" / "tuning" / "fedavg" / "sweep.md").is_file()
    assert "nothing is left to do" in called(tmp_path, "resume s").stderr


def test_the_command_of_the_page_on_tuning_can_be_planned() -> None:
    page = (Path(__file__).parents[1] / "docs/tuning.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^headway compare .*", page, re.MULTILINE)
    words = shlex.split(line)
    grids = [value for flag, value in itertools.pairwise(words) if flag == "--grid"]
    plan = Plan.checked(words[2:5], Scenario(rounds=80), 480, grids, {}, {})
    assert {spent(one, 1) for one in plan.stages.values()} == {480}
    assert [one.method for one in plan.requests] == ["fedavg", "fedavgm", "fedacg"]
