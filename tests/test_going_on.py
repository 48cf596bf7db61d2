"""A run that goes on under other settings: more rounds, another target, another executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headway as hw
from headway.runs.run import lengthen

SMALL: dict[str, Any] = {"model": "mlp", "clients": 10, "steps": 2, "device": "cpu", "deterministic": True}


class Stopping:
    """Stops a run as Ctrl-C does, after a round."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.executor = ""

    def begins(self, world: Any, done: int, executor: str) -> None:
        self.executor = executor

    def tell(self, message: str) -> None: ...

    def round(self, record: dict[str, Any]) -> None:
        if record["round"] == self.at:
            raise KeyboardInterrupt


def stopped(folder: Path, at: int, **settings: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        hw.simulate("fedavg", out=folder, observer=Stopping(at), checkpoint_every=1, **SMALL, **settings)


def changed(folder: Path, **settings: tuple[str, str]) -> None:
    """Lines of the scenario's file, from one value to another."""
    path = folder / "scenario.toml"
    text = path.read_text()
    for name, (old, new) in settings.items():
        assert f"{name} = {old}" in text
        text = text.replace(f"{name} = {old}", f"{name} = {new}")
    path.write_text(text)


def test_another_target_is_judged_anew(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped(run, 3, rounds=6, target=0.1, executor="serial")
    changed(run, target=("0.1", "0.99"), stop_at_target=("false", "true"))
    result = hw.resume(run)
    assert len(result.records) == 6
    again = tmp_path / "again"
    stopped(again, 3, rounds=6, target=0.99, executor="serial")
    changed(again, target=("0.99", "0.01"), stop_at_target=("false", "true"))
    assert len(hw.resume(again).records) == 3


@pytest.mark.parametrize("method", ["fedavg", "fedacg"])
def test_a_lengthened_run_is_one_that_was_long_from_the_start(method: str, tmp_path: Path) -> None:
    """An evaluation at a last round that is none of every third has no part in what comes after."""
    settings = {**SMALL, "eval_every": 3, "executor": "serial"}
    short = hw.simulate(method, out=tmp_path / "run", rounds=4, **settings)
    assert "accuracy_smoothed" in short.records[3]
    lengthen(tmp_path / "run", 9)
    longer, whole = hw.resume(tmp_path / "run"), hw.simulate(method, rounds=9, **settings)
    assert [longer.records[at]["accuracy_smoothed"] for at in (5, 8)] == [
        whole.records[at]["accuracy_smoothed"] for at in (5, 8)
    ]


def test_another_executor_is_taken_where_one_is_asked_for(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped(run, 2, rounds=3, executor="batched")
    changed(run, executor=('"batched"', '"serial"'))
    seen = Stopping()
    hw.resume(run, observer=seen)
    assert seen.executor == "serial"
    other = tmp_path / "other"
    stopped(other, 2, rounds=3, executor="batched")
    changed(other, executor=('"batched"', '"auto"'))
    hw.resume(other, observer=seen)
    assert seen.executor == "batched"
