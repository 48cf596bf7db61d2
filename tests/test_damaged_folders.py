"""What is wrong in a run's folder is one line, never another number; $HEADWAY_DAMAGE is how often each folder is damaged."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import headway as hw
from conftest import SMALL, norm_free, unequal_clients
from damaging import Look, damaged
from headway.errors import UserError
from headway.papers import reproduce
from headway.papers.plan import plan
from headway.papers.preset import preset
from headway.random import built
from headway.runs import run
from headway.runs.files import read_json, write_checked
from headway.runs.run import Result
from headway.runs.study import load_study, resume_study
from headway.scenario import FREE
from test_going_on import Stopping

COUNT = int(os.environ.get("HEADWAY_DAMAGE", "150"))
SCENARIO = SMALL.changed(rounds=4, checkpoint_every=2, deterministic=True, executor="serial")
LITTLE: dict[str, Any] = {"rounds": 2, "clients": 6, "model": "linear", "steps": 1, "device": "cpu"}


def given() -> dict[str, Any]:
    return {"model": built(norm_free, 7, "test"), **unequal_clients()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose clients keep state."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    hw.simulate("scaffold", SCENARIO, out=folder, **given())
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, ended as by a kill: its checkpoint is of round 2, its lines go to round 3."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(KeyboardInterrupt):
        hw.simulate("scaffold", SCENARIO, out=folder, observer=Stopping(3), **given())
    return folder


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished comparison on the embedded data, so with splits, as a column of a paper's table has it."""
    folder = tmp_path_factory.mktemp("compared") / "study"
    hw.compare(["fedavg", "fedprox"], out=folder, executor="serial", **LITTLE)
    write_checked(folder / "reproduce.json", {"item": "paper/table-1", "title": "Table 1", "seeds": 1, "made": {}})
    return folder


def numbers(result: Result) -> Any:
    """Everything that a run says, without the clock of a round that was played again and without how it is executed."""
    settings = {name: value for name, value in result.scenario.as_dict().items() if name not in FREE}
    records = [{name: value for name, value in one.items() if "seconds" not in name} for one in result.records]
    return result.method, settings, records


def weights(result: Result) -> list[list[Any]]:
    return [[name, tensor.tolist()] for name, tensor in result.model.state_dict().items()]


def reported(folder: Path) -> Any:
    study = load_study([folder])
    rows = [{name: value for name, value in row.items() if name not in ("folders", "ended")} for row in study.summary()]
    return rows, study.note, [numbers(one) for runs in study.runs.values() for one in runs]


def verified(folder: Path) -> Any:
    """As `headway resume` looks at a finished comparison or run."""
    return [numbers(one) for runs in load_study([folder], verified=True).runs.values() for one in runs]


def resumed(folder: Path) -> Any:
    result = hw.resume(folder, **given())
    return numbers(result), weights(result)


def loaded(folder: Path) -> Any:
    """As `headway export` looks at a run."""
    result = hw.load_run(folder, **given())
    return numbers(result), weights(result)


def gone_on(folder: Path) -> Any:
    study = resume_study(folder)
    return [(numbers(one), weights(one)) for runs in study.runs.values() for one in runs]


def tabled(folder: Path) -> Any:
    """As `headway reproduce --from` looks at a folder."""
    found = reproduce._read(folder)
    sure = found.records[:2]  # that a line after the checkpoint is lost, a kill does too
    return sure, found.failure, reproduce.noted(folder)


CASES: dict[str, tuple[str, tuple[Look, ...]]] = {
    "a finished run": ("whole", (reported, verified, resumed, tabled)),
    "a stopped run": ("stopped", (reported, resumed, loaded, tabled)),
    "a comparison": ("compared", (reported, verified, gone_on)),
}


@pytest.mark.filterwarnings("ignore:some of these runs are from before")
@pytest.mark.parametrize("case", CASES)
def test_damage_is_one_line_or_changes_nothing(case: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    name, looks = CASES[case]
    counts = damaged(request.getfixturevalue(name), tmp_path / "copy", COUNT, 7, looks, ["reproduce.json"])
    assert counts["refused"] > sum(counts.values()) / 2
    assert counts["harmless"] > 0
