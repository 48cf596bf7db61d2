"""Clients that fail or diverge: the run stops, or goes on without them as if they had dropped out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headway as hw
from conftest import EXECUTORS, SMALL, distance, experiment, norm_free, played, unequal_clients
from headway.data.cohort import Cohort
from headway.engine.experiment import Experiment
from headway.engine.round import run_round
from headway.engine.selection import choose
from headway.engine.serial import Serial
from headway.engine.server import initial_state
from headway.engine.states import ClientStates
from headway.errors import ClientError, Diverged, OutOfMemory, UserError
from headway.methods.slots import Output, State, Step
from headway.random import built
from headway.vectors import Vector
from test_resume_with_changes import Stopping


@dataclass(frozen=True)
class diverging:
    """An addition to the loss that is not a number for clients of these sizes, from this round on."""

    sizes: tuple[int, ...]
    since: int = 1
    adds = True

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Tensor:
        bad = sum(step.client.size == size for size in self.sizes) * (step.round >= self.since)
        return torch.where(bad > 0, torch.nan, 0.0) * w.dot(w)


@dataclass(frozen=True)
class raising:
    """An addition to the loss that cannot be had for clients of these sizes."""

    sizes: tuple[int, ...]
    fault: type[Exception] = ZeroDivisionError
    adds = True

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Tensor:
        size = step.client.size
        stacked = torch._C._functorch.is_batchedtensor(size)  # a stack fails as a whole: any of it may be the reason
        sizes = torch._C._functorch.get_unwrapped(size).tolist() if stacked else [int(size)]
        if set(sizes) & set(self.sizes):
            raise self.fault("no value\nfor this one")
        return 0 * w.dot(w)


def failing(part: Any, name: str = "scaffold") -> hw.Method:
    known = hw.method(name)
    return hw.Method(known.broadcast, (*known.objective, part), known.local, known.server, known.wire, name="failing")


def _model() -> nn.Module:
    return built(norm_free, 7, "test")


SKIP: dict[str, Any] = {"on_failure": "skip", "participation": 1.0, "rounds": 2}


def without(chosen: Experiment, records: Sequence[dict[str, Any]], store: ClientStates) -> Any:
    """Where a run ends that has those clients only that counted."""
    model = initial_state(chosen)
    with chosen.arithmetic():
        for number, record in enumerate(records, 1):
            model, _ = run_round(chosen, model, store, Serial(chosen), Cohort(tuple(record["clients"])), number)
    return model


def same(one: ClientStates, other: ClientStates) -> bool:
    return one.states.keys() == other.states.keys() and all(
        distance(one.states[client], other.states[client]) < 1e-12 for client in one.states
    )


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("kind", [diverging, raising])
@pytest.mark.parametrize("name", ["scaffold", "gradma-s"])
def test_a_skipped_client_is_as_if_it_had_dropped_out(name: str, kind: Any, executor: str) -> None:
    """In every executor: weights, averaged statistics, client states, the server's sums and rows of single clients."""
    chosen = experiment(failing(kind((17, 8)), name), "batch_norm_dropout", **SKIP)
    store, other = ClientStates(), ClientStates()
    records, end = played(chosen, executor, store)
    model = without(chosen, records, other)
    for record in records:
        assert (record["failed"], record["lost"]) == (2, 0)
        assert [row["client"] for row in record["failures"]] == [1, 2]
        assert record["clients"] == (0, 3, 4, 5)
        assert all(f"round {record['round']}, client {row['client']}" in row["cause"] for row in record["failures"])
        json.dumps(record, allow_nan=False)
    pairs = [(model.theta, end.model.theta), (model.server, end.model.server), (model.buffers, end.model.buffers)]
    assert all(distance(*pair) < 1e-12 for pair in pairs)
    assert same(store, other)
    assert not {1, 2} & store.states.keys()


def test_what_is_counted_is_of_those_who_arrived() -> None:
    """Loss, steps, samples and bytes up; the download was everybody's, and padding is not what the failed had."""
    chosen = experiment(failing(diverging((17,))), **SKIP | {"rounds": 1})
    (record,), _ = played(chosen, "batched")
    with chosen.arithmetic():
        left = [0, 2, 3, 4, 5]
        _, plain = run_round(chosen, initial_state(chosen), ClientStates(), Serial(chosen), Cohort(tuple(left)), 1)
    assert record["train_loss"] == pytest.approx(plain.train_loss, abs=1e-12)
    assert [record[name] for name in ("steps", "samples", "bytes_up")] == [plain.steps, plain.samples, plain.bytes_up]
    assert record["bytes_down"] * 5 == plain.bytes_down * 6
    assert 0 <= record["padding"] < 1


@pytest.mark.parametrize("executor", EXECUTORS)
def test_where_nobody_fails_skipping_changes_no_bit(executor: str) -> None:
    (one, stop), (other, skip) = (
        played(experiment("scaffold", "batch_norm_dropout", on_failure=what), executor) for what in ("stop", "skip")
    )
    assert distance([stop.model.theta, stop.model.server], [skip.model.theta, skip.model.server]) == 0
    assert [record.pop("failed") for record in other] == [0] * len(other)
    timeless = [{name: record[name] for name in record if "seconds" not in name} for record in one]
    assert timeless == [{name: record[name] for name in record if "seconds" not in name} for record in other]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("kind", "error"), [(diverging, Diverged), (raising, ClientError)])
def test_a_round_in_which_all_fail_stops_the_run(kind: Any, error: type[Exception], executor: str) -> None:
    with pytest.raises(error, match=r"all 6 clients of round 1 failed; the first: round 1, client 0"):
        played(experiment(failing(kind((3, 17, 8, 24, 5, 11))), **SKIP), executor)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_without_the_setting_a_failure_stops_the_run(executor: str) -> None:
    with pytest.raises(ClientError, match=r"round 1, client .*ZeroDivisionError"):
        played(experiment(failing(raising((17,))), participation=1.0), executor)


@pytest.mark.parametrize("executor", ["serial", "pool"])
def test_too_little_memory_is_no_fault_of_a_client(executor: str) -> None:
    with pytest.raises(OutOfMemory, match=r"round 1, client 1, step 0: .*MemoryError"):
        played(experiment(failing(raising((17,), MemoryError)), **SKIP), executor)


def test_one_that_is_drawn_twice_fails_twice_and_keeps_what_it_had() -> None:
    chosen = experiment(failing(diverging((17,))), **SKIP | {"sampling": "replacement", "rounds": 4, "seed": 1})
    store = ClientStates()
    records, _ = played(chosen, store=store)
    drawn = [chosen.client_rounds.cohort(record["round"]).clients.count(1) for record in records]
    assert max(drawn) > 1
    assert [record["failed"] for record in records] == drawn
    assert 1 not in store.states


@pytest.mark.parametrize("executor", ["batched", "pool"])
def test_an_executor_is_not_refused_for_a_client_that_fails(executor: str) -> None:
    said: list[str] = []
    hand = choose(experiment(failing(raising((17,))), **SKIP), executor, said.append)
    hand.close()
    assert (hand.name, said) == (executor, [])


def test_a_run_tells_once_counts_and_goes_on_from_its_folder(tmp_path: Path) -> None:
    """Skipping may begin with a resume; what was recorded before does not change."""
    method, said = failing(diverging((17,), since=2)), []
    given = {"executor": "serial", "participation": 1.0, "checkpoint_every": 1}

    class Heard(Stopping):
        def tell(self, message: str) -> None:
            said.append(message)

    with pytest.raises(Diverged, match=r"round 2, client 1: .* --on-failure skip"):
        hw.simulate(method, SMALL, out=tmp_path / "run", **given, **unequal_clients(), model=_model())
    first = (tmp_path / "run/rounds.jsonl").read_bytes()
    text = (tmp_path / "run/scenario.toml").read_text()
    (tmp_path / "run/scenario.toml").write_text(text.replace('on_failure = "stop"', 'on_failure = "skip"'))
    result = hw.resume(tmp_path / "run", method=method, model=_model(), observer=Heard(), **unequal_clients())
    assert (tmp_path / "run/rounds.jsonl").read_bytes().startswith(first)
    assert [record.get("failed") for record in result.records] == [None, 1, 1, 1]
    assert result.summary["failed"] == 3
    (line,) = said
    assert line.startswith("round 2: 1 of 6 clients failed and is skipped (round 2, client 1: the loss")
    loaded = hw.load_run(tmp_path / "run", method=method, model=_model(), **unequal_clients())
    assert [record.get("failures") for record in loaded.records] == [
        record.get("failures") for record in result.records
    ]


def test_a_sweep_from_before_the_setting_is_the_same_sweep(tmp_path: Path) -> None:
    given: dict[str, Any] = {"model": _model(), "executor": "serial", **unequal_clients()}
    path, short = tmp_path / "sweep.json", SMALL.changed(rounds=1)
    hw.sweep("fedavg", {"rate": [0.1]}, short, out=tmp_path, **given)
    assert '"on_failure"' not in path.read_text()
    with pytest.raises(UserError, match="on_failure is stop, not skip"):
        hw.sweep("fedavg", {"rate": [0.1]}, short, out=tmp_path, on_failure="skip", **given)


def test_a_folder_from_before_the_setting_stops(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        hw.simulate("fedavg", SMALL, out=run, observer=Stopping(1), model=_model(), **unequal_clients())
    text = (run / "scenario.toml").read_text()
    (run / "scenario.toml").write_text(text.replace('on_failure = "stop"\n', ""))
    result = hw.resume(run, model=_model(), **unequal_clients())
    assert result.scenario.on_failure == "stop"
    assert len(result.records) == SMALL.rounds
