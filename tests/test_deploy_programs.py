"""The programs of a server and of a site: alone in their state folder, with nothing left of them; starts take turns."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from command_line import called, environment, one_line, shell
from headway.cli import deploy_runs
from headway.deploy import guard, units
from headway.deploy.becoming import MARK
from headway.deploy.commands import DATABASE, Command
from headway.deploy.processes import wait_until
from headway.deploy.starts import Outcome, Start, Starts, keep_with
from headway.deploy.terms import Terms

LINUX = pytest.mark.skipif(not guard.sees_processes(), reason="there is no /proc here")
BECOME = """
import sys
from pathlib import Path
from headway.deploy.becoming import become
from headway.deploy.commands import Command
command = Command((sys.executable, "-c", sys.argv[1]), {"STATE": sys.argv[2]})
become(command, Path(sys.argv[2]) / "server.lock", "a server")
"""
FAMILY = """
import os, subprocess, sys, time
orphan = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(os.environ["HEADWAY_PROGRAM"], os.environ["STATE"], orphan.pid, flush=True)
time.sleep(600)
"""


def program(state: Path, code: str = FAMILY) -> subprocess.Popen[str]:
    """A program in the place of a Python, which starts another one in a session of its own."""
    command = [sys.executable, "-c", BECOME, code, str(state)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())


@LINUX
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_ends_with_all_that_it_started_however_it_ends(number: int, tmp_path: Path) -> None:
    one = program(tmp_path)
    assert one.stdout is not None
    token, state, orphan = one.stdout.readline().split()
    assert state == str(tmp_path)
    assert (tmp_path / "server.lock").read_text() == f"{one.pid}\n"
    mark = f"{MARK}={token}"
    assert set(guard.marked(mark)) == {one.pid, int(orphan)}
    with program(tmp_path) as other:
        said = other.communicate(timeout=60)[1]
    assert f"{tmp_path} is the state folder of a server that runs already, as process {one.pid}" in said
    assert set(guard.marked(mark)) == {one.pid, int(orphan)}
    one.send_signal(number)
    with one:
        one.wait(60)
        assert wait_until(lambda: not list(guard.marked(mark)), 30)
    with program(tmp_path, "print('alone')") as last:
        assert last.communicate(timeout=60)[0] == "alone\n"


# ── starts of runs take turns ────────────────────────────────────────────────────────────────────────────────────────

FLWR = """#!{python}
import json, os, pathlib, sys, time
state = pathlib.Path(os.environ["FLWR_HOME"]).parent
if sys.argv[1] == "run":
    name = sys.argv[sys.argv.index("--run-config") + 1].split('"')[1]
    time.sleep(1)
    with (state / "asked").open("a") as file:
        file.write(name + "\\n")
    (state / "starts" / (name + ".outcome")).write_text(json.dumps({{"code": 0, "line": ""}}))
    print(json.dumps({{"success": True, "run-id": 2}}))
else:
    now = "finished:completed" if sys.argv[sys.argv.index("--run-id") + 1] == "1" else "running"
    print(json.dumps({{"success": True, "runs": [{{"status": now}}]}}))
"""


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """The state folder of a server with a run that has ended; beside it its programs, of which `flwr` starts runs."""
    state = tmp_path / "server"
    state.mkdir(mode=0o700)
    (state / DATABASE).touch()
    Starts(state).write(
        Start("ab", "ward", str(tmp_path / "run"), Terms(1), superlink="h:1", authority="/ca", run_id=1, resume=True)
    )
    Starts(state).end("ab", Outcome(0))
    (tmp_path / "bin").mkdir()
    for name in ("flwr", "flower-superexec"):
        (tmp_path / "bin" / name).write_text(FLWR.format(python=sys.executable))
        (tmp_path / "bin" / name).chmod(0o755)
    return state


def test_of_two_commands_that_resume_a_run_at_once_one_is_refused(server: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headway", *shlex.split("deploy resume run --state server")]
    around = environment(PATH=f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    both = [
        subprocess.Popen(
            command, cwd=tmp_path, env=around, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
        )
        for _ in range(2)
    ]
    ended = [(one.communicate(timeout=120), one.returncode) for one in both]
    (_, good), ((_, said), bad) = sorted(ended, key=lambda one: one[1])
    assert (good, bad) == (0, 2), ended
    assert said.startswith("headway: run is running; follow it with headway deploy status run, or end it: ")
    assert said.count("\n") == 1
    assert len((server / "asked").read_text().splitlines()) == 1


def test_trackers_of_a_run_reach_the_server_as_they_are_meant(server: Path, tmp_path: Path) -> None:
    around = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    said = one_line(called(tmp_path, "deploy resume run --state server --track tensorbord", PATH=around))
    assert said.startswith("there is no tracker 'tensorbord'; did you mean 'tensorboard'?")
    assert not (server / "asked").exists()
    last = Starts(server).last_of(tmp_path / "run")
    assert last.track == ()
    Starts(server).write(Start(**{**vars(last), "name": "cd", "run_id": 1, "track": ("mlflow:http://h:5000",)}))
    assert shell(tmp_path, "deploy resume run --state server", PATH=around).returncode == 0
    (name,) = (server / "asked").read_text().split()
    assert Starts(server).read(name).track == ("mlflow:http://h:5000",)


def test_a_run_whose_server_is_lost_goes_on_at_a_new_one(server: Path, tmp_path: Path) -> None:
    around = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    (tmp_path / "run").mkdir()
    terms = Terms(3, accept_data=("a",), seconds=2.5)
    start = Start(
        "ef", "ward", "elsewhere", terms, method="scaffold", settings={"rounds": 9}, superlink="h:1", run_id=7
    )
    (tmp_path / "new").mkdir(mode=0o700)
    (tmp_path / "new" / DATABASE).touch()
    said = one_line(called(tmp_path, "deploy resume run --state new", PATH=around))
    assert said.startswith("run was not started from ")
    assert said.endswith("or where that is lost, resume it at this one: --new-server")
    said = one_line(called(tmp_path, "deploy resume run --state new --new-server", PATH=around))
    assert said == "run has no start.json; it is not the folder of a deployment that has begun"
    keep_with(tmp_path / "run", start)
    assert shell(tmp_path, "deploy resume run --state new --new-server --rounds 12", PATH=around).returncode == 0
    found = Starts(tmp_path / "new").last_of(tmp_path / "run")
    assert (found.method, found.settings, found.resume, found.run_id) == ("scaffold", {"rounds": 12}, True, 2)
    assert found.terms == replace(terms, accept_data=())
    assert found.out == str(tmp_path / "run")


def test_a_place_of_curves_is_where_the_operator_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.runs.trackers.tracking.trackers", lambda track: {})
    monkeypatch.chdir(tmp_path)
    found = deploy_runs.tracked(["tensorboard:boards", "tensorboard", "mlflow:http://h:1/x", "wandb:team/ward"])
    assert found == (f"tensorboard:{tmp_path / 'boards'}", "tensorboard", "mlflow:http://h:1/x", "wandb:team/ward")


# ── what is printed can be typed ─────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_whose_name_has_a_space_is_printed_as_a_shell_takes_it(tmp_path: Path) -> None:
    said = called(tmp_path, "deploy init 'my ward'").stdout
    *_, last = said.splitlines()
    words = shlex.split(last.partition(": ")[2])
    assert words == ["headway", "deploy", "rehearse", "my ward", "--sites", "3"]
    assert 'name = "my-ward"' in (tmp_path / "my ward" / "pyproject.toml").read_text()


def test_a_unit_runs_the_same_command_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every path in it is absolute, and what it may write are the folders of state and of runs."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    (tmp_path / "bin").mkdir()
    for name in ("headway", "flower-superlink", "flower-supernode", "flower-superexec"):
        (tmp_path / "bin" / name).touch(mode=0o755)
    for name in ("ca.crt", "server.crt", "server.key"):
        (tmp_path / name).touch()
    (tmp_path / "a").touch(mode=0o600)
    (tmp_path / "my data").mkdir()
    serve = "serve --keys {0} --state {0}/state --address 127.0.0.1:9092"
    join = "join a --superlink h:443 --ca {0}/ca.crt --key {0}/a --state {0}/at --port 9094 --data '{0}/my data'"
    words = {
        "deploy serve --keys . --state state --runs runs --unit": (serve, f"{tmp_path}/state {tmp_path}/runs"),
        "deploy join a --superlink h:443 --key a --state at --data 'my data' --unit": (join, f"{tmp_path}/at"),
    }
    for given, (wanted, writable) in words.items():
        answer = called(tmp_path, given)
        assert answer.returncode == 0, answer.stderr
        lines = dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)
        assert shlex.split(lines["ExecStart"]) == shlex.split(
            f"{tmp_path}/bin/headway deploy {wanted.format(tmp_path)}"
        )
        assert lines["ReadWritePaths"] == writable
    unit = units.systemd(Command(("/bin/x",)), "x", [Path("/a b")])
    assert 'ReadWritePaths="/a b"' in unit.splitlines()
