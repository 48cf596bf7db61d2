"""Trackers: what is written under which name, that a resume doubles nothing, and that a failure does not stop a run."""

from __future__ import annotations

import importlib
import json
import os
import signal
import struct
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import headway as hw
from conftest import SMALL, experiment, own_problem, played
from headway.cli.main import app
from headway.errors import UserError
from headway.runs.callbacks.run import Run
from headway.runs.trackers.tracking import NAMES, scalars, totals, trackers
from killed_runs import CONTEXT

needs_tensorboard = pytest.mark.skipif(find_spec("tensorboard") is None, reason="headway[tensorboard] is not there")
needs_mlflow = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("mlflow", "sqlalchemy", "alembic")), reason="headway[mlflow] is not there"
)
needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason="headway[wandb] is not there")
BLOCK = 32768
QUICK = SMALL.changed(rounds=7, checkpoint_every=3, deterministic=True, executor="serial")


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_number_of_a_round_has_a_name_of_its_own() -> None:
    records, _ = played(experiment("gradma", global_loss=True, dropout=0.2))
    record = records[-1]
    found = scalars(record)
    numbers = {key for key, value in record.items() if isinstance(value, int | float)} - {"round"}
    assert len(found) == len(numbers) + 1  # and the number of clients
    assert {name for name in found if name.startswith("method/")} == {
        "method/local_correction",
        "method/server_correction",
    }
    assert found["accuracy/test_smoothed"] == record["accuracy_smoothed"]
    assert found["clients/taking_part"] == len(record["clients"])
    assert len(set(NAMES.values())) == len(NAMES)


def test_scores_on_held_out_samples_have_other_names_and_what_is_no_number_is_left_out() -> None:
    found = scalars({"round": 1, "measured_on": "validation", "accuracy": 0.5, "loss": float("inf"), "flag": True})
    assert found == {"accuracy/validation": 0.5}
    assert totals({"name": "fedavg", "accuracy": 0.5, "target": None}) == {"summary/accuracy": 0.5}


# ── what is asked for ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tracker_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no tracker 'tensorbord'; did you mean 'tensorboard'\?"):
        hw.simulate("fedavg", QUICK, track=["tensorbord"], out=tmp_path / "run", **own_problem())
    with pytest.raises(UserError, match="no tracker 'x'"):
        hw.compare(["fedavg"], QUICK, track="x", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    answer = CliRunner().invoke(app, ["run", "fedavg", "--track", "wandy", "--out", str(tmp_path / "run")])
    assert "there is no tracker 'wandy'; did you mean 'wandb'?" in str(answer.exception)


@pytest.mark.parametrize(
    ("name", "package"),
    [("tensorboard", "torch.utils.tensorboard"), ("mlflow", "mlflow.entities"), ("wandb", "wandb")],
)
def test_a_missing_package_is_reported_with_its_extra(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"headway.runs.trackers.{name}", raising=False)
    with pytest.raises(UserError, match=rf"the tracker '{name}' needs .* pip install 'headway\[{name}\]'"):
        trackers([name])


def test_curves_need_a_folder() -> None:
    with pytest.raises(UserError, match="write tensorboard:DIR"):
        hw.simulate("fedavg", QUICK, track="tensorboard", **own_problem())


# ── a tracker that fails ─────────────────────────────────────────────────────────────────────────────────────────────


class Listing:
    """Lists what it gets; after some round its disk is full."""

    may_fail = True

    def __init__(self, full: int | None = None) -> None:
        self.full = full
        self.seen: list[str] = []

    def on_start(self, run: Run) -> None:
        self.seen.append(f"starts {run.method} {run.scenario.rate} {len(run.records)}")

    def on_round(self, run: Run) -> None:
        self.seen.append(f"round {run.record['round']}")
        if run.round == self.full:
            raise OSError("no space left")

    def on_end(self, run: Run) -> None:
        self.seen.append(run.status)


def test_a_tracker_that_fails_is_reported_once_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"broken": Listing(full=3), "whole": Listing()}
    monkeypatch.setattr("headway.runs.start.trackers", lambda track, kept=True: both)
    with pytest.warns(UserWarning, match="broken failed and is left out, the training goes on: no space left") as told:
        result = hw.simulate("fedavg", QUICK, **own_problem())
    assert len(told) == 1
    assert len(result.records) == 7
    rounds = [f"round {number}" for number in range(1, 8)]
    assert both["broken"].seen == ["starts fedavg 0.1 0", *rounds[:3]]
    assert both["whole"].seen == ["starts fedavg 0.1 0", *rounds, "finished"]


def test_a_run_that_fails_ends_its_trackers(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Listing()
    monkeypatch.setattr("headway.runs.start.trackers", lambda track, kept=True: {"whole": tracker})
    with pytest.raises(UserError, match="finite"):
        hw.simulate("fedavg", QUICK.changed(rate=1e30, clip=0.0), **own_problem())
    assert tracker.seen[-1] == "failed"


# ── TensorBoard, MLflow and Weights & Biases, read back ──────────────────────────────────────────────────────────────


def board(folder: Path) -> Any:
    """The event files in a folder, read."""
    reader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every scalar."""
    events = board(folder)
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


class Killer:
    """Dies by SIGKILL after a round."""

    def __init__(self, after: int) -> None:
        self.after = after

    def begins(self, experiment: Any, done: int, executor: str) -> None:
        pass

    def round(self, record: dict[str, Any]) -> None:
        if record["round"] == self.after:
            os.kill(os.getpid(), signal.SIGKILL)

    def tell(self, message: str) -> None:
        pass


def _dies(folder: Path, track: list[str]) -> None:
    torch.set_num_threads(1)
    os.environ["WANDB_MODE"] = "offline"  # the process was forked before a test could say so
    hw.simulate("fedacg", QUICK, out=folder, observer=Killer(6), track=track, **own_problem())


def killed(folder: Path, track: list[str]) -> None:
    """A run killed in round 6, whose checkpoint is of round 3."""
    life = CONTEXT.Process(target=_dies, args=(folder, track))
    life.start()
    life.join()
    assert life.exitcode == -signal.SIGKILL


@needs_tensorboard
@pytest.mark.filterwarnings("ignore")
def test_tensorboard_has_every_round_once_also_after_a_kill(tmp_path: Path) -> None:
    folder, apart = tmp_path / "run", tmp_path / "boards"
    killed(folder, ["tensorboard"])
    assert [step for step, _ in curves(folder / "tensorboard")["accuracy/test"]] == [1, 2, 3, 4, 5, 6]
    result = hw.resume(folder, track=["tensorboard", f"tensorboard:{apart}"], **own_problem())
    (elsewhere,) = {file.parent for file in apart.rglob("events*")}  # begun by the resume, and with the past
    assert elsewhere.name == "run"
    for place in (folder / "tensorboard", elsewhere):
        found = curves(place)
        for record in result.records:
            for name, value in scalars(record).items():
                assert found[name][record["round"] - 1] == (record["round"], pytest.approx(value, rel=1e-6))
        assert {len(points) for points in found.values()} == {7}
        (summary,) = board(place).Tensors("summary/text_summary")
        assert f"| accuracy | {result.summary['accuracy']} |" in summary.tensor_proto.string_val[0].decode()
        assert b"fedacg" in board(place).PluginTagToContent("hparams")["_hparams_/session_start_info"]


@needs_tensorboard
@pytest.mark.filterwarnings("ignore")
def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    place = tmp_path / "run" / "tensorboard"

    class Untidy:
        def on_start(self, run: Run) -> None:
            place.mkdir(parents=True)
            (place / "events.out.tfevents.1.other").touch()
            (place / "events.out.tfevents.1.headway").touch()

    both = [Untidy(), hw.tracker("tensorboard")]
    hw.simulate("fedavg", QUICK.changed(rounds=1), out=tmp_path / "run", callbacks=both, **own_problem())
    assert (place / "events.out.tfevents.1.other").exists()
    assert not (place / "events.out.tfevents.1.headway").exists()


@needs_tensorboard
@pytest.mark.filterwarnings("ignore")
def test_every_run_of_a_comparison_has_its_own_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = "compare fedavg fedacg --rounds 2 --model linear --clients 10 --steps 1 --device cpu --executor serial"
    answer = CliRunner().invoke(app, [*command.split(), "--out", "both", "--quiet", "--track", "tensorboard:boards"])
    assert answer.exit_code == 0, answer.exception
    for method in ("fedavg", "fedacg"):
        assert len(curves(tmp_path / "boards/both" / method / "seed-0")["loss/training"]) == 2


@needs_mlflow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_every_round_once_also_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    folder, uri = tmp_path / "run", f"sqlite:///{tmp_path / 'mlflow.db'}"
    killed(folder, [f"mlflow:{uri}"])
    result = hw.resume(folder, track=f"mlflow:{uri}", **own_problem())
    client = importlib.import_module("mlflow.tracking").MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("headway").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["method"] == "fedacg"
    assert found.data.params["rate"] == "0.1"
    assert found.data.metrics["summary/accuracy"] == result.summary["accuracy"]
    for record in result.records:
        for name, value in scalars(record).items():
            if not name.startswith("seconds/"):  # the rounds that were played twice have the first time's
                points = [
                    one.value
                    for one in client.get_metric_history(found.info.run_id, name)
                    if one.step == record["round"]
                ]
                assert points == [value]


def history(file: Path) -> tuple[dict[str, list[tuple[int, float]]], dict[str, float], dict[str, str]]:
    """Every number by round, the summary and the settings in a .wandb file: a log of records, written in blocks."""
    messages = importlib.import_module("wandb.proto.wandb_internal_pb2")
    content, position, record = file.read_bytes(), 7, b""
    numbers: dict[str, list[tuple[int, float]]] = {}
    summary: dict[str, float] = {}
    settings: dict[str, str] = {}
    while position + 7 <= len(content):
        if BLOCK - position % BLOCK < 7:  # a header is not split between two blocks
            position += BLOCK - position % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", content[position : position + 7])
        record += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind not in (1, 4):  # whole, or the last part
            continue
        found, record = messages.Record.FromString(record), b""
        items = {one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in found.history.item}
        for name, value in items.items():
            if not name.startswith("_"):
                numbers.setdefault(name, []).append((items["_step"], value))
        summary |= {one.key or one.nested_key[0]: json.loads(one.value_json) for one in found.summary.update}
        settings |= {one.key: json.loads(one.value_json) for one in found.run.config.update}
    return numbers, summary, settings


@needs_wandb
@pytest.mark.filterwarnings("ignore")
def test_wandb_has_every_round_once_also_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = tmp_path / "run"
    killed(folder, ["wandb"])
    (first,) = (folder / "wandb").glob("offline-run-*")
    result = hw.resume(folder, track="wandb:mine", callbacks=hw.tracker("wandb"), **own_problem())
    files = {file.parent: file for file in (folder / "wandb").rglob("*.wandb")}
    assert len(files) == 2
    assert first not in files, "the part that was killed is written again"
    for file in files.values():
        numbers, summary, settings = history(file)
        for record in result.records:
            for name, value in scalars(record).items():
                assert numbers[name][record["round"] - 1] == (record["round"], value)
        assert {len(points) for points in numbers.values()} == {7}
        assert summary["summary/accuracy"] == result.summary["accuracy"]
        assert (settings["method"], settings["rate"]) == ("fedacg", 0.1)
    assert any(first.name.rsplit("-", 1)[1] in place.name for place in files), "in the run of before"
