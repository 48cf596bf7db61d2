"""Federations over a network: Flower's own programs on 127.0.0.1, with TLS and keys, against the simulator.

Flower has an environment of its own (`make network`), because it wants older versions of typer and rich.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import safetensors.numpy

from headway.deploy import guard
from headway.deploy.commands import Command
from headway.deploy.processes import Child, Stage, free_ports, listens, wait_until

ROOT = Path(__file__).resolve().parents[1]
WARD = ROOT / "examples" / "ward"
PYTHON = Path(os.environ.get("HEADWAY_FLOWER_PYTHON", ROOT / ".venv-deploy" / "bin" / "python"))

pytestmark = pytest.mark.skipif(
    not PYTHON.exists() or not Path("/proc/self/environ").exists(),
    reason="Flower is in no environment of its own here (make network), or there is no /proc",
)
HAS_NGINX = pytest.mark.skipif(
    shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None, reason="nginx is not here"
)
METHODS = ("fedacg", "scaffold", "feddyn", "gradma-w", "fedpaq")


def left(temporary: Path) -> list[str]:
    """Processes that are there now, and were started with this folder for temporary files."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={temporary}".encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a rehearsal runs; nothing of it may be left, neither programs nor temporary files."""
    (tmp_path / "tmp").mkdir()
    yield tmp_path
    assert left(tmp_path / "tmp") == []
    assert list((tmp_path / "tmp").iterdir()) == []


def rehearse(folder: Path, *words: str, seconds: float) -> tuple[dict[str, object], str]:
    """What a rehearsal answers as JSON, and what it told."""
    around = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "TMPDIR": str(folder / "tmp"),
        "OMP_NUM_THREADS": "1",
        "HOME": str(folder),
    }
    command = [str(PYTHON), "-m", "headway", "deploy", "rehearse", str(WARD), "--out", "run", "--json", *words]
    ended = subprocess.run(
        command, cwd=folder, env=around, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout), ended.stderr


def rounds(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "run" / "rounds.jsonl").read_text().splitlines()]


def test_two_sites_over_tls_have_the_numbers_of_the_simulator(folder: Path) -> None:
    found, _ = rehearse(folder, "--sites", "2", "--rounds", "2", "--method", "scaffold", seconds=300)
    assert found["gap"] == 0
    assert [record["clients"] for record in rounds(folder)] == [[0, 1], [0, 1]]
    assert not (folder / ".flwr").exists()


@pytest.mark.soak
@pytest.mark.parametrize("method", METHODS)
def test_three_sites(method: str, folder: Path) -> None:
    found, _ = rehearse(folder, "--sites", "3", "--rounds", "4", "--method", method, seconds=900)
    assert float(str(found["gap"])) <= 1e-9
    assert [record["clients"] for record in rounds(folder)] == [[0, 1, 2]] * 4


@pytest.mark.soak
@pytest.mark.parametrize("method", METHODS)
def test_a_site_the_server_and_the_superlink_are_killed(method: str, folder: Path) -> None:
    kills = ["--kill", "site:2@3,server@1,link@4"]
    found, told = rehearse(folder, "--sites", "3", "--rounds", "5", "--method", method, *kills, seconds=1500)
    assert float(str(found["gap"])) <= 1e-9
    assert len(rounds(folder)) == 5
    assert rounds(folder)[2]["clients"] == [0, 2]
    assert told.count("the run is resumed from its checkpoint") == 2


@pytest.mark.soak
@HAS_NGINX
def test_through_a_proxy_strangers_and_control_are_refused(folder: Path) -> None:
    found, told = rehearse(folder, "--sites", "2", "--rounds", "1", "--proxy", "--stranger", seconds=900)
    assert found["good"] is True
    assert "/v1/control/ is not reached: 404" in told
    for who in ("a key that was not admitted", "no key", "no TLS", "another authority"):
        assert f"refused  {who}: 305" in told


# ── a deployment by its own commands ─────────────────────────────────────────────────────────────────────────────────


class Hand:
    """An operator and three sites at their shells."""

    def __init__(self, folder: Path, stage: Stage) -> None:
        self.folder, self.stage = folder, stage
        self.port, *self.ports = free_ports(4)
        self.around = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HOME": str(folder)}

    def headway(self, words: str, code: int = 0) -> str:
        """What a command prints on both streams; its exit code is as it should be."""
        ended = self.ended(words)
        assert ended.returncode == code, ended.stdout
        return ended.stdout

    def ended(self, words: str) -> subprocess.CompletedProcess[str]:
        """A command that has ended, with both streams as one."""
        return subprocess.run(
            [str(PYTHON), "-m", "headway", "deploy", *shlex.split(words)],
            cwd=self.folder,
            env={**os.environ, **self.around},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )

    def start(self, name: str, words: str) -> Child:
        """Start a command that stays, in the folder of this deployment."""
        shell = f"cd {shlex.quote(str(self.folder))} && exec {shlex.quote(str(PYTHON))} -m headway deploy {words}"
        return self.stage.start(name, Command(("sh", "-c", shell), self.around))

    def site(self, number: int) -> str:
        return (
            f"join site-{number} --ca keys/ca.crt --superlink localhost:{self.port} --key at-{number}/site-{number} "
            f"--state at-{number}/state --data ward/rehearsal/site-{number} --port {self.ports[number - 1]}"
        )

    def begin(self) -> None:
        """Everything up to the first run, as the tutorial has it."""
        self.headway("init ward")
        self.headway("keys --host localhost --host 127.0.0.1 --out keys")
        served = self.start("serve", f"serve --keys keys --state server --address 127.0.0.1:{self.port}")
        assert wait_until(lambda: listens(self.port), 120, [served])
        at = f"--superlink 127.0.0.1:{self.port} --ca keys/ca.crt"
        for number in (1, 2, 3):
            self.headway(f"keys --site site-{number} --out at-{number}")
            self.headway(f"keys --admit at-{number}/site-{number}.pub {at} --state server")
            self.start(f"site-{number}", self.site(number))
        run = f"run ward --sites 3 --quorum 1 --deadline 3m --rounds 1 --out run {at} --state server"
        assert "round 1, 3 sites counted" in self.headway(run)

    def resume(self, rounds: int, more: str = "") -> str:
        return self.headway(f"resume run --rounds {rounds} --state server {more}")


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[Hand]:
    with Stage() as stage:
        hand = Hand(tmp_path, stage)
        hand.begin()
        yield hand
    assert stage.left() == []


def change_a_sample(path: Path) -> None:
    """One pixel of one sample in the middle of the data becomes another."""
    tensors = safetensors.numpy.load_file(path)
    middle = len(tensors["x"]) // 2
    tensors["x"][middle, 0, 8, 8] ^= 1
    safetensors.numpy.save_file(tensors, path)


@pytest.mark.soak
def test_sites_that_are_not_what_they_were_are_refused_in_one_line(hand: Hand) -> None:
    data, folder = hand.folder / "ward/rehearsal/site-2/cohort.safetensors", hand.folder
    before = data.read_bytes()
    change_a_sample(data)
    said = hand.resume(2)
    assert [line for line in said.splitlines() if "DATA_CHANGED" in line and "site-2" in line], said
    assert "round 2, 2 sites counted" in said
    assert "round 3, 3 sites counted" in hand.resume(3, "--accept-data site-2")
    data.write_bytes(before)
    state = folder / "at-3" / "state" / "headway"
    state.rename(folder / "aside")
    said = hand.resume(4, "--accept-data site-2")
    assert [line for line in said.splitlines() if "STATE_LOST" in line and "site-3" in line], said
    assert "round 4, 2 sites counted" in said
    shutil.rmtree(state)
    (folder / "aside").rename(state)
    assert "round 5, 3 sites counted" in hand.resume(5, "--accept-data site-2")
    network = folder / "ward" / "network.py"
    network.write_text(network.read_text().replace("Linear(8 * 8 * 8, 3)", "Linear(8 * 8 * 8, 3, bias=False)"))
    said = hand.headway("resume run --rounds 6 --state server", code=2)
    assert said.count("\nheadway: ") + said.startswith("headway: ") == 1, said
    shown = hand.headway("status run")
    assert all(f"site-{number}" in shown for number in (1, 2, 3))


@pytest.mark.soak
def test_of_two_who_resume_one_is_refused_and_what_is_ended_leaves_nothing(hand: Hand) -> None:
    with ThreadPoolExecutor(2) as pool:
        good, bad = sorted(
            pool.map(hand.ended, ["resume run --rounds 2 --state server"] * 2), key=lambda one: one.returncode
        )
    assert (good.returncode, bad.returncode) == (0, 2), (good.stdout, bad.stdout)
    assert "round 2, 3 sites counted" in good.stdout
    assert bad.stdout.startswith("headway: run is running; follow it with headway deploy status run, or end it: ")
    (port,) = free_ports(1)
    said = hand.headway(f"serve --keys keys --state server --address 127.0.0.1:{port}", code=2)
    assert "is the state folder of a server that runs already" in said
    said = hand.headway(hand.site(1).replace(f"--port {hand.ports[0]}", f"--port {port}"), code=2)
    assert "is the state folder of a site that runs already" in said
    for name, number in (("site-1", signal.SIGTERM), ("site-2", signal.SIGKILL), ("serve", signal.SIGTERM)):
        hand.stage.children[name].process.send_signal(number)
        hand.stage.children[name].process.wait(60)
        mark = f"{hand.stage.mark}{name}/"
        assert wait_until(lambda mark=mark: not list(guard.marked(mark)), 60), name  # type: ignore[misc]


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """The folder with what it holds, on a disk of its own that has no room left."""
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a disk of its own cannot be mounted here")
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True)
        with contextlib.suppress(OSError), (folder / "rest").open("wb", buffering=0) as rest:
            while True:
                rest.write(bytes(4096))
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()
        aside.rename(folder)


@pytest.mark.soak
def test_a_full_disk_at_a_site_loses_its_round_alone(hand: Hand) -> None:
    with full_disk(hand.folder / "at-1" / "state" / "headway"):
        said = hand.resume(2)
    assert [line for line in said.splitlines() if "DISK_FULL" in line], said
    assert "round 2, 2 sites counted" in said
    assert "round 3, 3 sites counted" in hand.resume(3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--method csgd", "csgd cannot be deployed: it trains on everybody's data in one place"),
        ("--method fedavg+dp:clip=1,noise=1", "the noise of +dp is secret in a deployment"),
        ("--sites 6", "has data of 5 sites, but 6 are to be played"),
        ("--kill site:4@1", "there are sites 1 to 3"),
        ("--deadline soon", "it must be a number with s, m, h or d"),
    ],
)
def test_what_cannot_be_rehearsed_is_said_before_anything_starts(words: str, said: str, folder: Path) -> None:
    command = [str(PYTHON), "-m", "headway", "deploy", "rehearse", str(WARD), *words.split()]
    around = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(folder / "tmp")}
    ended = subprocess.run(command, cwd=folder, env=around, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1
