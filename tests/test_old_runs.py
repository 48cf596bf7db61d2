"""Folders of an earlier version are read, and go on where they stopped.

tests/old_runs was made by commit 8d003e5 on data.npz: a finished run; a run, a comparison and a sweep that were killed;
and a twin of each that was not. The numbers go on as the twin's, which were rounded by another machine perhaps.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import headway as hw
from command_line import called
from headway.runs.files import read_json
from headway.runs.observer import Unwatched
from headway.runs.study import load_study, resume_study
from headway.scenario import LATER, Scenario, settings_of
from headway.tuning.sweep import default_folder

SAVED = Path(__file__).parent / "old_runs"
NOT_COMPARED = {
    "folder",
    "folders",
    "seconds",
    "seconds_std",
    "command",
    "commit",
    "environment",
    "check",
    "chain",
    "finished",
}


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folders, with the data where their scenarios name it."""
    place = Path(shutil.copytree(SAVED, tmp_path / "old"))
    monkeypatch.chdir(place)
    return place


def equal(one: Any, old: Any) -> bool:
    """Whether a record is an old one up to rounding, but for machine and clock; it may say more."""
    if isinstance(one, Mapping) and isinstance(old, Mapping):
        names = {name for name in old if name not in NOT_COMPARED and "seconds_" not in name}
        return all(name in one and equal(one[name], old[name]) for name in names)
    if isinstance(one, float) and isinstance(old, float):
        return math.isclose(one, old, rel_tol=1e-4, abs_tol=1e-6)
    if isinstance(one, Sequence) and isinstance(old, Sequence) and not isinstance(one, str):
        return len(one) == len(old) and all(map(equal, one, old))
    return bool(one == old)


def test_a_finished_run_is_read_with_all_its_rounds(old: Path) -> None:
    run = hw.load_run("finished")
    assert run.checked
    assert (run.method, run.executor, len(run.records)) == ("fedavg", "serial", 4)
    assert equal(run.summary, read_json(old / "finished" / "summary.json"))
    assert all(getattr(run.scenario, name) == getattr(Scenario(), name) for name in LATER)
    assert sum(leaf.numel() for leaf in run.model.parameters()) == 17 * 4


def test_a_run_that_was_killed_goes_on_as_its_twin(old: Path) -> None:
    run, twin = hw.resume("interrupted"), hw.load_run("twin")
    assert equal(run.records, twin.records)
    for name, leaf in run.model.state_dict().items():
        assert leaf.sub(twin.model.state_dict()[name]).abs().max() < 1e-5
    again = hw.load_run("interrupted")
    assert again.checked
    assert len(again.records) == 4


def test_a_comparison_that_was_killed_goes_on_as_its_twin(old: Path) -> None:
    """One method was finished, one was in its second round, one seed had not begun."""
    study, twin = resume_study(Path("study"), Unwatched()), load_study([Path("study-twin")])
    assert [len(runs) for runs in study.runs.values()] == [2, 2]
    assert equal(study.summary(), twin.summary())
    assert Path(hw.report.write(study, "report").page).is_file()


def test_a_sweep_that_was_killed_goes_on_as_its_twin(old: Path) -> None:
    """By the command that its sweep.json names: a setting that came later stands at its default."""
    command = read_json(old / "sweep" / "sweep.json")["command"]
    assert command.startswith("headway sweep ")
    answer = called(old, f"{command.removeprefix('headway ')} --out sweep --json --quiet")
    assert answer.returncode == 0, answer.stderr
    found, twin = read_json(old / "sweep" / "sweep.json"), read_json(old / "sweep-twin" / "sweep.json")
    assert found["finished"]
    assert equal(found, twin)
    assert "--grid" in shlex.split(found["command"])


def test_the_same_request_of_a_sweep_has_the_folder_that_it_had() -> None:
    """Where this fails after a setting was added, the setting wants `later=True`."""
    assert str(default_folder("fedacg", ["lam=0.8,0.9"], "", None, {})) == "runs/sweep/fedacg-8c7a132c"
    changed = {"rounds": 30, "on_failure": "skip"}
    place = default_folder("fedacg", "papers", "cifar10/dir0.3/100x5%", 5000, changed)
    assert str(place) == "runs/sweep/fedacg-5743b888"


def test_a_setting_that_came_later_is_known_by_its_default() -> None:
    numbers = settings_of("problem", "training", "watching", "identity")
    fields = {setting.name: setting for setting in dataclasses.fields(Scenario)}
    assert {"task", "on_failure"} <= LATER <= numbers
    assert all(fields[name].default is not None for name in LATER), "what is None is not written anyway"
