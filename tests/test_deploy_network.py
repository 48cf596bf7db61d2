"""Federations over a network: Flower's own programs on 127.0.0.1, with TLS and keys, against the simulator.

Flower has an environment of its own (`make network`), because it wants older versions of typer and rich.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WARD = ROOT / "examples" / "ward"
PYTHON = Path(os.environ.get("HEADWAY_FLOWER_PYTHON", ROOT / ".venv-deploy" / "bin" / "python"))
MARK = b"HEADWAY_REHEARSAL="

pytestmark = pytest.mark.skipif(
    not PYTHON.exists() or not Path("/proc/self/environ").exists(),
    reason="Flower is in no environment of its own here (make network), or there is no /proc",
)
HAS_NGINX = pytest.mark.skipif(
    shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None, reason="nginx is not here"
)
METHODS = ("fedacg", "scaffold", "feddyn", "gradma-w", "fedpaq")


def left() -> list[str]:
    """Processes of rehearsals that are there now."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if MARK in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a rehearsal runs; nothing of it may be left, neither programs nor temporary files."""
    (tmp_path / "tmp").mkdir()
    yield tmp_path
    assert left() == []
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
