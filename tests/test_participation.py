"""Who takes part in a round: every kind counted, stragglers and over-selection, resumed in the middle."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headway
from conftest import SIZES, SMALL, played, unequal_clients, world
from headway.data.batches import planned
from headway.data.participation import Authors, Bernoulli, Dynamic, cohort, in_words, sampling
from headway.data.turnout import Turnout, turnout
from headway.engine import round as rounds
from headway.engine.choice import choose
from headway.engine.serial import Serial
from headway.engine.simulation import simulate
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods.catalogue import METHODS
from headway.runs.checkpoint import Checkpoint
from headway.scenario import Scenario
from headway.vectors import leaves_of
from killing import Case, Moment, control, killed, lived
from test_resume import assert_same_end, numbers

ROUNDS = 3000


def drawn(spelled: str, clients: int, share: float, rounds: int = ROUNDS, seed: int = 0) -> list[list[int]]:
    """The clients asked in rounds 1, 2, …"""
    chosen = sampling(Scenario(clients=clients, participation=share, sampling=spelled, seed=seed), clients)
    return [chosen.draw(round) for round in range(1, rounds + 1)]


def near(count: float, trials: int, p: float) -> bool:
    """Within 4.5 deviations of what a binomial has."""
    return abs(count - trials * p) < 4.5 * math.sqrt(trials * p * (1 - p))


def distance(left: Any, right: Any) -> float:
    """The largest difference between two trees of tensors."""
    pairs = zip(leaves_of(left), leaves_of(right), strict=True)
    return max((float((one.double() - other.double()).abs().max()) for one, other in pairs if one.numel()), default=0.0)


# Every kind.

KINDS = ["fixed", "bernoulli", "replacement", "full", "cyclic:3", "dynamic:12,7,0.4,5", "authors"]


@pytest.mark.parametrize("spelled", KINDS)
@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 4), seed=st.integers(0, 2**31), asked=st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_a_cohort_is_fixed_by_seed_and_round_in_any_order_of_asking(
    spelled: str, size: int, seed: int, asked: list[int]
) -> None:
    scenario = Scenario(clients=12, participation=size / 12, sampling=spelled, seed=seed)
    together = sampling(scenario, 12)
    for round in asked:
        found = together.draw(round)
        assert found == sampling(scenario, 12).draw(round)
        assert found
        assert all(type(client) is int and 0 <= client < 12 for client in found)
        assert spelled == "replacement" or len(set(found)) == len(found)
        assert spelled in ("bernoulli", "full") or len(found) == size
        assert len(found) <= together.most(60)


@pytest.mark.parametrize("spelled", [kind for kind in KINDS if kind != "full"])
def test_rounds_and_seeds_differ(spelled: str) -> None:
    def long(seed: int) -> list[tuple[int, ...]]:
        return [tuple(found) for found in drawn(spelled, 12, 0.3, 40, seed)]

    assert len(set(long(0))) > 20
    assert long(0) != long(1)


def test_fixed_is_the_default_and_what_it_always_was() -> None:
    chosen = sampling(Scenario(clients=30, participation=0.2, seed=4), 30)
    assert [chosen.draw(round) for round in range(1, 30)] == [cohort(30, 6, 4, round) for round in range(1, 30)]


def test_full_is_everybody_whatever_the_share() -> None:
    assert drawn("full", 7, 0.1, 2) == [list(range(7))] * 2


def test_bernoulli_takes_clients_one_by_one() -> None:
    """p for each client, p² for each pair, and |S| spread as a binomial (a fixed number has no spread)."""
    p = 0.4
    chosen = drawn("bernoulli", 6, p)
    assert min(map(len, chosen)) >= 1
    empty = (1 - p) ** 6
    singles = Counter(itertools.chain.from_iterable(chosen))
    assert all(near(singles[client], ROUNDS, p + empty / 6) for client in range(6))
    pairs = Counter(pair for found in chosen for pair in itertools.combinations(sorted(found), 2))
    assert all(near(pairs[pair], ROUNDS, p**2) for pair in itertools.combinations(range(6), 2))
    sizes = Counter(map(len, chosen))
    for size in range(2, 7):
        assert near(sizes[size], ROUNDS, math.comb(6, size) * p**size * (1 - p) ** (6 - size))


def test_bernoulli_with_nobody_takes_one() -> None:
    p, found = 0.05, drawn("bernoulli", 3, 0.05)
    counts = Counter(itertools.chain.from_iterable(found))
    assert all(near(counts[client], ROUNDS, p + (1 - p) ** 3 / 3) for client in range(3))
    assert {len(one) for one in drawn("bernoulli", 3, 1e-12, 50)} == {1}
    assert Bernoulli(60, 0.1, 0).most(200) == max(len(one) for one in drawn("bernoulli", 60, 0.1, 200))


def test_replacement_draws_again_who_was_drawn() -> None:
    chosen = drawn("replacement", 5, 0.6)
    counts = Counter(itertools.chain.from_iterable(chosen))
    assert all(near(counts[client], 3 * ROUNDS, 1 / 5) for client in range(5))
    assert near(sum(len(set(found)) == 3 for found in chosen), ROUNDS, 4 / 5 * 3 / 5)
    assert near(sum(len(set(found)) == 1 for found in chosen), ROUNDS, 1 / 25)


def test_cyclic_groups_take_turns() -> None:
    """Eleven clients in three groups: disjoint, together everybody, each asked every third round, uniform inside."""
    chosen = drawn("cyclic:3", 11, 0.2)
    groups = [set(itertools.chain.from_iterable(chosen[turn::3])) for turn in range(3)]
    assert sorted(map(len, groups)) == [3, 4, 4]
    assert set().union(*groups) == set(range(11))
    for turn, group in enumerate(groups):
        counts = Counter(itertools.chain.from_iterable(chosen[turn::3]))
        assert all(near(counts[client], ROUNDS // 3, 2 / len(group)) for client in group)


def test_the_dynamic_set_turns_over_as_in_the_paper() -> None:
    """Of 500, 250 are active; every 100 rounds each is replaced with p = ½ by one of the other 250: 125 on average."""
    chosen = sampling(Scenario(clients=500, participation=0.02, sampling="dynamic"), 500)
    assert isinstance(chosen, Dynamic)
    stages = [chosen.active_at(100 * stage + 1) for stage in range(81)]
    assert all(len(set(active.tolist())) == 250 and active.min() >= 0 and active.max() < 500 for active in stages)
    replaced = [len(np.setdiff1d(before, after)) for before, after in itertools.pairwise(stages)]
    assert near(sum(replaced), 80 * 250, 0.5)
    assert np.std(replaced) == pytest.approx(math.sqrt(250 / 4), rel=0.4)  # each by itself: not a fixed number
    for before, after in itertools.pairwise(stages):
        places = np.flatnonzero(before != after)
        assert not set(after[places].tolist()) & set(before.tolist())  # whoever comes was not active
    for round in (1, 100, 101, 777):
        active = set(chosen.active_at(round).tolist())
        assert active == set(stages[(round - 1) // 100].tolist())
        assert len(chosen.draw(round)) == 10
        assert set(chosen.draw(round)) <= active
    counts = Counter(np.concatenate(stages).tolist())
    assert len(counts) == 500


def test_the_dynamic_set_replaces_no_more_than_there_are() -> None:
    stages = [Dynamic(10, 2, 0, 8, 1.0, 3).active_at(round) for round in (1, 3, 4, 7)]
    assert (stages[0] == stages[1]).all()
    assert [len(np.setdiff1d(stages[at], stages[at + 1])) for at in (1, 2)] == [2, 2]
    still = Dynamic(10, 2, 0, 8, 0.0, 1)
    assert (still.active_at(1) == still.active_at(40)).all()


def test_the_authors_sequences() -> None:
    """What their programs draw with seed 0 (and GradMA's, whose generator has seed 657 by then)."""
    assert drawn("authors", 100, 0.05, 3) == [[26, 86, 2, 55, 75], [18, 29, 64, 92, 72], [42, 96, 58, 14, 72]]
    assert drawn("authors", 500, 0.02, 2) == [
        [90, 254, 283, 445, 461, 15, 316, 489, 159, 153],
        [277, 307, 436, 88, 261, 57, 413, 459, 398, 201],
    ]
    assert drawn("authors", 500, 0.01, 2) == [[90, 254, 283, 445, 461], [277, 307, 436, 88, 261]]
    assert drawn("authors", 100, 0.01, 3) == [[26], [18], [42]]
    assert drawn("authors:657", 100, 0.1, 2) == [
        [88, 8, 62, 0, 30, 91, 89, 51, 4, 46],
        [60, 62, 0, 61, 33, 67, 43, 28, 37, 6],
    ]
    assert drawn("authors", 4, 1.0, 2) == [[0, 1, 2, 3]] * 2
    late = Authors(100, 5, 0)
    assert (late.draw(3), late.draw(1)) == ([42, 96, 58, 14, 72], [26, 86, 2, 55, 75])


WRONG = {
    "nonsense": ({"sampling": "nonsense"}, r"no sampling 'nonsense' \(fixed, bernoulli, .*authors\[:OFFSET\]\)"),
    "a slip": ({"sampling": "dinamic"}, "did you mean 'dynamic'"),
    "an argument too many": ({"sampling": "full:3"}, "no sampling 'full:3'"),
    "cyclic alone": ({"sampling": "cyclic"}, "write cyclic:GROUPS"),
    "no groups": ({"sampling": "cyclic:0"}, "write cyclic:GROUPS"),
    "half groups": ({"sampling": "cyclic:2.5"}, "write cyclic:GROUPS"),
    "too many groups": ({"sampling": "cyclic:7"}, "more groups than the 6 clients"),
    "a small group": ({"sampling": "cyclic:4"}, "participation 0.5 asks 3 clients a round, .* has 1 to ask; use a sm"),
    "another pool": ({"sampling": "dynamic"}, r"a pool of 500 clients, but there are 6; .*dynamic:6,3,0\.5,100"),
    "more active than there are": ({"sampling": "dynamic:6,7,0.5,10"}, "1 ≤ ACTIVE ≤ POOL"),
    "a probability above one": ({"sampling": "dynamic:6,3,1.5,10"}, "a probability from 0 to 1"),
    "no probability": ({"sampling": "dynamic:6,3,nan,10"}, "a probability from 0 to 1"),
    "never": ({"sampling": "dynamic:6,3,0.5,0"}, "EVERY rounds from 1"),
    "three numbers": ({"sampling": "dynamic:6,3,0.5"}, "write dynamic:POOL,ACTIVE,PROBABILITY,EVERY"),
    "five numbers": ({"sampling": "dynamic:6,3,0.5,1,1"}, "write dynamic:POOL,ACTIVE,PROBABILITY,EVERY"),
    "few active": ({"sampling": "dynamic:6,2,0.5,10"}, "asks 3 clients a round, but .* has 2 to ask"),
    "an offset in words": ({"sampling": "authors:x"}, "write authors or authors:OFFSET"),
    "a seed too large": ({"sampling": "authors", "seed": 2**32}, r"seeds below 2\^32"),
    "nobody left to ask": ({"over_selection": 1.5}, "over_selection 1.5 asks 8 clients .* has 6 to ask; .*--over-sel"),
    "over-selection of all": ({"sampling": "full", "over_selection": 0.5}, "over_selection needs a number"),
    "over-selection of a random number": ({"sampling": "bernoulli", "over_selection": 0.5}, "over_selection needs a"),
    "dropout one": ({"dropout": 1.0}, "dropout is 1.0; it must be below 1"),
    "dropout below zero": ({"dropout": -0.1}, "dropout is -0.1; it must be at least 0"),
    "another straggler": ({"stragglers": "late"}, "stragglers is 'late'; allowed: lost, partial"),
    "over-selection below zero": ({"over_selection": -0.5}, "over_selection is -0.5; it must be at least 0"),
    "a memory for fewer": ({"sampling": "full"}, "memory is 3, less than the 6 clients of a round"),
    "a memory for fewer than come": (
        {"sampling": "bernoulli", "rounds": 200},
        "memory is 3, less than the 6 clients of a round",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_work_is_said_in_one_line(case: str) -> None:
    given, message = WRONG[case]
    with pytest.raises(UserError, match=message) as refused:
        world("gradma-s:memory=3" if "memory" in case else "fedavg", **given)
    assert "\n" not in str(refused.value)


# Stragglers.


def turned_out(asked: int, places: int, round: int, steps: int = 9, **given: Any) -> Turnout:
    scenario = Scenario(**given)
    return turnout(scenario, list(range(100, 100 + asked)), places, lambda client: steps, round)


def test_clients_drop_out_as_often_as_told() -> None:
    """Each with its probability, by itself; the same ones whether their work is lost or partial."""
    found = [turned_out(5, 5, round, dropout=0.3) for round in range(ROUNDS)]
    counts = Counter(client for one in found for client in one.clients)
    assert all(near(counts[client], ROUNDS, 0.7) for client in range(100, 105))
    sizes = Counter(one.lost for one in found)
    assert all(near(sizes[lost], ROUNDS, math.comb(5, lost) * 0.3**lost * 0.7 ** (5 - lost)) for lost in range(6))
    assert all(one.asked == 5 and one.late == 0 and not one.cut for one in found)
    for round, one in enumerate(found[:200]):
        assert set(turned_out(5, 5, round, dropout=0.6).clients) <= set(one.clients)
        kept = turned_out(5, 5, round, dropout=0.3, stragglers="partial")
        assert kept.clients == (100, 101, 102, 103, 104)
        assert {kept.clients[place] for place in kept.cut} == set(kept.clients) - set(one.clients)


def test_partial_work_is_some_of_the_steps_and_never_all() -> None:
    """K′ is uniform on 1 … K−1; with one step there is no part of it."""
    cuts = [
        steps
        for round in range(ROUNDS)
        for steps in turned_out(4, 4, round, steps=5, dropout=0.5, stragglers="partial").cut.values()
    ]
    counts = Counter(cuts)
    assert set(counts) == {1, 2, 3, 4}
    assert all(near(count, len(cuts), 1 / 4) for count in counts.values())
    single = [turned_out(4, 4, round, steps=1, dropout=0.5, stragglers="partial") for round in range(100)]
    assert sum(one.lost for one in single) > 100
    assert not any(one.cut for one in single)


def test_of_those_asked_the_first_to_finish_count() -> None:
    """Four places of six asked: filled whenever four finish, by everybody equally often; partial work comes last."""
    found = [turned_out(6, 4, round, dropout=0.2) for round in range(ROUNDS)]
    assert all(len(one.clients) == min(4, 6 - one.lost) and one.asked == 6 for one in found)
    assert all(one.clients == tuple(sorted(one.clients)) for one in found)
    counts = Counter(client for one in found for client in one.clients)
    mean = sum(counts.values()) / 6 / ROUNDS
    assert all(near(counts[client], ROUNDS, mean) for client in range(100, 106))
    for round, one in enumerate(found):
        other = turned_out(6, 4, round, dropout=0.2, stragglers="partial")
        assert len(other.clients) == 4
        assert len(other.cut) == max(one.lost - 2, 0)
        assert (other.lost, other.late) == (0, 2)


def test_nobody_drops_out_by_default() -> None:
    assert turned_out(5, 5, 1) == Turnout((100, 101, 102, 103, 104))


def test_second_draws_come_in_a_second_wave() -> None:
    assert Turnout((3, 5, 3, 1, 3, 5)).waves == [[0, 1, 3], [2, 5], [4]]
    assert Turnout(()).waves == []


# In a run.

STRAGGLING = {"dropout": 0.5, "stragglers": "partial", "batches": "continued", "epochs": 1, "rounds": 3}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_stragglers_and_executors_agree(name: str) -> None:
    """Within 1e-10 in float64, client states included."""
    chosen = world(name, "batch_norm_dropout", **STRAGGLING)
    (mine, one), (theirs, two) = ((ClientStates(), kind) for kind in ("serial", "batched"))
    (reference, end), (records, other) = played(chosen, one, mine), played(chosen, two, theirs)
    assert distance([end.model.theta, end.model.server], [other.model.theta, other.model.server]) < 1e-10
    assert mine.states.keys() == theirs.states.keys()
    assert all(distance(mine.states[client], theirs.states[client]) < 1e-10 for client in mine.states)
    for left, right in zip(reference, records, strict=True):
        assert [left[key] for key in ("clients", "lost", "partial", "bytes_up", "steps")] == [
            right[key] for key in ("clients", "lost", "partial", "bytes_up", "steps")
        ]
    if name not in ("csgd", "cnag"):
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
    chosen = world(name, "group_norm", **given)
    mine, theirs = ClientStates(), ClientStates()
    (reference, end), (records, other) = played(chosen, "serial", mine), played(chosen, executor, theirs)
    assert distance([end.model.theta, end.model.server], [other.model.theta, other.model.server]) < 1e-10
    assert all(distance(mine.states[client], theirs.states[client]) < 1e-10 for client in mine.states)
    assert [record["clients"] for record in reference] == [record["clients"] for record in records]


def test_bytes_and_steps_are_counted_honestly() -> None:
    """All who were asked have received the download; up goes, and steps count, what reached the server."""
    plain, _ = played(world("scaffold", rounds=1))
    down, up = plain[0]["bytes_down"] // 3, plain[0]["bytes_up"] // 3
    given = {"dropout": 0.4, "stragglers": "partial", "participation": 0.34, "over_selection": 1.0, "rounds": 12}
    chosen = world("scaffold", **given)
    records, _ = played(chosen)
    assert {record["lost"] for record in records} == {0}  # nobody has a single step
    for record, found in ((record, chosen.turnout(record["round"])) for record in records):
        assert tuple(record["clients"]) == found.clients
        assert len(found.clients) + found.late == found.asked == 4
        assert record["bytes_down"] == 4 * down
        assert record["bytes_up"] == 2 * up
        whole = [planned(chosen.scenario, SIZES[client]) for client in found.clients]
        assert record["steps"] == sum(found.cut.get(place, steps) for place, steps in enumerate(whole))
        assert record["partial"] == len(found.cut)
        assert all(found.cut[place] < whole[place] for place in found.cut)
    assert {record["partial"] for record in records} > {0}
    assert records[-1]["bytes_down_total"] == 12 * 4 * down


@pytest.mark.parametrize("name", ["fedacg", "scaffold", "gradma-s", "mifa"])
def test_lost_clients_are_as_if_never_asked(name: str) -> None:
    """The mean is over those who arrived, and what a lost client keeps is what it had."""
    chosen = world(name, dropout=0.4, rounds=6, batches="continued")
    store, other = ClientStates(), ClientStates()
    records, end = played(chosen, store=store)
    assert {record["lost"] for record in records} > {1}
    model = rounds.start(chosen)
    with chosen.arithmetic():
        for number, record in enumerate(records, 1):
            if record["clients"]:
                model, _ = rounds.play(chosen, model, other, Serial(chosen.rules), record["clients"], number)
    assert distance([model.theta, model.server], [end.model.theta, end.model.server]) == 0
    assert store.states.keys() == other.states.keys()
    assert all(distance(store.states[client], other.states[client]) == 0 for client in store.states)


def test_a_round_in_which_all_are_lost_changes_nothing_and_is_recorded() -> None:
    chosen = world("scaffold", "batch_norm_dropout", dropout=0.9, rounds=30)
    store, progress = ClientStates(), None
    empty = 0
    for record, after in simulate(chosen, Serial(chosen.rules), store, headway.engine.simulation.begin(chosen)):
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
    seed = next(seed for seed in range(50) if not world("fedavg", dropout=0.9, seed=seed).turnout(1).clients)
    chosen = world("fedavg", dropout=0.9, seed=seed, deterministic=True)
    executor = choose(chosen, "auto", lambda message: None)
    assert executor.name == "batched"
    executor.close()


# Drawn twice.


@pytest.mark.parametrize("weights", ["size", "uniform"])
def test_a_client_drawn_twice_trains_twice_and_the_servers_halves_stay_right(weights: str) -> None:
    """SCAFFOLD's c = Σ p_i c_i and MIFA's G = Σ p_i Δ_i^last hold after rounds with double draws."""
    for name, key, kept in (("scaffold", "control", "c"), ("mifa", "latest", "delta")):
        chosen = world(name, sampling="replacement", participation=1.0, weights=weights, rounds=4)
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
    chosen = world("fedavg")
    hand = Serial(chosen.rules)
    with chosen.arithmetic():
        model = rounds.start(chosen)
        once, single = rounds.play(chosen, model, ClientStates(), hand, [3], 1)
        twice, double = rounds.play(chosen, model, ClientStates(), hand, [3, 3], 1)
        assert (double.steps, double.bytes_up, double.bytes_down) == (
            2 * single.steps,
            2 * single.bytes_up,
            2 * single.bytes_down,
        )
        assert distance(once.theta, twice.theta) > 1e-6
        second = 2 * twice.theta - once.theta  # the mean of two turns, each from the same received model
        moved = (second - model.theta).norm() / (once.theta - model.theta).norm()
        assert 0.5 < float(moved) < 2
        streaming = world("fedavg", batches="continued")
        store = ClientStates()
        rounds.play(streaming, model, store, hand, [3, 1, 3], 1)
    steps = planned(streaming.scenario, SIZES[3]), planned(streaming.scenario, SIZES[1])
    assert (int(store.states[3]["cursor"]), int(store.states[1]["cursor"])) == (2 * steps[0], steps[1])


def test_each_upload_is_told_with_its_client() -> None:
    """A server that sees every upload has them in the order of the clients, second draws included."""
    chosen = world("gradma-s:memory=6")
    with chosen.arithmetic():
        model = rounds.start(chosen)
        after, outcome = rounds.play(chosen, model, ClientStates(), Serial(chosen.rules), [2, 4, 2], 1)
        alone, _ = rounds.play(chosen, rounds.start(chosen), ClientStates(), Serial(chosen.rules), [4], 1)
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
    plain, end = played(world("csgd"))
    given = {"sampling": "dynamic", "dropout": 0.9, "over_selection": 3.0}
    records, other = played(world("csgd", **given))
    assert distance(end.model.theta, other.model.theta) == 0
    assert [record["clients"] for record in records] == [record["clients"] for record in plain] == [(0,)] * 4


def test_a_method_that_wants_everybody_has_them() -> None:
    assert world("fednag", participation=None).sampling.draw(1) == list(range(6))
    assert len(world("fednag", participation=None, sampling="bernoulli").sampling.draw(1)) == 6


def test_a_memory_needs_room_only_for_those_that_count() -> None:
    records, _ = played(world("gradma-s:memory=3", over_selection=1.0, dropout=0.2))
    assert max(len(record["clients"]) for record in records) == 3


CAPTIONS = {
    "6 of 60 clients a round": {},
    "4.5 of 60 clients a round on average": {"sampling": "bernoulli", "participation": 0.075},
    "6 of 60 clients a round, with replacement": {"sampling": "replacement"},
    "60 of 60 clients a round": {"sampling": "full"},
    "6 of 60 clients a round, 5 groups in turn": {"sampling": "cyclic:5"},
    "10 of 500 clients a round, 250 active": {"sampling": "dynamic", "clients": 500, "participation": 0.02},
    "6 of 60 clients a round, 20 active": {"sampling": "dynamic:60,20,0.5,10"},
    "6 of 60 clients a round, 8 asked, 10 % drop out": {"over_selection": 0.3, "dropout": 0.1},
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
    records = numbers(tmp_path / "run")
    assert sum(record["partial"] for record in records) > 0
    assert sum(record["late"] for record in records) > 0
    active = Dynamic(6, 3, SMALL.seed, 4, 0.5, 2)
    assert all(set(record["clients"]) <= set(active.active_at(record["round"]).tolist()) for record in records)
    assert len({tuple(sorted(active.active_at(round).tolist())) for round in range(1, 13)}) > 2


@pytest.mark.parametrize("spelled", ["bernoulli", "replacement", "cyclic:2", "dynamic:6,4,0.5,2", "authors"])
@pytest.mark.parametrize("executor", ["serial", "batched"])
def test_every_kind_resumes_exactly(spelled: str, executor: str, tmp_path: Path) -> None:
    """Three rounds, a checkpoint on disk and three more in a new world are the bits of six rounds."""
    given = {"sampling": spelled, "dropout": 0.4, "stragglers": "partial", "batches": "continued", "participation": 0.4}
    straight, end = played(world("scaffold", **given, rounds=6), executor)
    store = ClientStates()
    first, halfway = played(world("scaffold", **given, rounds=3), executor, store)
    chosen = world("scaffold", **given, rounds=6)
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
