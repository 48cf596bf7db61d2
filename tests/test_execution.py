"""Equal commands give equal numbers: the executor that a stopwatch chose is remembered, and so are the threads."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import headway as hw
from conftest import experiment
from headway.bench.measure import HeadwayEngine
from headway.engine import selection
from headway.engine.executor import CannotExecute, Executor
from headway.engine.selection import choose
from headway.runs import execution
from headway.runs.files import read_json, write_checked
from headway.runs.progress import Bar
from test_resume_with_changes import Stopping

QUICK: dict[str, Any] = {"rounds": 1, "clients": 6, "model": "linear", "steps": 1, "device": "cpu"}
Fastest = Callable[[str], None]


@pytest.fixture
def fastest(monkeypatch: pytest.MonkeyPatch) -> Fastest:
    """A stopwatch that finds the executor of this name the fastest."""
    return lambda name: monkeypatch.setattr(selection, "_seconds", lambda hand, *_: float(hand.name != name))


def cache() -> Path:
    return Path(os.environ["HEADWAY_CACHE"]) / "executors"


def chosen(**settings: Any) -> str:
    """What an observer gets when the run begins."""
    seen = Stopping()
    hw.simulate("fedavg", observer=seen, **{**QUICK, **settings})
    return seen.executor


def test_two_equal_commands_give_equal_numbers(fastest: Fastest) -> None:
    """Whatever a stopwatch would say the second time."""
    fastest("batched")
    first = hw.simulate("fedavg", **{**QUICK, "rounds": 2})
    fastest("serial")
    second = hw.simulate("fedavg", **{**QUICK, "rounds": 2})
    assert (first.executor, second.executor) == ("batched", "batched")
    assert [one["train_loss"] for one in first.records] == [one["train_loss"] for one in second.records]
    assert all(torch.equal(first.model.state_dict()[name], leaf) for name, leaf in second.model.state_dict().items())


def test_the_choice_is_reported_and_kept_in_the_folder(fastest: Fastest, tmp_path: Path) -> None:
    fastest("batched")
    assert chosen() == "batched (measured)"
    assert chosen(out=tmp_path / "run") == "batched (remembered)"
    assert read_json(tmp_path / "run" / "checkpoint" / "manifest.json")["executor"] == "batched"
    assert read_json(tmp_path / "run" / "summary.json")["executor"] == "batched"
    assert chosen(executor="serial") == "serial"  # asked for by its name


@pytest.mark.parametrize("how", ["measured", "remembered"])
def test_the_choice_is_a_line_with_the_flag_that_repeats_it(how: str) -> None:
    console = Console(file=io.StringIO(), width=200)
    with Bar(console, quiet=False) as bar:
        for _ in range(2):
            bar.begins(experiment("fedacg"), 0, f"pool ({how})")
    assert isinstance(console.file, io.StringIO)
    lines = [line for line in console.file.getvalue().splitlines() if not line.startswith("task: ")]
    line = f"executor: pool ({how}); --executor pool gives the same numbers elsewhere too"
    assert lines == [line, *["fedacg · seed 0 · pool: 4 rounds"] * 2]


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        ({"seed": 3, "rate": 0.3, "target": 0.9, "eval_every": 2}, True),
        ({"batch_size": 7}, False),
        ({"model": "mlp"}, False),
        ({"clients": 8}, False),
        ({"participation": 0.5}, False),
        ({"precision": "fp64"}, False),
        ({"rounds": 2}, False),
    ],
)
def test_it_is_remembered_for_the_same_work_only(settings: dict[str, Any], same: bool, fastest: Fastest) -> None:
    fastest("batched")
    chosen()
    fastest("serial")
    assert chosen(**settings) == ("batched (remembered)" if same else "serial (measured)")


def test_another_method_or_machine_is_other_work(fastest: Fastest, monkeypatch: pytest.MonkeyPatch) -> None:
    fastest("batched")
    chosen()
    fastest("serial")
    assert hw.simulate("fedprox", **QUICK).executor == "serial"
    torch.set_num_threads(2)
    assert chosen() == "serial (measured)"
    torch.set_num_threads(1)
    monkeypatch.setattr(execution, "processor", lambda: "another processor")
    assert chosen() == "serial (measured)"


def mine(w: hw.Vector, output: Any, step: Any) -> torch.Tensor:
    return 1e-4 * w.dot(w)


def test_a_method_of_ones_own_is_known_again(fastest: Fastest) -> None:
    """Where its functions lie in memory does not count."""
    kinds = [hw.Method(objective=mine, server=hw.momentum(0.5), name="mine") for _ in range(2)]
    fastest("batched")
    hw.simulate(kinds[0], **QUICK)
    fastest("serial")
    assert hw.simulate(kinds[1], **QUICK).executor == "batched"


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "empty": lambda file: file.write_bytes(b""),
    "no JSON": lambda file: file.write_bytes(b"\xff{"),
    "nested deeply": lambda file: file.write_bytes(b"[" * 100_000),
    "edited": lambda file: file.write_text(file.read_text().replace('"batched"', '"pool"')),
    "no such executor": lambda file: write_checked(file, {**read_json(file), "executor": "cereal"}),
    "of a GPU": lambda file: write_checked(file, {**read_json(file), "executor": "graphed:stacked"}),
    "not a name": lambda file: write_checked(file, {**read_json(file), "executor": ["batched"]}),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_cache_is_measured_anew(name: str, fastest: Fastest) -> None:
    fastest("batched")
    chosen()
    [file] = cache().iterdir()
    DAMAGE[name](file)
    fastest("serial")
    assert chosen() == "serial (measured)"
    assert not list(cache().glob("*.part"))


@pytest.fixture
def unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache below a file: also who may write everything cannot make it."""
    (tmp_path / "file").touch(stat.S_IRUSR)
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "file" / "cache"))


@pytest.mark.usefixtures("unwritable")
def test_without_a_cache_the_stopwatch_decides(fastest: Fastest) -> None:
    for name in ("batched", "serial"):
        fastest(name)
        assert chosen() == f"{name} (measured)"


def test_an_executor_that_no_longer_takes_the_work_is_chosen_anew(
    fastest: Fastest, monkeypatch: pytest.MonkeyPatch
) -> None:
    fastest("batched")
    chosen()
    fastest("serial")
    real = selection.make_executor

    def refusing(name: str, chosen: Any) -> Executor:
        if name == "batched":
            raise CannotExecute("not any more")
        return real(name, chosen)

    monkeypatch.setattr(selection, "make_executor", refusing)
    assert chosen() == "serial (measured)"
    assert chosen() == "serial (remembered)"


def test_what_is_measured_for_its_own_sake_is_not_remembered(fastest: Fastest) -> None:
    """The benchmark's `auto` chooses by its own stopwatch, and a deterministic run by none."""
    fastest("batched")
    chosen()
    fastest("serial")
    engine = HeadwayEngine(experiment("fedavg"), "auto")
    assert engine.executor.name == "serial"
    engine.close()
    choose(experiment("fedavg"), "auto", lambda _: None).close()
    [_] = cache().iterdir()
    assert chosen(deterministic=True, rounds=2) == "batched"
    [_] = cache().iterdir()


# Threads.

REPEATED = {**QUICK, "rounds": 2, "executor": "serial", "deterministic": True}


def test_a_deterministic_run_goes_on_with_the_threads_it_began_with(tmp_path: Path) -> None:
    """One begun on two threads and resumed by a process of one ends with the bits of one left alone."""
    torch.set_num_threads(2)
    whole = hw.simulate("fedavg", **REPEATED)
    with pytest.raises(KeyboardInterrupt):
        hw.simulate("fedavg", out=tmp_path / "run", checkpoint_every=1, observer=Stopping(1), **REPEATED)
    assert read_json(tmp_path / "run" / "checkpoint" / "manifest.json")["threads"] == 2
    torch.set_num_threads(1)
    assert hw.simulate("fedavg", **REPEATED).records[1]["loss"] != whole.records[1]["loss"], (
        "threads make no difference"
    )
    resumed = hw.resume(tmp_path / "run")
    assert torch.get_num_threads() == 1
    assert [one["loss"] for one in resumed.records] == [one["loss"] for one in whole.records]
    weights, expected = resumed.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert "2 threads" in read_json(tmp_path / "run" / "summary.json")["environment"]["hardware"]


def test_threads_are_given_back_after_a_failure_too(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    with pytest.raises(KeyboardInterrupt):
        hw.simulate("fedavg", out=tmp_path / "run", checkpoint_every=1, observer=Stopping(1), **REPEATED)
    torch.set_num_threads(1)
    with pytest.raises(KeyboardInterrupt):
        hw.resume(tmp_path / "run", observer=Stopping(2))
    assert torch.get_num_threads() == 1


def test_threads_of_other_runs_are_their_own_affair(tmp_path: Path) -> None:
    hw.simulate("fedavg", out=tmp_path / "run", executor="serial", **QUICK)
    assert read_json(tmp_path / "run" / "checkpoint" / "manifest.json")["threads"] is None
