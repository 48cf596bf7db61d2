"""How commands end where the machine fails or a signal comes: one line, an exit code, and how to go on."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headway as hw
from conftest import SMALL, experiment, norm_free, unequal_clients
from headway.cli import main as commands
from headway.cli.screen import stderr_console
from headway.errors import MachineError, UserError
from headway.random import built
from headway.runs.folder import failure
from headway.runs.given import split_settings
from headway.runs.observer import Unwatched
from headway.runs.progress import Bar
from headway.runs.resume import lengthen
from headway.scenario import Scenario

LITTLE = "--model linear --rounds 4 --clients 20 --steps 1 --device cpu --executor serial --checkpoint-every 1 --quiet"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """A command in this process: its exit code and what it wrote on standard error."""

    def ended(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["headway", *arguments])
        with pytest.raises(SystemExit) as end:
            commands.main()
        assert isinstance(end.value.code, int)
        return end.value.code, capsys.readouterr().err

    return ended


def one_line(answer: tuple[int, str], code: int = 1) -> str:
    assert answer[0] == code, answer
    assert answer[1].count("\n") == 1, answer
    assert answer[1].startswith("headway: ")
    return answer[1].removeprefix("headway: ").rstrip("\n")


# ── the disk ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """A small separate file system."""
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def numbers(folder: Path) -> list[tuple[Any, ...]]:
    return [(record["round"], record["train_loss"], record["accuracy"]) for record in hw.load_run(folder).records]


def test_a_full_disk_is_one_line_and_the_run_goes_on_once_there_is_room(command: Any, tmp_path: Path) -> None:
    command("run", "fedavg", *LITTLE.split(), "--out", str(tmp_path / "whole"))
    with mounted(tmp_path / "disk", "size=88k") as disk:
        folder = disk / "run"
        line = one_line(command("run", "fedavg", *LITTLE.split(), "--out", str(folder)))
        assert line.startswith("No space left on device")
        assert line.endswith(f"; go on with: headway resume {folder}")
        assert "failure" not in str(list(folder.glob("summary.json")))
        subprocess.run(["mount", "-o", "remount,size=10m", disk], check=True)
        assert command("resume", str(folder), "--quiet") == (0, "")
        assert numbers(folder) == numbers(tmp_path / "whole")


def test_a_limit_on_the_size_of_files_is_one_line(command: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with files_of_at_most(20_000):
        line = one_line(command("run", "fedavg", *LITTLE.split(), "--out", str(folder)))
    assert line == f"File too large; go on with: headway resume {folder}"
    assert command("resume", str(folder), "--quiet") == (0, "")


def test_a_read_only_file_system_is_one_line(command: Any, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=10m") as disk:
        folder = disk / "run"
        command("run", "fedavg", *LITTLE.split(), "--out", str(folder))
        lengthen(folder, 5)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        line = one_line(command("resume", str(folder), "--quiet"))
        assert line.startswith("Read-only file system")
        assert line.endswith(f"headway resume {folder}")
        assert "Read-only file system" in one_line(command("report", str(folder), "--out", str(disk / "new")), 2)
        assert "Read-only file system" in one_line(command("export", str(folder)), 2)


def test_a_name_that_is_too_long_is_one_line(command: Any) -> None:
    for words in (["run", "fedavg", *LITTLE.split(), "--out"], ["report"]):
        line = one_line(command(*words, "n" * 300), 2)
        assert "no file can have this name" in line
        assert len(line) < 200


def test_a_folder_that_is_removed_during_a_run_is_one_line(command: Any, tmp_path: Path, monkeypatch: Any) -> None:
    def remove(self: Bar, record: dict[str, Any]) -> None:
        if record["round"] == 2:
            (tmp_path / "run").rename(tmp_path / "elsewhere")

    monkeypatch.setattr(Bar, "round", remove)
    line = one_line(command("run", "fedavg", *LITTLE.split(), "--out", str(tmp_path / "run")))
    assert line.startswith("No such file or directory: ")
    assert "resume" not in line, "there is nothing to resume"


def test_an_argument_that_is_not_utf_8_is_refused(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = one_line(command("run", "fedavg", *LITTLE.split(), "--out", "run\udcff"), 2)
    assert "not UTF-8" in line
    assert r"\udcff" in line
    assert not list(tmp_path.iterdir())


def test_a_setting_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(UserError, match=r"data_dir is 'data\\udcff'; it must be UTF-8 text"):
        Scenario(data_dir="data\udcff")


# ── standard output and standard error ───────────────────────────────────────────────────────────────────────────────


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line.replace("headway scenario", f"{sys.executable} -m headway scenario")],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("headway scenario >/dev/full", "standard output or a file cannot be written: No space left on device"),
        ("headway scenario >&-", "standard output is closed; give it a place, such as > /dev/null"),
        ("{ headway scenario; echo $? >&2; } | true", "standard output or a file cannot be written: Broken pipe"),
    ],
)
def test_standard_output_that_is_gone_is_one_line(line: str, says: str, tmp_path: Path) -> None:
    answer = shell(line, tmp_path)
    first, *rest = answer.stderr.splitlines()
    assert first == f"headway: {says}"
    assert rest == (["1"] if "echo" in line else [])
    assert "echo" in line or answer.returncode == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_goes_on_without_standard_error(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed terminal or a full log must not end hours of work."""

    class Full(io.StringIO):
        def isatty(self) -> bool:
            return terminal

        def write(self, text: str) -> int:
            with open("/dev/full", "wb", buffering=0) as full:
                return full.write(text.encode())

    monkeypatch.setattr(sys, "stderr", Full())
    with pytest.raises(OSError, match="No space left"):
        print("a line", file=sys.stderr)
    console = stderr_console()
    assert console.is_terminal == terminal
    with Bar(console, quiet=False, choosing=True) as bar:
        given = {"model": built(norm_free, 7, "test"), **unequal_clients()}
        result = hw.simulate("fedavg", SMALL, observer=bar, executor="serial", **given)
        bar.tell("something")
    assert len(result.records) == SMALL.rounds


def test_no_file_of_a_run_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """What a library writes to number 2 would stand in the middle of it."""
    program = "import os; from headway.cli.ending import answered; answered(lambda: print(os.open('file', os.O_CREAT)))"
    assert int(shell(f'{sys.executable} -c "{program}" 2>&-', tmp_path).stdout) > 2


# ── memory and workers ───────────────────────────────────────────────────────────────────────────────────────────────


def test_too_little_memory_is_one_line(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file stays as short as the scenario is small: what is asked for is more than any machine has."""

    def much(self: Bar, record: dict[str, Any]) -> None:
        torch.empty(1 << 60, dtype=torch.uint8)

    monkeypatch.setattr(Bar, "round", much)
    folder = tmp_path / "run"
    line = one_line(command("run", "fedavg", *LITTLE.split(), "--out", str(folder)))
    assert line.startswith("there is too little memory (")
    assert line.endswith(f"headway resume {folder}")


def test_a_killed_worker_is_one_line_and_loses_nothing(command: Any, tmp_path: Path, monkeypatch: Any) -> None:
    given = LITTLE.replace("serial", "pool").replace("every 1", "every 4").split()
    command("run", "fedavg", *given, "--deterministic", "--out", str(tmp_path / "whole"))
    folder, killed = tmp_path / "run", []

    def kill(self: Bar, record: dict[str, Any]) -> None:
        import multiprocessing

        if record["round"] == 3:
            worker = multiprocessing.active_children()[0]
            killed.append(worker.pid)
            os.kill(worker.pid or 0, signal.SIGKILL)
            worker.join()

    with monkeypatch.context() as patched:
        patched.setattr(Bar, "round", kill)
        line = one_line(command("run", "fedavg", *given, "--deterministic", "--out", str(folder)))
    assert line == (
        f"worker process {killed[0]} was killed by SIGKILL, as the system does where memory runs out; "
        f"--executor serial needs least memory; go on with: headway resume {folder}"
    )
    assert hw.load_run(folder).records[-1]["round"] == 3, "the last good round is saved"
    assert command("resume", str(folder), "--quiet") == (0, "")
    assert numbers(folder) == numbers(tmp_path / "whole")


# ── signals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_ends_a_run_with_a_line(
    times: int, number: signal.Signals, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(self: Bar, record: dict[str, Any]) -> None:
        if record["round"] == 2:
            for _ in range(times):
                os.kill(os.getpid(), number)

    monkeypatch.setattr(Bar, "round", ask)
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    folder = tmp_path / "run"
    code, said = command("run", "fedavg", *LITTLE.split(), "--out", str(folder))
    assert code == 128 + number
    assert said.splitlines()[-1] == f"headway: stopped; go on with: headway resume {folder}"
    assert len(hw.load_run(folder).records) == 2
    assert before == [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


def test_a_second_ctrl_c_during_a_checkpoint_loses_nothing(command: Any, tmp_path: Path, monkeypatch: Any) -> None:
    command("run", "fedavg", *LITTLE.split(), "--out", str(tmp_path / "whole"))
    folder, replace = tmp_path / "run", os.replace

    def asked(old: Any, new: Any) -> None:
        if "server-0000002" in str(new):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
        replace(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", asked)
        code, said = command("run", "fedavg", *LITTLE.split(), "--out", str(folder))
    assert (code, said.splitlines()[-1]) == (130, f"headway: stopped; go on with: headway resume {folder}")
    assert command("resume", str(folder), "--quiet") == (0, "")
    assert numbers(folder) == numbers(tmp_path / "whole")


def test_who_ignores_a_hangup_goes_on(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As nohup asks."""
    monkeypatch.setattr(Bar, "round", lambda self, record: os.kill(os.getpid(), signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert command("run", "fedavg", *LITTLE.split(), "--out", str(tmp_path / "run")) == (0, "")
    finally:
        signal.signal(signal.SIGHUP, before)


INTERRUPTED = """
import os, runpy, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.{signal})

sys.meta_path.insert(0, Finder())
sys.argv = ["headway", "run", "fedavg"]
runpy.run_module("headway", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("module", "number"), [("typer", "SIGINT"), ("torch", "SIGINT"), ("numpy.dtypes", "SIGINT"), ("torch", "SIGHUP")]
)
def test_a_signal_during_imports_is_one_line(module: str, number: str, tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(module=module, signal=number)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stderr == "headway: stopped\n"
    assert answer.returncode == 128 + getattr(signal, number)


# ── what is asked for ────────────────────────────────────────────────────────────────────────────────────────────────

ENDLESS = "9" * 100_000


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--client-state-mb 1e308", "client_state_mb is 1e+308; it must be at most"),
        ("--weight-decay 1e308", "weight_decay is 1e+308; it must be at most"),
        ("--rate 1e308", "rate is 1e+308; it must be at most"),
        ("--seeds 1000000000", "seeds is 1000000000; it must be at most 10000"),
        ("--steps 2147483648", "steps is 2147483648; it must be at most"),
        ("--steps 900000000", "steps is 900000000: a client of"),
        ("--epochs 900000000", "epochs is 900000000: a client of"),
        ("--rounds 1000000000000", "rounds is 1000000000000; it must be at most"),
        ("--clients 1000000000000", "clients is 1000000000000"),
        (f"--rounds {ENDLESS}", "--rounds is '999"),
        (f"--rate 0x{ENDLESS}", "--rate is '0x999"),
    ],
)
def test_what_no_machine_could_do_is_refused_at_once(words: str, says: str, command: Any, tmp_path: Path) -> None:
    line = one_line(command("run", "fedavg", *words.split(), "--out", str(tmp_path / "run")), 2)
    assert line.startswith(says)
    assert len(line) < 250
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"rounds = {ENDLESS}", "is not valid TOML"),
        (f"rounds = 0x{ENDLESS}", "rounds is a whole number of about 120"),
        (f"rounds = {'[' * 5000}{']' * 5000}", "nested too deeply"),
    ],
)
def test_an_absurd_scenario_file_is_one_line(text: str, says: str, command: Any, tmp_path: Path) -> None:
    (tmp_path / "absurd.toml").write_text(text)
    line = one_line(command("run", "fedavg", "--scenario", str(tmp_path / "absurd.toml")), 2)
    assert says in line
    assert len(line) < 600


def test_bernoulli_cohorts_of_a_billion_rounds_are_not_all_drawn() -> None:
    chosen = experiment("fedavg", sampling="bernoulli", rounds=10**9)
    assert chosen.sampling.most(10**9) == 6


# ── misuse from Python ───────────────────────────────────────────────────────────────────────────────────────────────


def test_numbers_of_numpy_are_what_they_are() -> None:
    given: dict[str, Any] = {"rounds": np.int64(3), "rate": np.float32(0.25), "deterministic": np.bool_(True)}
    chosen = Scenario(**given, model=np.str_("mlp"))
    assert (chosen.rounds, chosen.rate, chosen.deterministic, chosen.model) == (3, 0.25, True, "mlp")
    assert [type(value) for value in (chosen.rounds, chosen.rate, chosen.deterministic)] == [int, float, bool]
    assert hw.scenario(chosen.as_toml() and "", **given).rounds == 3
    with pytest.raises(UserError, match=r"rounds is 3\.5"):
        Scenario(rounds=np.float64(3.5))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="rounds is True"):
        Scenario(rounds=np.bool_(True))  # type: ignore[arg-type]
    settings, objects = split_settings({}, model=None, clients=np.int64(20), test=None)
    assert (settings, objects) == ({"clients": 20}, {})


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: hw.simulate("fedavg", SMALL, out=5), "out is 5; it must be a path"),  # type: ignore[arg-type]
        (lambda: hw.compare(["fedavg"], SMALL, out=5), "out is 5; it must be a path"),  # type: ignore[arg-type]
        (lambda: hw.sweep("fedavg", {"rate": [0.1]}, SMALL, out=5), "out is 5; it must be a path"),  # type: ignore[arg-type]
        (lambda: hw.resume(5), "run is 5; it must be a path"),  # type: ignore[arg-type]
        (lambda: hw.load_run(None), "run is None; it must be a path"),  # type: ignore[arg-type]
    ],
)
def test_a_place_that_is_no_path_is_refused(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        call()


def test_overlapping_deterministic_runs_leave_the_mode_as_it_was() -> None:
    """The first to begin is the first to end: it must neither end the mode of the other nor leave it on."""
    chosen, begun, go = experiment("fedavg", deterministic=True), threading.Event(), threading.Event()

    def second() -> None:
        with chosen.arithmetic():
            begun.set()
            go.wait(60)

    thread = threading.Thread(target=second)
    with chosen.arithmetic():
        thread.start()
        assert begun.wait(60)
    try:
        assert torch.are_deterministic_algorithms_enabled(), "the other run still needs it"
    finally:
        go.set()
        thread.join()
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_machine_error_is_not_a_failure_of_the_run(tmp_path: Path) -> None:
    class Broken(Unwatched):
        def round(self, record: dict[str, Any]) -> None:
            raise MachineError("no luck")

    folder = tmp_path / "run"
    given = {"model": built(norm_free, 7, "test"), **unequal_clients()}
    with pytest.raises(MachineError):
        hw.simulate("fedavg", SMALL, out=folder, observer=Broken(), executor="serial", **given)
    assert failure(folder) is None
