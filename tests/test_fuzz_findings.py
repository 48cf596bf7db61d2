"""What the fuzzers found: each is one line now."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import headway as hw
from conftest import SMALL, norm_free, unequal_clients
from headway.data.sources.files import read_arrays
from headway.errors import MOST, UserError, readable, shown
from headway.runs.export import export
from headway.runs.files import read_json, read_plain
from headway.runs.study import load_study, resume_study

ONE = SMALL.changed(rounds=1, executor="serial")


def run(**given: Any) -> hw.Result:
    return hw.simulate("fedavg", ONE, **{"model": norm_free(), **unequal_clients(), **given})


def swept(grid: Any = "rate=0.1", **given: Any) -> hw.Sweep:
    return hw.sweep("fedavg", grid, ONE, **{"model": norm_free(), **unequal_clients(), **given})


class Deaf:
    """An observer whose rounds come without their record."""

    def begins(self, experiment: Any, done: int, executor: str) -> None: ...
    def round(self) -> None: ...
    def tell(self, message: str) -> None: ...


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        raise LookupError("no such\nanswer")


class Items:
    """A data set that says it is longer than it is."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        return torch.ones(6)[: 6 if at < 8 else 0][[0, 1, 2, 3, 4, 5]], 1


class Nameless:
    def __repr__(self) -> str:
        raise LookupError


X, Y = torch.ones(4, 6), torch.tensor([0, 1, 2, 0])

WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "observer": (lambda: run(observer="me"), "observer is 'me'; it must have the methods begins"),
    "observer without its arguments": (lambda: run(observer=Deaf()), "it must have the methods begins"),
    "observer of a comparison": (lambda: hw.compare(["fedavg"], ONE, observer=3), "observer is 3; it must"),
    "observer of a sweep": (lambda: swept(observer=3), "observer is 3; it must"),
    "tracker": (lambda: run(track=3), "track is 3; it must be a tracker's name"),
    "trackers": (lambda: run(track=[None]), r"track is \[None\]; it must be"),
    "methods": (lambda: hw.compare(3), "methods is 3; it must be a list"),
    "path with NUL": (lambda: run(out="a\0b"), r"out is 'a\\x00b'; no file can have this name"),
    "path that is no text": (lambda: hw.load_run("\udcff"), r"run is '\\udcff'; no file can have this name"),
    "lazy network": (lambda: run(model=nn.LazyLinear(3)), "the model's 'weight' has no shape yet"),
    "network without numbers": (lambda: run(model=nn.Linear(6, 3, device="meta")), "the model's 'weight' holds no"),
    "network of no kind": (
        lambda: run(model=np.zeros((2, 3))),
        "model is of type ndarray; it must be a torch.nn.Module",
    ),
    "network that fails": (lambda: run(model=Failing()), "does not take samples .* LookupError: no such answer"),
    "data set that fails": (lambda: run(clients=[Items()]), "client 0 cannot be read as a dataset: item 8: IndexError"),
    "data without numbers": (lambda: run(clients=[(X.to("meta"), Y)]), "client 0 holds a tensor without data"),
    "sparse data": (lambda: run(clients=[(X.to_sparse(), Y)]), "client 0 holds a sparse tensor"),
    "a number of clients as a tensor": (lambda: run(clients=torch.tensor(3)), "clients is of type Tensor"),
    "budget": (lambda: swept(budget=1j), "budget is 1j; it must be a whole number"),
    "grid": (lambda: swept(3), "grid is 3; write it as"),
    "grids": (lambda: swept([None]), r"grid is \[None\]; write it as"),
    "endless number": (lambda: hw.lookahead(10**400), "lam is a whole number of about"),
    "value without words": (lambda: hw.lookahead(Nameless()), "lam is an object of type Nameless"),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_is_refused_in_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, words = WRONG[name]
    with pytest.raises(UserError, match=words) as refused:
        call()
    assert str(refused.value).isprintable()
    assert not list(tmp_path.iterdir()), "something was left behind"


def test_a_run_is_resumed_with_its_method_alone(tmp_path: Path) -> None:
    given = unequal_clients()
    hw.simulate("fedavg", ONE, model=norm_free(), out=tmp_path / "run", **given)
    with pytest.raises(UserError, match="method is of type list"):
        hw.resume(tmp_path / "run", method=[1], model=norm_free(), **given)  # type: ignore[arg-type]
    assert hw.resume(tmp_path / "run", method="fedavg", model=norm_free(), **given).method == "fedavg"  # type: ignore[arg-type]
    with pytest.raises(UserError, match="path is ''; it must be the name of a file"):
        export(tmp_path / "run", "")


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "summary.json")
    with pytest.raises(OSError, match="it is not a plain file"):
        read_plain(tmp_path / "summary.json")
    with pytest.raises(UserError, match="it is not a plain file"):
        read_json(tmp_path / "summary.json")


def test_a_pipe_in_place_of_the_rounds_is_not_waited_for_by_a_resume(tmp_path: Path) -> None:
    hw.simulate("fedavg", ONE.changed(checkpoint_every=1), model=norm_free(), out=tmp_path / "run", **unequal_clients())
    (tmp_path / "run" / "summary.json").unlink()
    (tmp_path / "run" / "rounds.jsonl").unlink()
    os.mkfifo(tmp_path / "run" / "rounds.jsonl")
    with pytest.raises(UserError, match=r"rounds.jsonl is damaged: it is not a plain file"):
        hw.resume(tmp_path / "run", model=norm_free(), **unequal_clients())


def test_settings_of_another_study_are_not_this_ones(tmp_path: Path) -> None:
    """Its file is sound in itself; a resume would make other runs and report them."""
    little = {"rounds": 1, "clients": 6, "model": "linear", "steps": 1, "device": "cpu", "executor": "serial"}
    for seed in (0, 1):
        hw.compare(["fedavg"], out=tmp_path / str(seed), seed=seed, **little)
    shutil.copy(tmp_path / "1" / "scenario.toml", tmp_path / "0")
    with pytest.raises(UserError, match=r"scenario.toml was changed .* not those that study.json was written with"):
        resume_study(tmp_path / "0")


def test_a_comparison_whose_run_lost_its_summary_is_still_whole(tmp_path: Path) -> None:
    little = {"rounds": 1, "clients": 6, "model": "linear", "steps": 1, "device": "cpu", "executor": "serial"}
    hw.compare(["fedavg", "fedprox"], out=tmp_path / "study", **little)
    whole = load_study([tmp_path / "study"]).summary()
    (tmp_path / "study" / "fedavg" / "seed-0" / "summary.json").unlink()
    assert load_study([tmp_path / "study"]).summary() == whole


def test_a_header_with_a_truth_value_for_a_size_is_refused(tmp_path: Path) -> None:
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (True, 2)}\n"
    path = tmp_path / "own.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + b"\0" * 64)
    with pytest.raises(UserError, match=r"a header promises an array of shape \(True, 2\)"):
        read_arrays(path)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("  two\n  lines\t", "two lines"),
        ("\x1b[31mred \x7f \u202e \udcff", r"\x1b[31mred \x7f \u202e \udcff"),
        ("θ ≥ 0 … ‖Δ‖", "θ ≥ 0 … ‖Δ‖"),
    ],
)
def test_a_message_is_one_line_for_any_terminal(message: str, line: str) -> None:
    assert readable(message) == line
    assert str(UserError(message)) == line


def test_a_long_message_keeps_its_ends() -> None:
    line = readable("begin" + "x" * 100_000 + "end")
    assert len(line) < MOST
    assert line.startswith("begin")
    assert line.endswith("end")
    assert "(100,008 characters)" in line
    assert shown(Nameless()) == "an object of type Nameless"
