"""What is waited for before the first round: parts that add up, and `headway bench --start`."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
from typer.testing import CliRunner

from conftest import refused
from headway.cli.main import app
from headway.waiting import PARTS, measured, part


def test_a_second_counts_for_the_innermost_part(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def passes(seconds: float) -> None:
        now[0] += seconds

    with measured() as clock:
        passes(1)
        with part("choosing the executor"):
            passes(2)
            with part("compiling and capturing"):
                passes(4)
            passes(8)
        with suppress(KeyError), part("data"):
            passes(16)
            raise KeyError
        passes(32)
        with part("data"):
            passes(64)
    assert clock.seconds == {"choosing the executor": 10, "compiling and capturing": 4, "data": 80}
    with part("model"):
        passes(1)
    assert "model" not in clock.seconds, "the clock is off"


def _bench(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["bench", "--start", "--device", "cpu", *arguments])
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.mark.parametrize(
    ("workload", "executor"),
    [("fashion", "serial"), pytest.param("fashion,mlp", "auto,batched", marks=pytest.mark.soak)],
)
def test_a_cold_and_a_warm_start(workload: str, executor: str) -> None:
    told = json.loads(_bench("--workload", workload, "--executor", executor, "--rounds", "2", "--json"))
    assert [(row["workload"], row["asked"]) for row in told["rows"]] == [
        (one, other) for one in workload.split(",") for other in executor.split(",")
    ]
    assert told["skipped"] == []
    for row in told["rows"]:
        assert [one["cache"] for one in row["starts"]] == ["cold", "warm"]
        for one in row["starts"]:
            assert set(one["parts"]) <= {*PARTS, "rest"}
            assert {"data", "model", "first round"} <= set(one["parts"])
            assert sum(one["parts"].values()) == pytest.approx(one["seconds"])
            assert min(one["parts"].values()) > 0
            assert set(one["imports"]) == {"torch", "headway"}
        chosen = [one["executor"] for one in row["starts"]]
        if row["asked"] == "auto":
            assert chosen[0].endswith(" (measured)")
            assert chosen[1] == chosen[0].replace("(measured)", "(remembered)")
        else:
            assert chosen == [row["asked"]] * 2


def test_what_cannot_be_started_is_said_in_the_table() -> None:
    told = _bench("--workload", "mlp", "--executor", "graphed:streams")
    assert "mlp with graphed:streams" in told
    assert "CUDA" in told


def test_what_a_start_does_not_have_is_refused() -> None:
    refused(lambda: _bench("--workload", "mlpp"), "no workload 'mlpp'", "did you mean 'mlp'")
    refused(lambda: _bench("--executor", "seral"), "no executor 'seral'", "did you mean 'serial'")
    refused(lambda: _bench("--engines", "pool"), "engines is 'pool'", "--executor")
    refused(lambda: _bench("--ranks", "2"), "ranks is '2'")

    def without_start() -> None:
        done = CliRunner().invoke(app, ["bench", "--executor", "serial"])
        assert done.exception is not None
        raise done.exception

    refused(without_start, "executor is 'serial'", "it is for --start", "--engines")
