"""A run keeps its split, and goes on only with the data and the split it began with."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headway as hw
from conftest import SMALL, norm_free, unequal_clients
from headway.errors import UserError
from headway.runs.start import simulate

QUICK: dict[str, Any] = {"rounds": 2, "clients": 8, "model": "linear", "device": "cpu", "executor": "serial"}


def begun(folder: Path, **settings: Any) -> Path:
    hw.simulate("fedavg", out=folder, **{**QUICK, **settings})
    (folder / "summary.json").unlink()  # as a run that was stopped before its end
    return folder


def test_the_split_is_in_the_folder_and_equal_runs_have_equal_bytes(tmp_path: Path) -> None:
    first, second = (begun(tmp_path / name, precision="fp64") for name in ("one", "two"))
    assert (first / "split.npz").read_bytes() == (second / "split.npz").read_bytes()
    from headway.data import partition, sources

    expected = partition.split("dirichlet:0.3", sources.load("fashion", None).train.y.numpy(), 8, 0)
    with np.load(first / "split.npz", allow_pickle=False) as held:
        ends = np.cumsum([0, *held["sizes"]])
        rows = [held["rows"][start:stop] for start, stop in itertools.pairwise(ends)]
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(rows, expected, strict=True))


def data(path: Path, seed: int) -> str:
    draw = np.random.default_rng(seed)
    x, y = draw.normal(size=(60, 4)), draw.integers(0, 3, 60)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    return f"npz:{path}"


def test_other_data_is_refused(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run", data=data(tmp_path / "mine.npz", 0))
    hw.resume(folder)
    (folder / "summary.json").unlink()
    data(tmp_path / "mine.npz", 1)
    changed = "the split, the training samples, the training targets, the test samples, the test targets"
    with pytest.raises(
        UserError, match=rf"^the data 'npz:.*' is not what .*run was run with: {changed} changed; start"
    ):
        hw.resume(folder)


def test_another_split_is_refused(tmp_path: Path) -> None:
    lists = tmp_path / "mine.json"
    lists.write_text("[[0, 1, 2], [3, 4, 5]]")
    folder = begun(tmp_path / "run", partition=f"file:{lists}", clients=2)
    lists.write_text("[[0, 1], [2, 3, 4, 5]]")
    with pytest.raises(UserError, match=r"^the split 'file:.*' is not the one in .*split\.npz; start a new run"):
        hw.resume(folder)


def test_a_damaged_split_is_refused(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    (folder / "split.npz").write_bytes((folder / "split.npz").read_bytes()[:-40])
    with pytest.raises(UserError, match=r"split\.npz is damaged"):
        hw.resume(folder)


def test_a_run_killed_before_its_split_was_written_goes_on(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    written = (folder / "split.npz").read_bytes()
    (folder / "split.npz").unlink()
    hw.resume(folder)
    assert (folder / "split.npz").read_bytes() == written


def test_own_data_has_no_rows_to_keep(tmp_path: Path) -> None:
    simulate("fedavg", SMALL, model=norm_free(), out=tmp_path / "run", **unequal_clients())
    assert not (tmp_path / "run" / "split.npz").exists()
