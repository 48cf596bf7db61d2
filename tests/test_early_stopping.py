"""Early stopping and the best model: both go by the records, and a kill or a resume changes neither."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import headway as hw
from conftest import SMALL, distance, own_problem
from headway.cli.main import app
from headway.errors import CallbackError, DamagedRun, UserError
from headway.runs.callbacks.best import Watched, best_of
from headway.runs.export import export
from headway.runs.folder import verify
from killed_runs import Case, Moment, killed, lived

QUICK = SMALL.changed(executor="serial", deterministic=True, checkpoint_every=3, rounds=12)


def simulate(**given: Any) -> hw.Result:
    objects = {name: given.pop(name) for name in ("out", "callbacks") if name in given}
    return hw.simulate("fedacg", QUICK.changed(**given), **objects, **own_problem())


# ── when a run stops ─────────────────────────────────────────────────────────────────────────────────────────────────


@settings(deadline=None, max_examples=100)
@given(st.lists(st.none() | st.integers(0, 9), max_size=30), st.booleans(), st.sampled_from([0.0, 1.0, 2.5]))
def test_the_best_of_the_records_is_that_of_a_search(values: list[int | None], higher: bool, least: float) -> None:
    records: list[Any] = [{"round": at} | ({} if one is None else {"x": one}) for at, one in enumerate(values, 1)]
    found = best_of(Watched("x", higher, expected=True), records, least)
    seen = [(at, one if higher else -one) for at, one in enumerate(values, 1) if one is not None]
    best: tuple[int, int] | None = None
    for at, one in seen:
        if best is None or one > best[1] + least:
            best = at, one
    assert found.round == (None if best is None else best[0])
    assert found.since == (0 if best is None else sum(at > best[0] for at, _ in seen))


@pytest.mark.parametrize("metric", [None, "loss", "accuracy_smoothed", "train_loss"])
def test_a_run_stops_in_the_first_round_that_is_patience_evaluations_after_its_best(metric: str | None) -> None:
    whole, stopping = simulate(rounds=40), hw.EarlyStopping(metric, patience=3)
    stopped = simulate(rounds=40, callbacks=stopping)
    name = metric or "accuracy"
    values = np.array([one[name] for one in whole.records]) * (-1 if "loss" in name else 1)
    after = next((at for at in range(3, 40) if values[: at - 2].max() >= values[at - 2 : at + 1].max()), None)
    assert after is not None or metric in ("loss", "train_loss", "accuracy_smoothed")
    assert len(stopped.records) == (40 if after is None else after + 1)
    if after is not None:
        best = int(values[: after + 1].argmax())
        value = whole.records[best][name]  # type: ignore[literal-required]
        assert stopped.stopped == (
            f"{name} did not improve in 3 evaluations after its best, {value:.6g} in round {best + 1}"
        )
        assert (stopping.best.round, stopping.best.value) == (best + 1, value)


def test_small_steps_do_not_count() -> None:
    result = simulate(callbacks=hw.EarlyStopping(patience=2, min_delta=0.9))
    assert len(result.records) == 3
    assert result.stopped is not None
    assert "did not improve by more than 0.9 in 2 evaluations after its best" in result.stopped


def test_rounds_without_an_evaluation_are_not_counted() -> None:
    result = simulate(callbacks=hw.EarlyStopping(patience=2, min_delta=0.9), eval_every=3)
    assert len(result.records) == 9


def test_a_number_of_the_method_is_watched_where_its_direction_is_said() -> None:
    scenario, stopping = QUICK.changed(rounds=6), hw.EarlyStopping("local_correction", 1, 1e9, higher_is_better=False)
    result = hw.simulate("gradma", scenario, callbacks=stopping, **own_problem())
    assert len(result.records) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"metric": "acuracy"}, r"is a larger 'acuracy' better\? say it.*did you mean 'accuracy'\?"),
        ({"metric": "losss", "higher_is_better": False}, r"round 1: a round has no 'losss'; did you mean 'loss'\?"),
        ({"patience": 0}, "patience is 0; it must be a number of evaluations, at least 1"),
        ({"patience": 2.0}, r"patience is 2\.0"),
        ({"min_delta": -1}, "min_delta is -1; it must be a number, at least 0"),
        ({"min_delta": float("nan")}, "min_delta is nan"),
        ({"metric": 3}, "metric is 3; it must be the name of a number"),
        ({"higher_is_better": "yes"}, "higher_is_better is 'yes'; it must be True or False"),
    ],
)
def test_mistakes_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        simulate(callbacks=hw.EarlyStopping(**given))


def test_patience_is_a_setting_that_a_resume_knows(tmp_path: Path) -> None:
    folder, whole = tmp_path / "run", simulate(patience=2, rounds=40, out=tmp_path / "whole")
    assert whole.stopped is not None

    def breaks(run: hw.Run) -> None:
        if run.round == len(whole.records) - 1:
            raise OSError("the disk is full")

    with pytest.raises(CallbackError, match=r"callback breaks, on_round, round .*OSError: the disk is full"):
        simulate(patience=2, rounds=40, out=folder, callbacks=breaks)
    resumed = hw.resume(folder, **own_problem())
    assert (resumed.stopped, len(resumed.records)) == (whole.stopped, len(whole.records))
    text = (folder / "scenario.toml").read_text()
    (folder / "scenario.toml").write_text(text.replace("patience = 2", "patience = 3"))
    with pytest.raises(DamagedRun, match="patience is 3, but the run was made with 2"):
        hw.load_run(folder, **own_problem())


# ── the best model ───────────────────────────────────────────────────────────────────────────────────────────────────


def best_round(result: hw.Result, metric: str = "accuracy") -> int:
    values = [one[metric] for one in result.records]  # type: ignore[literal-required]
    return int(np.argmin(values) if metric == "loss" else np.argmax(values)) + 1


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
@pytest.mark.parametrize("kept", [True, False], ids=["folder", "memory"])
def test_the_best_model_is_that_of_the_best_round(metric: str, kept: bool, tmp_path: Path) -> None:
    states: dict[int, Any] = {}

    def remembers(run: hw.Run) -> None:
        states[run.round] = {name: leaf.clone() for name, leaf in run.model.state_dict().items()}

    callbacks = [hw.KeepBest(metric), remembers]
    result = simulate(callbacks=callbacks, rate=0.4, out=tmp_path / "run" if kept else None)
    best = best_round(result, metric)
    assert best < 12 or metric == "loss"
    assert callbacks[0].best.round == best  # type: ignore[attr-defined]
    assert distance(result.best_model.state_dict(), states[best]) == 0
    if kept:
        assert [file.name for file in (tmp_path / "run/best").glob("model-*")] == [f"model-{best:07d}.safetensors"]
        assert distance(hw.load_run(tmp_path / "run", **own_problem()).best_model.state_dict(), states[best]) == 0


def test_a_run_without_a_best_model_says_how_to_keep_one(tmp_path: Path) -> None:
    simulate(out=tmp_path / "run", rounds=1)
    for result in (hw.load_run(tmp_path / "run", **own_problem()), simulate(rounds=1)):
        with pytest.raises(UserError, match=r"has no best model; a run keeps one with --keep-best \(keep_best=True\)"):
            print(result.best_model)


@pytest.mark.parametrize("file", ["manifest.json", "model"])
def test_damage_to_the_best_model_is_found(file: str, tmp_path: Path) -> None:
    simulate(out=tmp_path / "run", keep_best=True)
    (path,) = (tmp_path / "run/best").glob(f"{file}*")
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedRun, match=path.name):
        verify(tmp_path / "run")
    with pytest.raises(DamagedRun, match=path.name):
        print(hw.load_run(tmp_path / "run", **own_problem()).best_model)


def test_a_resume_removes_models_that_a_kill_left(tmp_path: Path) -> None:
    run = tmp_path / "run"
    simulate(out=run, keep_best=True)
    kept = sorted(run.joinpath("best").iterdir())
    run.joinpath("summary.json").unlink()  # the last thing that a run writes
    for left in ("model-0000099.safetensors", "model-0000002.safetensors.part"):
        run.joinpath("best", left).write_bytes(b"half of a model")
    hw.resume(run, **own_problem())
    assert sorted(run.joinpath("best").iterdir()) == kept


def test_a_resume_without_it_does_not_pass_an_older_model_for_the_best(tmp_path: Path) -> None:
    def breaks(run: hw.Run) -> None:
        if run.round == 4:
            raise ZeroDivisionError

    with pytest.raises(CallbackError):
        simulate(out=tmp_path / "run", callbacks=[hw.KeepBest("loss"), breaks])
    result = hw.resume(tmp_path / "run", **own_problem())
    assert best_round(result, "loss") > 3
    with pytest.raises(UserError, match="has the model of round 4 for its best, but by loss that is round"):
        print(result.best_model)


def test_one_that_comes_later_says_what_it_could_not_keep(tmp_path: Path) -> None:
    whole = simulate(rate=0.4)
    best = best_round(whole)
    assert 3 < best < 10
    after = -(-best // 3) * 3 + 1  # in the round after the next checkpoint

    def breaks(run: hw.Run) -> None:
        if run.round == after:
            raise ZeroDivisionError

    with pytest.raises(CallbackError):
        simulate(rate=0.4, out=tmp_path / "run", callbacks=breaks)
    kept = hw.KeepBest()
    if after - 1 == best:
        hw.resume(tmp_path / "run", callbacks=kept, **own_problem())
        assert kept.best.round == best
        return
    with pytest.warns(UserWarning, match=f"the model of round {best}, the best so far .* was not kept"):
        hw.resume(tmp_path / "run", callbacks=kept, **own_problem())
    assert kept.best.round is not None
    assert kept.best.round >= after


def test_another_metric_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    simulate(out=tmp_path / "run", callbacks=hw.KeepBest("loss"), rounds=2)
    (tmp_path / "run/summary.json").unlink()
    with pytest.raises(UserError, match="keeps the model with the best loss, not accuracy"):
        hw.resume(tmp_path / "run", callbacks=hw.KeepBest(), **own_problem())


# ── kills ────────────────────────────────────────────────────────────────────────────────────────────────────────────

BOTH = Case(settings={"patience": 3, "keep_best": True, "rate": 0.4, "rounds": 30, "executor": "serial"})


def outcome(folder: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Every file of the best model, and why the run stopped."""
    files = {file.name: file.read_bytes() for file in (folder / "best").iterdir()}
    summary = json.loads((folder / "summary.json").read_text())
    return files, {name: summary[name] for name in ("stopped", "rounds", "finished", "accuracy")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("best") / "run"
    return folder, lived(BOTH, folder)


def endings(trace: list[str]) -> list[str]:
    """The moments of the last rounds, among them that between the last checkpoint and the summary."""
    return [label for label in trace if "replace" in label or "unlink" in label]


def test_after_a_kill_the_same_model_is_the_best_and_the_run_stops_for_the_same_reason(
    undisturbed: tuple[Path, list[str]], tmp_path: Path
) -> None:
    """In the middle of keeping a model, after a later round was kept, and before the summary."""
    folder, trace = undisturbed
    kept = [label for label in endings(trace) if "replace model-" in label]
    assert len(kept) > 2
    moments = [Moment(kept[-1]), Moment(kept[-1], "after"), Moment(endings(trace)[-1])]
    assert moments[-1].label.endswith("replace summary.json")
    for number, moment in enumerate(moments):
        place = tmp_path / str(number)
        killed(BOTH, place, moment)
        BOTH.resume(place)
        assert outcome(place) == outcome(folder), moment


@pytest.mark.soak
def test_a_kill_at_any_moment_changes_neither(undisturbed: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder, trace = undisturbed
    for number, label in enumerate(trace):
        there_is_none = label.endswith("unlink summary.json")  # so that nothing comes after the call
        for how in ("before",) if there_is_none else ("before", "after"):
            place = tmp_path / f"{number}-{how}"
            killed(BOTH, place, Moment(label, how))
            (BOTH.resume if (place / "scenario.toml").is_file() else BOTH.simulate)(place)
            assert outcome(place) == outcome(folder), (label, how)


# ── the command line ─────────────────────────────────────────────────────────────────────────────────────────────────


def command(line: str) -> Any:
    answer = CliRunner().invoke(app, line.split(), catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer


def test_patience_and_the_best_model_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = "--model linear --clients 10 --steps 1 --device cpu --executor serial --eval-samples 50 --rate 2 --quiet"
    told = command(f"run fedavg --rounds 60 --patience 2 --keep-best {small} --out one --json")
    numbers = json.loads(told.stdout)["runs"][0]
    assert numbers["rounds"] < 60
    assert "did not improve in 2 evaluations" in numbers["stopped"]
    again = command("resume one --quiet")
    assert f"one is finished: it was stopped after round {numbers['rounds']}, accuracy did not improve" in again.stderr
    assert f"stopped after round {numbers['rounds']}: accuracy did not improve" in again.stdout
    command("export one --best")
    command("export one")
    result = hw.load_run("one")
    found = {name: safetensors.torch.load_file(f"one/{name}.safetensors") for name in ("best", "model")}
    for name, module in (("best", result.best_model), ("model", result.model)):
        assert all(torch.equal(found[name][key], leaf) for key, leaf in module.state_dict().items())
    assert distance(found["best"], found["model"]) > 0
    assert export("one", "again.safetensors", best=True).read_bytes() == Path("one/best.safetensors").read_bytes()
    rows = json.loads(command("report one --json --out report").stdout)["methods"]
    assert rows[0]["stopped"] == [f"seed 0, stopped after round {numbers['rounds']}: {numbers['stopped']}"]
    assert numbers["stopped"] in Path("report/report.html").read_text()


def test_a_sweep_does_not_stop_early() -> None:
    with pytest.raises(UserError, match="a sweep gives every candidate the same rounds; leave --patience out"):
        hw.sweep("fedacg", {"lam": [0.8, 0.9]}, patience=3)


def test_names_of_other_libraries_point_to_it() -> None:
    with pytest.raises(UserError, match="Headway's name for it is patience"):
        simulate(early_stopping=3)
