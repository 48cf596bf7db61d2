"""Stragglers, clients drawn twice and moving cohorts in whole runs: every method, every executor, and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import headway
from conftest import SIZES, SMALL, distance, experiment, played, round_lines, unequal_clients
from headway.data.batches import planned_steps
from headway.data.cohort import Cohort
from headway.data.participation import Dynamic, in_words
from headway.engine.round import run_round
from headway.engine.selection import choose
from headway.engine.serial import Serial
from headway.engine.server import initial_state
from headway.engine.simulation import simulate
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods.catalogue import METHODS
from headway.runs.checkpoint import Checkpoint
from headway.scenario import Scenario
from killed_runs import Case, Moment, control, killed, lived
from methods_under_test import EVERY, sampled
from test_resume import assert_same_end

STRAGGLING = {"dropout": 0.5, "stragglers": "partial", "batches": "continued", "epochs": 1, "rounds": 3}


@pytest.mark.parametrize("name", sampled(METHODS))
def test_every_method_takes_stragglers_and_executors_agree(name: str) -> None:
    """Within 1e-10 in float64, client states included."""
    chosen = experiment(EVERY[name], "batch_norm_dropout", **STRAGGLING)
    (mine, one), (theirs, two) = ((ClientStates(), kind) for kind in ("serial", "batched"))
    (reference, end), (records, other) = played(chosen, one, mine), played(chosen, two, theirs)
    assert distance([end.model.theta, end.model.server], [other.model.theta, other.model.server]) < 1e-10
    assert mine.states.keys() == theirs.states.keys()
    assert all(distance(mine.states[client], theirs.states[client]) < 1e-10 for client in mine.states)
    for left, right in zip(reference, records, strict=True):
        assert [left[key] for key in ("clients", "lost", "partial", "bytes_up", "steps")] == [
            right[key] for key in ("clients", "lost", "partial", "bytes_up", "steps")
        ]
    if not chosen.method.pooled:
        assert sum(record["partial"] for record in reference) > 1


@pytest.mark.parametrize("executor", ["batched", "pool"])
@pytest.mark.parametrize("name", ["scaffold", "gradma-s"])
@pytest.mark.parametrize(
    "given",
    [
        {"sampling": "replacement", "participation": 1.0, "rounds": 2},
        {"dropout": 0.4, "over_selection": 0.6, "rounds": 5},
        {**STRAGGLING, "sampling": "bernoulli"},
    ],
    ids=["replacement", "over-selection", "bernoulli"],
)
def test_executors_agree_on_every_way_to_take_part(given: dict[str, Any], name: str, executor: str) -> None:
    chosen = experiment(name, "group_norm", **given)
    mine, theirs = ClientStates(), ClientStates()
    (reference, end), (records, other) = played(chosen, "serial", mine), played(chosen, executor, theirs)
    assert distance([end.model.theta, end.model.server], [other.model.theta, other.model.server]) < 1e-10
    assert all(distance(mine.states[client], theirs.states[client]) < 1e-10 for client in mine.states)
    assert [record["clients"] for record in reference] == [record["clients"] for record in records]


def test_bytes_and_steps_are_counted_honestly() -> None:
    """All who were asked have received the download; up goes, and steps count, what reached the server."""
    plain, _ = played(experiment("scaffold", rounds=1))
    down, up = plain[0]["bytes_down"] // 3, plain[0]["bytes_up"] // 3
    given = {"dropout": 0.4, "stragglers": "partial", "participation": 0.34, "over_selection": 1.0, "rounds": 12}
    chosen = experiment("scaffold", **given)
    records, _ = played(chosen)
    assert {record["lost"] for record in records} == {0}  # nobody has a single step
    for record, found in ((record, chosen.client_rounds.cohort(record["round"])) for record in records):
        assert tuple(record["clients"]) == found.clients
        assert len(found.clients) + found.late == found.invited == 4
        assert record["bytes_down"] == 4 * down
        assert record["bytes_up"] == 2 * up
        whole = [planned_steps(chosen.scenario, SIZES[client]) for client in found.clients]
        assert record["steps"] == sum(found.truncated.get(place, steps) for place, steps in enumerate(whole))
        assert record["partial"] == len(found.truncated)
        assert all(found.truncated[place] < whole[place] for place in found.truncated)
    assert {record["partial"] for record in records} > {0}
    assert records[-1]["bytes_down_total"] == 12 * 4 * down


@pytest.mark.parametrize("name", ["fedacg", "scaffold", "gradma-s", "mifa"])
def test_lost_clients_are_as_if_never_asked(name: str) -> None:
    """The mean is over those who arrived, and what a lost client keeps is what it had."""
    chosen = experiment(name, dropout=0.4, rounds=6, batches="continued")
    store, other = ClientStates(), ClientStates()
    records, end = played(chosen, store=store)
    assert {record["lost"] for record in records} > {1}
    model = initial_state(chosen)
    with chosen.arithmetic():
        for number, record in enumerate(records, 1):
            if record["clients"]:
                model, _ = run_round(chosen, model, other, Serial(chosen), Cohort(tuple(record["clients"])), number)
    assert distance([model.theta, model.server], [end.model.theta, end.model.server]) == 0
    assert store.states.keys() == other.states.keys()
    assert all(distance(store.states[client], other.states[client]) == 0 for client in store.states)


def test_a_round_in_which_all_are_lost_changes_nothing_and_is_recorded() -> None:
    chosen = experiment("scaffold", "batch_norm_dropout", dropout=0.9, rounds=30)
    store, progress = ClientStates(), None
    empty = 0
    for record, after in simulate(chosen, Serial(chosen), store, headway.engine.simulation.begin(chosen)):
        json.dumps(record, allow_nan=False)
        if not record["clients"]:
            empty += 1
            assert (record["lost"], record["steps"], record["bytes_up"], record["update_norm"]) == (3, 0, 0, 0.0)
            assert record["bytes_down"] > 0
            assert "train_loss" not in record
            assert "accuracy" in record
            if progress is not None:
                before, now = progress.model, after.model
                assert distance([before.theta, before.server], [now.theta, now.server]) == 0
                assert distance(before.buffers, now.buffers) == 0
        progress = after
    assert 10 < empty < 30
    assert len(store.states) > 0


def test_a_trial_of_executors_does_not_need_anybody_to_arrive() -> None:
    seed = next(
        seed for seed in range(50) if not experiment("fedavg", dropout=0.9, seed=seed).client_rounds.cohort(1).clients
    )
    chosen = experiment("fedavg", dropout=0.9, seed=seed, deterministic=True)
    executor = choose(chosen, "auto", lambda message: None)
    assert executor.name == "batched"
    executor.close()


# Drawn twice.


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_a_client_drawn_twice_trains_twice_and_the_servers_halves_stay_right(weights: str) -> None:
    """SCAFFOLD's c = Σ p_i c_i and MIFA's G = Σ p_i Δ_i^last hold after rounds with double draws."""
    for name, key, kept in (("scaffold", "control", "c"), ("mifa", "latest", "delta")):
        chosen = experiment(name, sampling="replacement", participation=1.0, weights=weights, rounds=4)
        store = ClientStates()
        records, end = played(chosen, store=store)
        assert any(len(set(record["clients"])) < 6 for record in records)
        mean = sum(
            leaf.flat() * (chosen.weight(client) / chosen.weight_total)
            for client, state in store.states.items()
            for slot in state["slots"].values()
            for leaf in [slot[kept]]
        )
        (held,) = (state[key] for state in end.model.server.values() if key in state)
        torch.testing.assert_close(held.flat(), mean, rtol=1e-10, atol=1e-12)


def test_both_turns_of_a_client_count_and_differ() -> None:
    """Weights, bytes and the stream of batches count both; the second turn has its own order of samples."""
    chosen = experiment("fedavg")
    hand = Serial(chosen)
    with chosen.arithmetic():
        model = initial_state(chosen)
        once, single = run_round(chosen, model, ClientStates(), hand, Cohort((3,)), 1)
        twice, double = run_round(chosen, model, ClientStates(), hand, Cohort((3, 3)), 1)
        assert (double.steps, double.bytes_up, double.bytes_down) == (
            2 * single.steps,
            2 * single.bytes_up,
            2 * single.bytes_down,
        )
        assert distance(once.theta, twice.theta) > 1e-6
        second = 2 * twice.theta - once.theta  # the mean of two turns, each from the same received model
        moved = (second - model.theta).norm() / (once.theta - model.theta).norm()
        assert 0.5 < float(moved) < 2
        streaming = experiment("fedavg", batches="continued")
        store = ClientStates()
        run_round(streaming, model, store, hand, Cohort((3, 1, 3)), 1)
    steps = planned_steps(streaming.scenario, SIZES[3]), planned_steps(streaming.scenario, SIZES[1])
    assert (int(store.states[3]["cursor"]), int(store.states[1]["cursor"])) == (2 * steps[0], steps[1])


def test_each_upload_is_reported_with_its_client() -> None:
    """A server that sees every upload has them in the order of the clients, second draws included."""
    chosen = experiment("gradma-s:memory=6")
    with chosen.arithmetic():
        model = initial_state(chosen)
        after, outcome = run_round(chosen, model, ClientStates(), Serial(chosen), Cohort((2, 4, 2)), 1)
        alone, _ = run_round(chosen, initial_state(chosen), ClientStates(), Serial(chosen), Cohort((4,)), 1)
    assert outcome.clients == (2, 4, 2)
    (state,), (other,) = after.server.values(), alone.server.values()
    assert state["clients"].tolist()[:2] == [2, 4]
    rows = [
        torch.cat([leaf[place].flatten() for leaf in held["rows"].leaves.values()])
        for held, place in ((state, 1), (other, 0))
    ]
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-10, atol=1e-12)


# What methods wish, and what is said.


def test_a_pooled_method_has_no_part_in_it() -> None:
    plain, end = played(experiment("csgd"))
    given = {"sampling": "dynamic", "dropout": 0.9, "over_selection": 3.0}
    records, other = played(experiment("csgd", **given))
    assert distance(end.model.theta, other.model.theta) == 0
    assert [record["clients"] for record in records] == [record["clients"] for record in plain] == [(0,)] * 4


def test_a_method_that_wants_everybody_has_them() -> None:
    assert experiment("fednag", participation=None).sampling.draw(1) == list(range(6))
    assert len(experiment("fednag", participation=None, sampling="bernoulli").sampling.draw(1)) == 6


def test_a_memory_needs_room_only_for_those_that_count() -> None:
    records, _ = played(experiment("gradma-s:memory=3", over_selection=1.0, dropout=0.2))
    assert max(len(record["clients"]) for record in records) == 3


CAPTIONS = {
    "6 of 60 clients a round": {},
    "4.5 of 60 clients a round on average": {"sampling": "bernoulli", "participation": 0.075},
    "6 of 60 clients a round, with replacement": {"sampling": "replacement"},
    "60 of 60 clients a round": {"sampling": "full"},
    "6 of 60 clients a round, 5 groups in turn": {"sampling": "cyclic:5"},
    "10 of 500 clients a round, 250 active": {"sampling": "dynamic", "clients": 500, "participation": 0.02},
    "6 of 60 clients a round, 20 active": {"sampling": "dynamic:60,20,0.5,10"},
    "6 of 60 clients a round, 8 invited, 10 % drop out": {"over_selection": 0.3, "dropout": 0.1},
}


@pytest.mark.parametrize("text", CAPTIONS)
def test_the_caption_is_true(text: str) -> None:
    assert in_words(Scenario(**CAPTIONS[text])) == text


# Resumed in the middle.

MOVING = {
    "sampling": "dynamic:6,4,0.5,2",
    "participation": 0.34,
    "over_selection": 0.5,
    "dropout": 0.4,
    "stragglers": "partial",
    "batches": "continued",
    "executor": "serial",
}


def test_a_killed_run_of_moving_clients_ends_as_one_left_alone(tmp_path: Path) -> None:
    """Dynamic set, over-selection, partial work and control variates: killed twice, resumed, the same files."""
    case = Case(headway.Method(local=control(), name="composed"), settings=MOVING)
    killed(case, tmp_path / "run", Moment("round 5: append", "within"), Moment("round 8: append", "before"))
    lived(case, tmp_path / "run")
    lived(case, tmp_path / "undisturbed")
    assert_same_end(tmp_path / "run", tmp_path / "undisturbed")
    records = round_lines(tmp_path / "run")
    assert sum(record["partial"] for record in records) > 0
    assert sum(record["late"] for record in records) > 0
    active = Dynamic(6, 3, SMALL.seed, 4, 0.5, 2)
    assert all(set(record["clients"]) <= set(active.active_at(record["round"]).tolist()) for record in records)
    assert len({tuple(sorted(active.active_at(round).tolist())) for round in range(1, 13)}) > 2


@pytest.mark.parametrize("spelled", ["bernoulli", "replacement", "cyclic:2", "dynamic:6,4,0.5,2", "authors"])
@pytest.mark.parametrize("executor", ["serial", "batched"])
def test_every_kind_resumes_exactly(spelled: str, executor: str, tmp_path: Path) -> None:
    """Three rounds, a checkpoint on disk and three more in a new experiment are the bits of six rounds."""
    given = {"sampling": spelled, "dropout": 0.4, "stragglers": "partial", "batches": "continued", "participation": 0.4}
    straight, end = played(experiment("scaffold", **given, rounds=6), executor)
    store = ClientStates()
    first, halfway = played(experiment("scaffold", **given, rounds=3), executor, store)
    chosen = experiment("scaffold", **given, rounds=6)
    Checkpoint(tmp_path, chosen).save(halfway, store, executor)
    progress, states = Checkpoint(tmp_path, chosen).reopen()
    hand = choose(chosen, executor, lambda message: None)
    more = []
    for record, progress in simulate(chosen, hand, states, progress):  # noqa: B007, B020
        more.append(record)
    told = ("clients", "lost", "partial", "late", "steps", "bytes_down_total", "bytes_up_total", "train_loss")
    assert [[one.get(key) for key in told] for one in straight] == [
        [one.get(key) for key in told] for one in first + more
    ]
    assert distance([end.model.theta, end.model.server], [progress.model.theta, progress.model.server]) == 0


def test_settings_are_flags_and_own_data_takes_them(tmp_path: Path) -> None:
    """Through the front door, written to the folder and refused when changed on the way."""
    given = unequal_clients()
    small = SMALL.changed(sampling="cyclic:2", dropout=0.3, over_selection=0.0, stragglers="partial", executor="serial")
    result = headway.simulate("fedavg", small, model=torch.nn.Linear(6, 3), out=tmp_path / "run", **given)
    assert [{client % 2 for client in record["clients"]} for record in result.records] == [{0}, {1}, {0}, {1}]
    text = (tmp_path / "run" / "scenario.toml").read_text()
    assert 'sampling = "cyclic:2"' in text
    (tmp_path / "run" / "scenario.toml").write_text(text.replace("cyclic:2", "cyclic:1"))
    with pytest.raises(UserError, match=r"sampling is cyclic:1, but .* was run with cyclic:2"):
        headway.load_run(tmp_path / "run", model=torch.nn.Linear(6, 3), **given)
