"""A run that goes on under other settings: more rounds, another target, another executor."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import headway as hw
from headway.errors import UserError
from headway.runs.files import read_json, write_checked
from headway.runs.folder import sealed
from headway.runs.resume import lengthen

SMALL: dict[str, Any] = {"model": "mlp", "clients": 10, "steps": 2, "device": "cpu", "deterministic": True}


class Stopping:
    """Stops a run as Ctrl-C does, after a round."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.executor = ""

    def begins(self, experiment: Any, done: int, executor: str) -> None:
        self.executor = executor

    def tell(self, message: str) -> None: ...

    def round(self, record: dict[str, Any]) -> None:
        if record["round"] == self.at:
            raise KeyboardInterrupt


def stopped(folder: Path, at: int, **settings: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        hw.simulate("fedavg", out=folder, observer=Stopping(at), checkpoint_every=1, **SMALL, **settings)


def edited(folder: Path, **settings: tuple[str, str]) -> None:
    """Lines of the scenario's file, from one value to another, as a user writes them."""
    path = folder / "scenario.toml"
    text = path.read_text()
    for name, (old, new) in settings.items():
        assert f"{name} = {old}" in text
        text = text.replace(f"{name} = {old}", f"{name} = {new}")
    path.write_text(text)


def changed(folder: Path, **settings: Any) -> None:
    """The scenario's file as Headway writes it where it gives a run other settings."""
    (folder / "scenario.toml").write_bytes(sealed(hw.scenario(folder).changed(**settings)))


def test_another_target_is_judged_anew(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped(run, 3, rounds=6, target=0.1, executor="serial")
    changed(run, target=0.99, stop_at_target=True)
    result = hw.resume(run)
    assert len(result.records) == 6
    again = tmp_path / "again"
    stopped(again, 3, rounds=6, target=0.99, executor="serial")
    changed(again, target=0.01, stop_at_target=True)
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
    edited(run, executor=('"batched"', '"serial"'))
    seen = Stopping()
    hw.resume(run, observer=seen)
    assert seen.executor == "serial"
    other = tmp_path / "other"
    stopped(other, 2, rounds=3, executor="batched")
    edited(other, executor=('"batched"', '"auto"'))
    hw.resume(other, observer=seen)
    assert seen.executor == "batched"


def made_elsewhere(folder: Path, executor: str) -> None:
    """The checkpoint as if an executor of another device had made it."""
    path = folder / "checkpoint" / "manifest.json"
    write_checked(path, {**read_json(path), "executor": executor})


def test_a_choice_made_on_a_gpu_is_made_anew_on_a_cpu(tmp_path: Path) -> None:
    """Nobody asked for the GPU's executor by its name, so nothing is refused and nothing is said."""
    run = tmp_path / "run"
    stopped(run, 2, rounds=3, executor="auto")
    made_elsewhere(run, "graphed:stacked")
    assert hw.resume(run).executor == "batched"  # a warning would be an error


def stateless(name: str) -> hw.Method:
    return hw.Method(objective=hw.method("fedprox:mu=5").objective, name=name)


@pytest.mark.parametrize("other", [hw.method("fedprox:mu=5"), hw.method("fedavg+fedprox"), stateless("mine")])
def test_a_run_goes_on_with_its_own_method_only(other: hw.Method, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped(run, 2, rounds=3, executor="serial")
    for open_it in (hw.resume, hw.load_run):
        with pytest.raises(UserError, match=f"run with 'fedavg', not with '{re.escape(other.name)}'") as refused:
            open_it(run, method=other)
        assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match="has the name of the catalogue's 'fedavg'"):
        hw.resume(run, method=stateless("fedavg"))
    assert hw.resume(run, method=hw.method("fedavg")).method == "fedavg"


@pytest.mark.parametrize("again", ["fedacg", "fedacg:lam=0.85", "fedacg: lam = 0.850"])
def test_another_spelling_is_the_same_method(again: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    hw.simulate("fedacg", out=run, rounds=1, executor="serial", **SMALL)
    lengthen(run, 2)
    result = hw.resume(run, method=hw.method(again))
    assert (result.method, len(result.records)) == ("fedacg", 2)


@pytest.mark.parametrize("spelled", ["fedprox+acg:lam=0.9", "fedacg+fedpaq:bits=8"])
def test_a_composition_goes_on(spelled: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    hw.simulate(spelled, out=run, rounds=1, executor="serial", **SMALL)
    lengthen(run, 2)
    assert len(hw.resume(run, method=hw.method(spelled)).records) == 2


def test_an_own_method_goes_on_with_one_of_its_name(tmp_path: Path) -> None:
    run = tmp_path / "run"
    hw.simulate(stateless("mine"), out=run, rounds=1, executor="serial", **SMALL)
    lengthen(run, 2)
    with pytest.raises(UserError, match="run with 'mine', not with 'fedavg'"):
        hw.resume(run, method=hw.method("fedavg"))
    assert len(hw.resume(run, method=stateless("mine")).records) == 2
