"""`benchmarks/diagnostics_cost.py` leaves the diagnostics out, and nothing else."""

from __future__ import annotations

import argparse
import importlib
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conftest import experiment, made_by
from headway.bench.workloads import Workload
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.records import Diagnostics

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
NAMES = Diagnostics.__annotations__.keys()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("diagnostics_cost")


@pytest.mark.parametrize("executor", ["serial", "batched"])
def test_without_diagnostics_all_other_numbers_stay(script: ModuleType, executor: str) -> None:
    chosen = experiment("fedacg", clip=0.5)

    def records() -> list[dict[str, Any]]:
        hand = made_by(executor, chosen)
        with closing(hand):
            return [dict(record) for record, _ in simulate(chosen, hand, ClientStates(), begin(chosen))]

    told = records()
    with script.without_diagnostics():
        silent = records()
    assert all(record.keys().isdisjoint(NAMES) for record in silent)
    for full, bare in zip(told, records(), strict=True):
        assert {name: full[name] for name in NAMES & full.keys()} == {name: bare[name] for name in NAMES & bare.keys()}
    for full, bare in zip(told, silent, strict=True):
        left = {name for name in full if name not in NAMES and "seconds" not in name}
        assert {name: full[name] for name in left} == {name: bare[name] for name in left}
    assert NAMES & told[-1].keys() >= {"diversity", "drift", "cosine_momentum", "clipped_share"}


def test_two_engines_play_the_same_rounds_in_turns(script: ModuleType) -> None:
    tiny = Workload("mlp", "784-200-200-200-10", (1, 4, 4), clients=3, cohort=2, epochs=1, steps=1, batch=2)
    arguments = argparse.Namespace(method="fedacg", device="cpu", precision="fp32", turns=3, rounds=1, clock="wall")
    row = script.compared(tiny, "serial", arguments)
    assert row["engine"] == "serial"
    assert row["same_numbers"]
    assert len(row["ratios"]) == 3
    low, high = row["ratio_quartiles"]
    assert low <= row["ratio"] <= high
    assert f"{row['ratio']:.4f}   {low:.4f} to {high:.4f}" in script.line(row)
