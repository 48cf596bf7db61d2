"""Ranks that torchrun starts: by the command line, killed and started again, in two groups that meet on localhost."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ranks_at_work import checkpoint_of

HERE = Path(__file__).resolve().parents[1]
RUN = ["run", "scaffold", "--deterministic", "--executor", "serial", "--model", "mlp", "--checkpoint-every", "2"]
TORCHRUN = ["-m", "torch.distributed.run", "--local-addr=127.0.0.1"]
SECONDS = 300.0
pytestmark = pytest.mark.soak


def environment() -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "COLUMNS")}
    return {**plain, "PYTHONPATH": str(HERE / "src"), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def started(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen([sys.executable, *words], env=environment(), stdout=file, stderr=subprocess.STDOUT)


def ended(process: subprocess.Popen[bytes], log: Path) -> int:
    try:
        return process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(log.read_text(errors="replace")[-2000:])


def headway(words: list[str], log: Path) -> int:
    return ended(started(["-m", "headway", *words], log), log)


def rounds(folder: Path) -> int:
    path = folder / "rounds.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def ranks_of(launcher: int) -> list[int]:
    """The processes that a launcher has started."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (place / "stat").read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if int(parent) == launcher and state != "Z":
            found.append(int(place.name))
    return sorted(found)


def test_ranks_of_the_command_line_have_the_bytes_of_one_process(tmp_path: Path) -> None:
    """A second command goes on: the run is finished, so that it only shows it."""
    log = tmp_path / "log"
    assert headway([*RUN, "--rounds", "4", "--out", str(tmp_path / "alone")], log) == 0
    several = [*RUN, "--rounds", "4", "--out", str(tmp_path / "several"), "--ranks", "2"]
    for _ in range(2):
        assert headway(several, log) == 0, log.read_text()
        assert checkpoint_of(tmp_path / "several") == checkpoint_of(tmp_path / "alone")
    assert headway([*RUN, "--rounds", "5", "--out", str(tmp_path / "several"), "--ranks", "2"], log) == 2
    assert log.read_text().count("is already used") == 1


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    """Of all ranks, whoever starts them: the loss is not finite on every rank."""
    log = tmp_path / "log"
    words = ["run", "fedavg", "--rate", "1e20", "--clip", "0", "--model", "mlp", "--rounds", "2", "--quiet"]
    assert headway([*words, "--ranks", "2", "--out", str(tmp_path / "run")], log) == 2
    (line,) = log.read_text().splitlines()
    assert line.startswith("headway: round 1, client ")
    log.unlink()
    process = started([*TORCHRUN, "--standalone", "--nproc-per-node=2", "-m", "headway", *words], log)
    assert ended(process, log) != 0
    assert log.read_text().count("headway: ") == 1


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="ranks are found by /proc")
def test_ranks_that_are_killed_go_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    """Three times, one of two ranks −9 at random: the bytes of a run of one process."""
    log, folder, draw = tmp_path / "log", tmp_path / "several", random.Random(0)
    assert headway([*RUN, "--rounds", "60", "--out", str(tmp_path / "alone")], log) == 0
    launcher = [*TORCHRUN, "--standalone", "--nproc-per-node=2", "--max-restarts=3", "-m", "headway"]
    process = started([*launcher, *RUN, "--rounds", "60", "--out", str(folder)], log)
    until = time.monotonic() + SECONDS
    for _ in range(3):
        wanted = rounds(folder) + draw.randint(1, 9)
        while (rounds(folder) < wanted or len(ranks_of(process.pid)) < 2) and process.poll() is None:
            assert time.monotonic() < until, log.read_text(errors="replace")[-2000:]
            time.sleep(0.02)
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        os.kill(draw.choice(ranks_of(process.pid)), signal.SIGKILL)
        time.sleep(1)
    assert ended(process, log) == 0, log.read_text(errors="replace")[-2000:]
    assert checkpoint_of(folder) == checkpoint_of(tmp_path / "alone")


def test_two_groups_of_ranks_meet_on_localhost(tmp_path: Path) -> None:
    """As on two machines: two launchers with two ranks each, and one folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*TORCHRUN, "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=two"]
    words += [f"--rdzv-endpoint=127.0.0.1:{port}", "-m", "headway", *RUN, "--rounds", "4"]
    logs = [tmp_path / f"log {group}" for group in range(2)]
    groups = [started([*words, "--out", str(tmp_path / "several")], log) for log in logs]
    for process, log in zip(groups, logs, strict=True):
        assert ended(process, log) == 0, log.read_text(errors="replace")[-2000:]
    assert headway([*RUN, "--rounds", "4", "--out", str(tmp_path / "alone")], tmp_path / "log") == 0
    assert checkpoint_of(tmp_path / "several") == checkpoint_of(tmp_path / "alone")
