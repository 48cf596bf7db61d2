"""The comparing part of `benchmarks/before_after.py`, on made-up seconds, and two trees that stay warm."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def before_after(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("before_after")


def told(**seconds: float) -> dict[str, Any]:
    """What `headway bench --json` says of one workload."""
    engines = [
        {"name": name, "seconds_per_round": one, "options": {} if name == "loop" else {"executor": name}}
        for name, one in seconds.items()
    ]
    return {"workload": "mlp", "engines": engines}


def test_the_ratio_is_that_of_the_medians(before_after: ModuleType) -> None:
    old = [before_after.read(told(loop=1.0, serial=one)) for one in (2.0, 4.0, 3.0)]
    new = [before_after.read([told(loop=1.0, serial=one)]) for one in (2.2, 4.0, 3.3)]
    loop, serial = before_after.compared(list(zip(old, new, strict=True)))
    assert (loop["engine"], loop["ratio"]) == ("loop", 1.0)
    assert (serial["old"], serial["new"]) == (3.0, 3.3)
    assert serial["ratio"] == pytest.approx(1.1)
    assert serial["ratio_quartiles"] == pytest.approx([1.05, 1.1])
    assert serial["executors"] == [["serial"], ["serial"]]
    assert "1.100   1.050 to 1.100" in "\n".join(before_after.table([loop, serial]))


def test_an_engine_that_one_tree_cannot_play_has_no_ratio(before_after: ModuleType) -> None:
    old, new = before_after.read(told(loop=1.0, pool=1.0)), before_after.read(told(loop=2.0))
    loop, pool = before_after.compared([(old, new)])
    assert (loop["ratio"], loop["ratio_quartiles"]) == (2.0, [2.0, 2.0])
    assert pool == {"workload": "mlp", "engine": "pool"}
    assert "not played by both" in list(before_after.table([loop, pool]))[-1]


@pytest.mark.soak
def test_trees_that_stay_warm_are_measured_in_turns() -> None:
    """Here both are this tree: what is shown has every engine, as many turns as wanted, and no control."""
    script = [sys.executable, str(BENCHMARKS / "before_after.py"), "--old-tree", str(BENCHMARKS.parent), "--warm"]
    what = ["--workload", "mlp", "--engines", "serial,batched", "--times", "2", "--rounds", "1", "--json"]
    done = subprocess.run([*script, *what], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["engine"] for row in rows] == ["serial", "batched"]
    assert all(len(row["seconds_old"]) == len(row["seconds_new"]) == 2 for row in rows)
