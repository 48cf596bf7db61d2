"""What is on the screen and in a pipe: results on standard output, all else beside it, nothing cut or broken."""

from __future__ import annotations

import inspect
import io
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import headway
from conftest import SMALL, norm_free, unequal_clients
from headway.cli import listing, main
from headway.engine.serial import Serial
from headway.methods.catalogue import METHODS, MODIFIERS
from headway.methods.method import Method
from headway.runs.progress import Bar
from headway.tasks.known import classification, tokens
from headway.tasks.task import Task

LITTLE = "--model linear --rounds 2 --clients 10 --steps 1 --device cpu --eval-samples 50"


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def said(command: str) -> Any:
    """The answer to a command whose output is piped."""
    return CliRunner().invoke(main.app, shlex.split(command), catch_exceptions=False)


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    """The exit code of the whole program."""
    monkeypatch.setattr(sys, "argv", ["headway", *arguments])
    with pytest.raises(SystemExit) as end:
        main.main()
    return end.value.code


def terminal(width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False)


def shown(console: Console) -> list[str]:
    """Every line that was on a terminal, without its colours."""
    assert isinstance(console.file, io.StringIO)
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue()).strip())


# ── the catalogue ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def listed() -> listing.Listing:
    return listing.listing()


def test_piped_methods_have_their_equations_in_one_line(listed: listing.Listing) -> None:
    lines = said("methods").stdout.splitlines()
    for entry in listed["methods"]:
        assert any(entry["equations"] in line for line in lines if line.split()[:1] == [entry["name"]])
    for name in MODIFIERS:
        assert any(line.split()[:1] == [f"+{name}"] for line in lines)


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_cuts_no_equation(width: int, listed: listing.Listing) -> None:
    console = terminal(width)
    console.print(listing.table(listed))
    every = "".join(entry["equations"] for entry in listed["methods"])
    assert "".join(shown(console)).count("…") == every.count("…")


@pytest.mark.parametrize("name", METHODS)
def test_piped_show_breaks_no_line(name: str) -> None:
    lines = said(f"show {name}").stdout.splitlines()
    for line in (inspect.getdoc(METHODS[name].build) or "").splitlines():
        assert line in lines


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_in_a_pipe_prints_results_only_on_standard_output(tmp_path: Path) -> None:
    answer = said(f"run fedprox:mu=0.001+acg:lam=0.8 {LITTLE} --executor serial --out {tmp_path / 'run'}")
    assert answer.exit_code == 0
    assert answer.stderr.splitlines() == [
        "task: classification of 10 classes, cross-entropy, accuracy",
        "fedprox:mu=0.001+acg:lam=0.8 · seed 0 · serial: 2 rounds",
    ]
    assert f"run: {tmp_path / 'run'}\n" in answer.stdout
    assert " · seed 0" not in answer.stdout


def test_failed_candidates_of_a_sweep_are_reported_on_standard_error(tmp_path: Path) -> None:
    answer = said(
        f"sweep fedavg --grid rate=0.1,1e30 --clip 0 {LITTLE} --executor serial --quiet --out {tmp_path / 'sweep'}"
    )
    assert answer.exit_code == 0
    assert re.search(r"^headway: .*diverged", answer.stderr, re.MULTILINE)
    assert "headway: " not in answer.stdout
    assert "best: headway run" in answer.stdout


@pytest.mark.parametrize(
    ("command", "worker"),
    [
        ("sweep fedacg --grid lam=0.8,0.85,0.9", "headway.tuning.sweep.sweep"),
        ("reproduce fedacg/table-1a --scale tiny --data cifar10", "headway.papers.reproduce.reproduce"),
    ],
)
def test_a_command_to_copy_after_ctrl_c_is_one_line_on_standard_error(
    command: str,
    worker: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, stop)
    arguments = [*command.split(), "--rounds", "7", "--out", str(tmp_path / ("a long name " * 10))]
    assert ended(monkeypatch, *arguments) == 130
    told = capsys.readouterr()
    assert f"headway {shlex.join(arguments)}\n" in told.err
    assert told.out == ""


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--rounds 1.5", "--rounds is '1.5'; it must be an integer"),
        ("--batch-size many", "--batch-size is 'many'; it must be an integer"),
        ("--rate fast", "--rate is 'fast'; it must be a number"),
    ],
)
def test_what_is_no_number_is_one_plain_line(
    flags: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "run", "fedavg", *flags.split()) == 2
    assert capsys.readouterr().err == f"headway: {words}\n"


# ── a finished run ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", ["fedacg", Method(name="mine")])
def test_resume_of_a_finished_run_with_own_objects_is_its_table(method: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = headway.simulate(
        method, SMALL, model=norm_free(), out=folder, executor="serial", precision="fp32", **unequal_clients()
    )
    answer = said(f"resume {folder}")
    assert answer.exit_code == 0
    assert answer.stderr == f"headway: {folder} is finished; nothing is left to do\n"
    assert result.method in answer.stdout
    assert f"{100 * result.summary['accuracy']:.2f}" in answer.stdout
    assert f"run: {folder}\n" in answer.stdout


def test_resume_of_a_finished_comparison_with_own_objects_is_its_table(tmp_path: Path) -> None:
    folder, own = tmp_path / "both", {"model": norm_free(), **unequal_clients()}
    scenario = SMALL.changed(executor="serial", precision="fp32")
    headway.compare(["fedavg", Method(name="mine")], scenario, out=folder, **own)
    answer = said(f"resume {folder}")
    assert answer.exit_code == 0
    assert "mine" in answer.stdout
    assert answer.stderr == f"headway: {folder} is finished; nothing is left to do\n"


# ── the terminal ─────────────────────────────────────────────────────────────────────────────────────────────────────


TASK = "classification of 10 classes, cross-entropy, accuracy"


def begun(bar: Bar, method: str = "fedacg", task: Task = classification) -> None:
    scenario = SimpleNamespace(seed=0, rounds=10)
    experiment = SimpleNamespace(method=SimpleNamespace(name=method), scenario=scenario, task=task, task_in_words=TASK)
    bar.begins(experiment, 0, "batched")  # type: ignore[arg-type]


def test_the_bar_shows_the_headline_of_the_task() -> None:
    console = terminal(100)
    with Bar(console, quiet=False) as bar:
        begun(bar, task=tokens)
        passed = {"seconds_training": 0.1, "seconds_evaluation": 0.0}
        bar.round({"round": 10, **passed, "accuracy": 0.1, "perplexity_smoothed": 12.3456})
    assert "perplexity 12.35" in shown(console)[-1]


@pytest.mark.parametrize("seconds", [0.08, 12.3])
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_narrow_terminal_shortens_the_label_and_not_the_numbers(width: int, seconds: float) -> None:
    console = terminal(width)
    with Bar(console, quiet=False) as bar:
        begun(bar, "fedprox:mu=0.1+acg:lam=0.9")
        bar.round({"round": 10, "seconds_training": seconds, "seconds_evaluation": 0.0, "accuracy_smoothed": 0.4567})
    last = shown(console)[-1]
    assert last.startswith("fedprox:m")
    assert "10/10 rounds" in last
    assert ("12.5/s" if seconds < 1 else "12.3 s each") in last
    assert ("smoothed accuracy 45.7%" if width >= 100 else "accuracy 45.7%") in last
    assert len(last) <= width


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_bar_of_several_runs_says_how_far_they_are_together(width: int) -> None:
    """Two runs of 10 rounds: 12 are done and took 2 s each, so 8 are left, which is 16 s."""
    console = terminal(width)
    passed = {"seconds_training": 1.5, "seconds_evaluation": 0.5, "accuracy_smoothed": 0.5}
    with Bar(console, quiet=False, runs=2) as bar:
        begun(bar, "fedavg")
        for number in range(1, 11):
            bar.round({"round": number, **passed})
        begun(bar, "fedacg")
        for number in (1, 2):
            bar.round({"round": number, **passed})
        bar.progress.refresh()
    first, *runs = shown(console)[-3:]
    assert re.match(r"run 2 of 2 .*\b12/20.* 0:16\s*$", first), first
    assert [line.split()[0] for line in runs] == ["fedavg", "fedacg"]
    assert all("accuracy 50.0%" in line for line in runs)


def test_one_run_has_no_second_line() -> None:
    console = terminal()
    with Bar(console, quiet=False, runs=1) as bar:
        begun(bar)
    assert not any("run 1" in line for line in shown(console))


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stopwatch: the choice is the serial executor."""
    monkeypatch.setattr("headway.runs.execution.choose", lambda experiment, *_: Serial(experiment))


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("run fedavg", True),
        ("compare fedavg fedacg", True),
        ("sweep fedacg --grid lam=0.5,0.8", True),
        ("run fedavg --executor serial", False),
        ("run fedavg --quiet", False),
        ("run fedavg --json", False),
        ("sweep fedacg --grid lam=0.5,0.8 --json", False),
    ],
)
def test_the_choice_of_an_executor_is_on_the_terminal(
    command: str, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = terminal()
    for place in ("main", "sweep"):
        monkeypatch.setattr(f"headway.cli.{place}.stderr_console", lambda: console)
    assert said(f"{command} {LITTLE} --out {tmp_path / 'run'}").exit_code == 0
    lines = shown(console)
    assert any("choosing an executor" in line for line in lines) == told
    assert "choosing an executor" not in lines[-1]


def test_the_choice_of_an_executor_is_not_in_a_pipe() -> None:
    console = Console(file=io.StringIO(), width=80)
    with Bar(console, quiet=False, choosing=True) as bar:
        begun(bar)
    assert shown(console) == [f"task: {TASK}", "fedacg · seed 0 · batched: 10 rounds"]


def test_nothing_is_left_of_the_choice_when_it_is_interrupted() -> None:
    console = terminal()
    with pytest.raises(KeyboardInterrupt), Bar(console, quiet=False, choosing=True):
        raise KeyboardInterrupt
    assert "choosing an executor" in shown(console)[0]
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().endswith("\x1b[2K"), "its line is erased"
