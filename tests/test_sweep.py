"""Sweeps: what is held out, how candidates share rounds, what a kill leaves, and that the test set has no say."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import headway as hw
from conftest import SMALL, experiment, own_problem
from headway.cli.main import app
from headway.data.columns import Windows
from headway.data.federation import Federation, Samples
from headway.data.held_out import held_out
from headway.engine.building import build
from headway.errors import UserError
from headway.measure.headline import SMOOTHED
from headway.methods.spelling import method
from headway.runs.start import simulate
from headway.tuning.grid import candidates, grid
from headway.tuning.halving import Stage, stages
from headway.tuning.picture import picture
from headway.tuning.results import Sweep, Trial
from headway.tuning.sweep import default_folder, sweep
from headway.tuning.table import caption, cells, markdown
from killed_runs import CONTEXT

QUICK = SMALL.changed(rounds=3, deterministic=True, executor="serial", validation=0.25)


# ── what is held out ─────────────────────────────────────────────────────────────────────────────────────────────────


def federation(sizes: list[int]) -> Federation:
    """Samples whose value is their row; the test set is -1 everywhere."""
    total = sum(sizes)
    rows = np.random.default_rng(0).permutation(total)
    pool = Samples(torch.arange(total).reshape(-1, 1).double(), torch.arange(total) % 3)
    test = Samples(-torch.ones(4, 1, dtype=torch.float64), torch.zeros(4, dtype=torch.int64))
    return Federation(pool, test, np.split(rows, np.cumsum(sizes)[:-1]), 3)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.floats(0.05, 0.95), st.integers(0, 5))
def test_each_client_holds_out_its_share_of_its_own_rows_and_keeps_one(
    sizes: list[int], share: float, seed: int
) -> None:
    whole = federation([*sizes, 30])
    parted = held_out(whole, share, seed)
    held = parted.test.x.flatten().long().numpy()
    assert -1 not in held
    assert torch.equal(parted.test.y, whole.train.y[torch.as_tensor(held)])
    assert len(set(held)) == len(held)
    for own_rows, kept in zip(whole.clients, parted.clients, strict=True):
        mine = set(own_rows) & set(held)
        assert set(kept) | mine == set(own_rows)
        assert not set(kept) & mine
        assert len(kept) >= 1
        assert len(mine) == min(int(share * len(own_rows) + 0.5), len(own_rows) - 1)


def test_the_same_seed_holds_out_the_same_rows() -> None:
    one, again, other = (held_out(federation([20, 30]), 0.2, seed).test.x.flatten().tolist() for seed in (1, 1, 2))
    assert one == again != other


def test_windows_of_text_can_be_held_out() -> None:
    tokens = torch.arange(50, dtype=torch.uint8)
    pool = Samples(Windows(tokens, torch.arange(40), 4), torch.arange(40))
    parted = held_out(Federation(pool, pool, [np.arange(40)], 50), 0.1, 0)
    assert parted.test.x.shape == (4, 4)
    assert torch.equal(parted.test.x[:][:, 0], parted.test.y)


def test_clients_too_small_to_hold_anything_out_are_reported() -> None:
    with pytest.raises(UserError, match=r"validation is 0\.1, but every client has too few samples to hold one out"):
        held_out(federation([1, 2, 3]), 0.1, 0)


def test_an_experiment_trains_on_the_rest_and_is_judged_on_what_is_held_out() -> None:
    whole, parted = experiment("fedavg"), experiment("fedavg", validation=0.25)
    kept = sum(len(rows) for rows in parted.federation.clients)
    assert kept + len(parted.federation.test) == len(whole.federation.train)
    trained = parted.sample_weights > 0  # what the loss over clients counts
    assert int(trained.sum()) == kept


def test_a_pooled_method_holds_out_what_the_clients_would() -> None:
    pooled, apart = (build(QUICK, method(name), **own_problem()) for name in ("csgd", "fedavg"))
    assert torch.equal(pooled.federation.test.x[:], apart.federation.test.x[:])


def test_scores_on_held_out_samples_say_so(tmp_path: Path) -> None:
    result = simulate("fedavg", QUICK, out=tmp_path / "run", **own_problem())
    lines = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    assert {line["measured_on"] for line in lines} == {"validation"}
    assert json.loads((tmp_path / "run/summary.json").read_text())["measured_on"] == "validation"
    assert result.summary["measured_on"] == "validation"
    plain = simulate("fedavg", SMALL, **own_problem())
    assert plain.summary["measured_on"] == "test"
    assert "measured_on" not in plain.records[0]


# ── the best, and by what ────────────────────────────────────────────────────────────────────────────────────────────


def shifted(given: dict[str, Any]) -> dict[str, Any]:
    """The same clients, and a test set on which every right answer counts as wrong."""
    x, y = given["test"]
    return {**given, "test": (x, (y + 1) % 3)}


def test_the_best_is_chosen_by_validation_where_the_test_set_says_the_opposite() -> None:
    rates = (1e-6, 0.2)
    by_test = [
        simulate("fedavg", SMALL.changed(rate=rate), **shifted(own_problem())).summary["accuracy"] for rate in rates
    ]
    assert by_test[0] > by_test[1]
    honest = sweep("fedavg", {"rate": rates}, QUICK, **own_problem())
    poisoned = sweep("fedavg", {"rate": rates}, QUICK, **shifted(own_problem()))
    assert honest.best is not None
    assert honest.best.candidate.values == {"rate": 0.2}
    assert poisoned.as_dict() == honest.as_dict()


def test_scores_are_the_validation_accuracies_of_the_runs(tmp_path: Path) -> None:
    found = sweep("fedacg", {"lam": [0.5, 0.8]}, QUICK, out=tmp_path / "sweep", seeds=2, **own_problem())
    for trial in found.trials:
        for seed, score in enumerate(trial.scores):
            alone = simulate(trial.candidate.method, QUICK.changed(seed=seed), **own_problem())
            assert score == alone.summary["accuracy"]
    assert found.best is found.ranking[0]
    assert found.best is max(found.trials, key=lambda one: one.score or 0)


def test_a_diverged_candidate_is_listed_and_the_rest_goes_on(tmp_path: Path) -> None:
    for _ in range(2):  # the second time everything is read
        found = sweep("fedavg", {"rate": [1e30, 0.1]}, QUICK.changed(clip=0.0), out=tmp_path / "sweep", **own_problem())
        assert [trial.status for trial in found.trials] == ["diverged", "finished"]
        assert "not a finite number" in str(found.trials[0].failure)
        assert found.best is found.trials[1]
        assert "diverged" in markdown(found, None)
    written = json.loads((tmp_path / "sweep/sweep.json").read_text())
    assert written["finished"]
    assert [one["status"] for one in written["candidates"]] == ["diverged", "finished"]
    assert written["best"]["values"] == {"rate": 0.1}
    assert written["environment"]["versions"]["torch"] == torch.__version__


def test_the_command_of_the_best_gives_a_cohort_in_one_way() -> None:
    """A grid over cohort_size takes the place of participation, which the request had."""
    found = sweep("fedavg", {"cohort_size": [2, 3]}, participation=0.5, rounds=1, steps=1, eval_samples=50, model="mlp")
    assert "--cohort-size" in found.command
    assert "--participation" not in found.command


def test_targets_that_are_numbers_are_judged_by_the_least_loss() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 6))
    y = x @ draw.normal(size=(6, 1))
    data = {"clients": [(x[:30], y[:30]), (x[30:50], y[30:50])], "test": (x[50:], y[50:])}
    found = sweep("fedavg", {"rate": [1e-6, 0.05]}, QUICK, model=torch.nn.Linear(6, 1), **data)
    assert found.measure == "loss"
    assert found.best is found.trials[1]
    assert cells(found)[0][1] == "validation loss"
    assert "last loss on" in caption(found)


TINY: dict[str, Any] = {"model": "linear", "rounds": 1, "steps": 1, "device": "cpu", "executor": "serial"}


def test_the_caption_tells_of_the_clients_that_took_part(tmp_path: Path) -> None:
    """A split that counts its clients itself, a method that takes everybody, own data, and a grid over the cohort."""
    rates = {"rate": [0.01]}
    natural = sweep("fedavg", rates, data="synthetic:1,1", partition="natural", **TINY)
    assert "natural, 3 of 30 clients a round;" in caption(natural)
    assert "10 of 10 clients a round;" in caption(sweep("fednag", rates, clients=10, **TINY))
    assert "on own, own, 3 of 6 clients a round;" in caption(sweep("fedavg", rates, QUICK, **own_problem()))
    for _ in range(2):  # the second time everything is read
        several = sweep("fedavg", {"cohort_size": [2, 3]}, clients=10, out=tmp_path / "sweep", **TINY)
        assert "dirichlet:0.3, 10 clients;" in caption(several)


def test_the_caption_of_a_sweep_that_never_began_counts_nobody(tmp_path: Path) -> None:
    found = sweep("fedavg", {"rate": [0.1]}, data=f"npz:{tmp_path / 'none.npz'}", partition="natural", **TINY)
    assert found.best is None
    assert "clients a round" not in caption(found)


def test_data_that_has_changed_is_refused(tmp_path: Path) -> None:
    """Scores that are there already would be of other samples; data that is gone is no other."""
    file = tmp_path / "own.npz"

    def asked(seed: int | None) -> Sweep:
        file.unlink(missing_ok=True)
        if seed is not None:
            draw = np.random.default_rng(seed)
            x, y = draw.normal(size=(40, 5)).astype(np.float32), draw.integers(0, 3, 40)
            np.savez(file, x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
        given = {**TINY, "data": f"npz:{file}", "partition": "iid", "clients": 4, "out": tmp_path / "sweep"}
        return sweep("fedavg", {"rate": [0.01, 0.1]}, **given)

    first = asked(0)
    for again in (0, None):
        assert asked(again).as_dict() == first.as_dict()
    with pytest.raises(UserError, match=r"is not what .* was run with"):
        asked(1)


# ── sharing rounds ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_budget_all_get_the_same() -> None:
    assert stages(12, 2, 80) == [Stage(12, 80)]
    assert stages(12, 2, 80, 12 * 2 * 80) == [Stage(12, 80)]


@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 300), st.integers(1, 20000))
def test_halving_keeps_to_its_budget(count: int, seeds: int, rounds: int, budget: int) -> None:
    try:
        found = stages(count, seeds, rounds, budget)
    except UserError:
        assert budget < count * seeds * rounds
        return
    spent, before = 0, 0
    for stage in found:
        assert before < stage.rounds <= rounds
        spent += stage.candidates * seeds * (stage.rounds - before)
        before = stage.rounds
    assert spent <= budget
    assert found[0].candidates == count
    assert all(-(-one.candidates // 2) == two.candidates for one, two in itertools.pairwise(found))


def test_halving_gives_the_best_half_more_rounds_from_its_checkpoint(tmp_path: Path) -> None:
    rates = (1e-6, 0.05, 0.1, 0.2)
    found = sweep(
        "fedavg", {"rate": rates}, QUICK.changed(rounds=9), budget=24, out=tmp_path / "sweep", **own_problem()
    )
    assert found.stages == [Stage(4, 3), Stage(2, 9)]
    went_on = [trial for trial in found.trials if trial.status == "finished"]
    assert [trial.rounds for trial in went_on] == [9, 9]
    first = {rate: simulate("fedavg", QUICK.changed(rate=rate), **own_problem()).summary["accuracy"] for rate in rates}
    best = sorted(rates, key=lambda rate: (-first[rate], rate))[:2]
    assert {trial.candidate.values["rate"] for trial in went_on} == set(best)
    for trial in found.trials:
        rate = trial.candidate.values["rate"]
        if trial.status == "stopped":
            assert (trial.rounds, trial.scores) == (3, (first[rate],))
        else:  # nine rounds in two stages are nine rounds
            assert (
                trial.scores[0]
                == simulate("fedavg", QUICK.changed(rate=rate, rounds=9), **own_problem()).summary["accuracy"]
            )


# ── kill and go on ───────────────────────────────────────────────────────────────────────────────────────────────────


class Counting:
    """Counts rounds; dies by SIGKILL after this many."""

    def __init__(self, most: int | None = None) -> None:
        self.most, self.rounds = most, 0

    def begins(self, experiment: Any, done: int, executor: str) -> None:
        pass

    def round(self, record: dict[str, Any]) -> None:
        self.rounds += 1
        if self.rounds == self.most:
            os.kill(os.getpid(), signal.SIGKILL)

    def tell(self, message: str) -> None:
        pass


HALVED = QUICK.changed(rounds=9, checkpoint_every=2)


def halved(folder: Path, observer: Counting) -> Sweep:
    return sweep(
        "fedacg", {"lam": [0.2, 0.5, 0.7, 0.9]}, HALVED, budget=24, out=folder, observer=observer, **own_problem()
    )


def _dies(folder: Path, after: int) -> None:
    torch.set_num_threads(1)
    halved(folder, Counting(after))


def test_a_killed_sweep_goes_on_and_ends_like_one_that_was_not(tmp_path: Path) -> None:
    whole = Counting()
    wanted = halved(tmp_path / "whole", whole)
    assert whole.rounds == 4 * 3 + 2 * 6
    folder = tmp_path / "killed"
    for after in (5, 13):  # in the second candidate of the first stage; then in the second stage
        life = CONTEXT.Process(target=_dies, args=(folder, after))
        life.start()
        life.join()
        assert life.exitcode == -signal.SIGKILL
    first = next(folder.glob("001-*/seed-0/rounds.jsonl")).read_bytes()
    last = Counting()
    found = halved(folder, last)
    assert last.rounds < whole.rounds - 14
    assert next(folder.glob("001-*/seed-0/rounds.jsonl")).read_bytes().startswith(first[: len(first) // 2])
    assert [(one.status, one.rounds, one.scores) for one in found.trials] == [
        (one.status, one.rounds, one.scores) for one in wanted.trials
    ]
    again = Counting()
    assert halved(folder, again).as_dict() == found.as_dict()
    assert again.rounds == 0


def test_one_that_diverged_in_a_later_stage_had_its_place_there(tmp_path: Path) -> None:
    """Read again, it is among those that went on, so the same others did not."""
    before = halved(tmp_path, Counting())
    assert before.best is not None
    first, second = before.ranking[:2]
    for rounds in (9, 3):
        note = tmp_path / first.candidate.folder / "seed-0" / "diverged.json"
        note.write_text(json.dumps({"rounds": rounds, "failure": "no number"}))
        after = {trial.candidate.number: trial for trial in halved(tmp_path, Counting()).ranking}
        assert after[first.candidate.number].status == "diverged"
        went_on = {number for number, trial in after.items() if trial.status == "finished"}
        assert second.candidate.number in went_on
        assert len(went_on) == (1 if rounds == 9 else 2)


def test_a_folder_of_another_sweep_or_of_something_else_is_refused(tmp_path: Path) -> None:
    sweep("fedavg", {"rate": [0.1]}, QUICK, out=tmp_path / "sweep", **own_problem())
    with pytest.raises(UserError, match=r"another sweep \(epochs is 2, not 1\); give another folder"):
        sweep("fedavg", {"rate": [0.1]}, QUICK, epochs=1, out=tmp_path / "sweep", **own_problem())
    with pytest.raises(UserError, match=r"another sweep \(grid is"):
        sweep("fedavg", {"rate": [0.2]}, QUICK, out=tmp_path / "sweep", **own_problem())
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(UserError, match="it holds other files"):
        sweep("fedavg", {"rate": [0.1]}, QUICK, out=tmp_path / "other", **own_problem())


# ── what is printed ──────────────────────────────────────────────────────────────────────────────────────────────────

LITTLE = "--model linear --clients 10 --steps 1 --device cpu --executor serial --eval-samples 50"


def test_the_command_prints_the_table_and_the_best_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = f"sweep fedacg --grid lam=0.5,0.8 --grid rate=0.01,0.1 --rounds 2 --quiet {LITTLE}"
    answer = CliRunner().invoke(app, command.split(), catch_exceptions=False)
    assert answer.exit_code == 0
    assert "validation accuracy %" in answer.output
    assert "test accuracy" not in answer.output
    best = next(line for line in answer.output.splitlines() if line.startswith("best: "))
    folder = default_folder(
        "fedacg",
        ["lam=0.5,0.8", "rate=0.01,0.1"],
        "",
        None,
        {"rounds": 2, "model": "linear", "clients": 10, "steps": 1, "eval_samples": 50},
    )
    written = json.loads((folder / "sweep.json").read_text())
    assert best == f"best: {written['best']['command']}"
    assert "**finished**" in (folder / "sweep.md").read_text()
    assert (folder / "sweep.png").read_bytes().startswith(b"\x89PNG")
    run = CliRunner().invoke(app, [*best.split()[2:], "--out", "best", "--quiet"], catch_exceptions=False)
    assert run.exit_code == 0
    chosen = hw.scenario("best")
    assert (chosen.method, chosen.rate) == (written["best"]["method"], written["best"]["settings"]["rate"])
    assert chosen.validation is None
    assert chosen.model == "linear"
    again = CliRunner().invoke(app, [*written["command"].split()[1:], "--json"], catch_exceptions=False)
    assert json.loads(again.stdout)["best"] == written["best"]


def test_what_the_page_on_tuning_prints_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its Python; of its commands, that they can be planned."""
    page = (Path(__file__).parents[1] / "docs/tuning.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "tuning.md", "exec"), {})
    commands = [shlex.split(line, comments=True)[1:] for line in re.findall(r"^headway .*", page, re.MULTILINE)]
    assert [command[0] for command in commands] == ["sweep"] * 3 + ["compare"]
    for command in commands[:3]:
        grids = [value for flag, value in itertools.pairwise(command) if flag == "--grid"]
        assert candidates(command[1], grid(command[1], grids), SMALL)
        assert CliRunner().invoke(app, [*command, "--help"]).exit_code == 0


def test_a_sweep_of_failures_has_no_best(tmp_path: Path) -> None:
    command = f"sweep fedavg --grid rate=1e29,1e30 --clip 0 --rounds 3 --quiet {LITTLE} --out {tmp_path / 'sweep'}"
    answer = CliRunner().invoke(app, command.split())
    assert isinstance(answer.exception, UserError)
    assert "there is no best: every candidate failed" in str(answer.exception)
    assert json.loads((tmp_path / "sweep/sweep.json").read_text())["best"] is None


def made_up(values: dict[str, tuple[Any, ...]], halving: bool) -> Sweep:
    """Every kind of outcome, without training."""
    plan = [Stage(9, 10), Stage(5, 30)] if halving else [Stage(9, 30)]
    every = candidates("fedacg", values, SMALL)
    trials = [
        Trial(one, status="diverged", failure="no number")
        if one.number == 3
        else Trial(one, plan[one.number % len(plan)].rounds, (0.7 + one.number / 100,), "finished")
        for one in every
    ]
    return Sweep("fedacg", values, SMALL.changed(validation=0.1), plan, trials, SMOOTHED, None, "", {})


@pytest.mark.parametrize("halving", [False, True])
@pytest.mark.parametrize(
    "values",
    [
        {"lam": (0.5, 0.6, 0.7, 0.8)},
        {"augmentation": ("none", "papers", "crop-flip")},
        {"lam": (0.5, 0.6), "beta": (0.001, 0.1)},
        {"lam": (0.5, 0.6), "beta": (0.001, 0.1), "rate": (0.1, 0.2)},
    ],
    ids=lambda values: str(len(values)),
)
def test_every_kind_of_sweep_has_a_picture(values: dict[str, tuple[Any, ...]], halving: bool, tmp_path: Path) -> None:
    assert picture(made_up(values, halving), tmp_path / "sweep.png").stat().st_size > 5000
