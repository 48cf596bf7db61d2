"""Who takes part in a round: every kind counted, stragglers and over-selection."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import experiment
from headway.data import participation
from headway.data.cohort import Cohort, cohort_of
from headway.data.participation import (
    SAMPLINGS,
    Authors,
    Bernoulli,
    Cyclic,
    Dynamic,
    SamplingEntry,
    cohort,
    in_words,
    sampling,
    wanted,
)
from headway.errors import UserError
from headway.scenario import Scenario

ROUNDS = 3000


def drawn(spelled: str, clients: int, share: float, rounds: int = ROUNDS, seed: int = 0) -> list[list[int]]:
    """The clients invited in rounds 1, 2, …"""
    chosen = sampling(Scenario(clients=clients, participation=share, sampling=spelled, seed=seed), clients)
    return [chosen.draw(round) for round in range(1, rounds + 1)]


def near(count: float, trials: int, p: float) -> bool:
    """Within 4.5 deviations of what a binomial has."""
    return abs(count - trials * p) < 4.5 * math.sqrt(trials * p * (1 - p))


# Every kind.

KINDS = ["fixed", "bernoulli", "poisson", "replacement", "full", "cyclic:3", "dynamic:12,7,0.4,5", "authors"]


@pytest.mark.parametrize("spelled", KINDS)
@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 4), seed=st.integers(0, 2**31), asked=st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_a_cohort_is_fixed_by_seed_and_round_in_any_order_of_calls(
    spelled: str, size: int, seed: int, asked: list[int]
) -> None:
    scenario = Scenario(clients=12, participation=size / 12, sampling=spelled, seed=seed)
    together = sampling(scenario, 12)
    for round in asked:
        found = together.draw(round)
        assert found == sampling(scenario, 12).draw(round)
        assert found or spelled == "poisson"
        assert all(type(client) is int and 0 <= client < 12 for client in found)
        assert spelled == "replacement" or len(set(found)) == len(found)
        assert spelled in ("bernoulli", "poisson", "full") or len(found) == size
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


def test_poisson_takes_clients_one_by_one_and_perhaps_nobody() -> None:
    """q for each client, q² for each pair, and |S| as a binomial has it, none among them."""
    q = 0.3
    chosen = drawn("poisson", 6, q)
    singles = Counter(itertools.chain.from_iterable(chosen))
    assert all(near(singles[client], ROUNDS, q) for client in range(6))
    pairs = Counter(pair for found in chosen for pair in itertools.combinations(found, 2))
    assert all(near(pairs[pair], ROUNDS, q**2) for pair in itertools.combinations(range(6), 2))
    sizes = Counter(map(len, chosen))
    assert sizes[0] > 0
    for size in range(7):
        assert near(sizes[size], ROUNDS, math.comb(6, size) * q**size * (1 - q) ** (6 - size))
    assert all(found == sorted(set(found)) for found in chosen)
    assert drawn("poisson", 6, 1.0, 3) == [list(range(6))] * 3
    assert drawn("poisson", 6, 1e-12, 3) == [[]] * 3
    few = sampling(Scenario(clients=6, participation=1e-12, sampling="poisson"), 6)
    assert few.most(3) == 1
    assert few.most(10**9) == 6


@pytest.mark.parametrize(
    ("spelled", "planned"),
    [("fixed", 2), ("full", 12), ("poisson", 2.4), ("bernoulli", 2.4), ("cyclic:3", 2), ("own", 2)],
)
def test_how_many_clients_a_round_is_planned_to_have(spelled: str, planned: float) -> None:
    assert wanted(Scenario(clients=12, participation=0.2, sampling=spelled)) == pytest.approx(planned)


def test_replacement_draws_again_who_was_drawn() -> None:
    chosen = drawn("replacement", 5, 0.6)
    counts = Counter(itertools.chain.from_iterable(chosen))
    assert all(near(counts[client], 3 * ROUNDS, 1 / 5) for client in range(5))
    assert near(sum(len(set(found)) == 3 for found in chosen), ROUNDS, 4 / 5 * 3 / 5)
    assert near(sum(len(set(found)) == 1 for found in chosen), ROUNDS, 1 / 25)


def test_cyclic_groups_take_turns() -> None:
    """Eleven clients in three groups: disjoint, together everybody, each invited every third round, uniform inside."""
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
        assert not set(after[places].tolist()) & set(before.tolist())  # those that come were not active
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
    "a small group": (
        {"sampling": "cyclic:4"},
        "participation 0.5 invites 3 clients a round, .* has 1 to invite; use a sm",
    ),
    "another pool": ({"sampling": "dynamic"}, r"a pool of 500 clients, but there are 6; .*dynamic:6,3,0\.5,100"),
    "more active than there are": ({"sampling": "dynamic:6,7,0.5,10"}, "1 ≤ ACTIVE ≤ POOL"),
    "a probability above one": ({"sampling": "dynamic:6,3,1.5,10"}, "a probability from 0 to 1"),
    "no probability": ({"sampling": "dynamic:6,3,nan,10"}, "a probability from 0 to 1"),
    "never": ({"sampling": "dynamic:6,3,0.5,0"}, "EVERY rounds from 1"),
    "three numbers": ({"sampling": "dynamic:6,3,0.5"}, "write dynamic:POOL,ACTIVE,PROBABILITY,EVERY"),
    "five numbers": ({"sampling": "dynamic:6,3,0.5,1,1"}, "write dynamic:POOL,ACTIVE,PROBABILITY,EVERY"),
    "few active": ({"sampling": "dynamic:6,2,0.5,10"}, "invites 3 clients a round, but .* has 2 to invite"),
    "an offset in words": ({"sampling": "authors:x"}, "write authors or authors:OFFSET"),
    "a seed too large": ({"sampling": "authors", "seed": 2**32}, r"seeds below 2\^32"),
    "nobody left to invite": (
        {"over_selection": 1.5},
        "over_selection 1.5 invites 8 clients .* has 6 to invite; .*--over-sel",
    ),
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
        experiment("gradma-s:memory=3" if "memory" in case else "fedavg", **given)
    assert "\n" not in str(refused.value)


class Alternating:
    """The even clients in odd rounds, client 1 twice in even ones."""

    def draw(self, round: int) -> Any:
        return [1, 1] if round % 2 == 0 else np.arange(0, 6, 2)

    def most(self, rounds: int) -> int:
        return 3


def drawing(draw: Any = None, most: Any = 3) -> Any:
    """A sampling object that draws the same in every round, or calls what is given."""
    return SimpleNamespace(draw=draw if callable(draw) else lambda round: draw, most=lambda rounds: most)


def failing(round: int) -> list[int]:
    raise KeyError("no such round")


def test_an_own_object_draws_what_it_says() -> None:
    chosen = sampling(Scenario(clients=6, sampling="own"), 6, Alternating())
    assert [chosen.draw(round) for round in (2, 1, 2)] == [[1, 1], [0, 2, 4], [1, 1]]
    assert all(type(client) is int for client in chosen.draw(1))
    assert chosen.most(80) == 3
    assert sampling(Scenario(clients=6), 6, Alternating()).draw(1) == [0, 2, 4]


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ("cyclic:4", "give a name such as 'cyclic:4' or an object with the methods"),
        (Alternating, "or an object with the methods draw"),
        (7, "sampling is 7; give a name"),
        (SimpleNamespace(draw=failing), "or an object with the methods draw"),
        (drawing([]), r"draw\(1\) of the own sampling names 0 clients; it must name at least one"),
        (drawing([0, 1, 2, 3]), r"names 4 clients; .* at most the 3 that most\(80\) says"),
        (drawing([6]), "names 6; clients are whole numbers from 0 to 5"),
        (drawing([-1]), "names -1; clients are whole numbers"),
        (drawing([1.0]), r"names 1\.0; clients are whole numbers"),
        (drawing([True]), "names True; clients are whole numbers"),
        (drawing(3), r"draw\(1\) of the own sampling raised TypeError"),
        (drawing(failing), r"draw\(1\) of the own sampling raised KeyError: 'no such round'"),
        (drawing([0], most=0), r"most\(80\) of the own sampling is 0; it must be a whole number from 1 on"),
        (drawing([0], most="many"), "of the own sampling is 'many'"),
    ],
)
def test_an_own_object_that_cannot_work_is_said_in_one_line(own: Any, words: str) -> None:
    with pytest.raises(UserError, match=words) as refused:
        sampling(Scenario(clients=6), 6, own).draw(1)
    assert "\n" not in str(refused.value)


def test_an_own_object_is_not_added_to_and_not_named() -> None:
    with pytest.raises(
        UserError, match="over_selection needs a number of clients to add to, and sampling 'own' has no"
    ):
        sampling(Scenario(clients=6, over_selection=0.5), 6, Alternating())
    with pytest.raises(UserError, match="sampling is 'own', an object that was passed in Python; pass it again"):
        sampling(Scenario(clients=6, sampling="own"), 6)
    assert in_words(Scenario(sampling="own", dropout=0.1)) == (
        "clients by a sampling of the user's, out of 60, 10 % drop out"
    )


def test_a_new_line_of_the_table_is_found_by_its_name_and_by_the_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    line = SamplingEntry(lambda scenario, population, step: Cyclic(population, 1, 0, int(step or 2)), "…", "[:STEP]")
    monkeypatch.setattr(participation, "SAMPLINGS", {**SAMPLINGS, "striding": line})
    assert sampling(Scenario(sampling="striding:6"), 6).draw(3) == [2]
    assert in_words(Scenario(sampling="striding")) == "6 of 60 clients a round"
    with pytest.raises(UserError, match=r"no sampling 'strding'; did you mean 'striding'\? \(fixed, .*striding\[:STEP"):
        sampling(Scenario(sampling="strding"), 6)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_every_line_of_the_table_says_what_it_does(name: str) -> None:
    assert 0 < len(SAMPLINGS[name].help) < 110


# Stragglers.


def turned_out(asked: int, places: int, round: int, steps: int = 9, **given: Any) -> Cohort:
    scenario = Scenario(**given)
    return cohort_of(scenario, list(range(100, 100 + asked)), places, lambda client: steps, round)


def test_clients_drop_out_as_often_as_told() -> None:
    """Each with its probability, by itself; the same ones whether their work is lost or partial."""
    found = [turned_out(5, 5, round, dropout=0.3) for round in range(ROUNDS)]
    counts = Counter(client for one in found for client in one.clients)
    assert all(near(counts[client], ROUNDS, 0.7) for client in range(100, 105))
    sizes = Counter(one.lost for one in found)
    assert all(near(sizes[lost], ROUNDS, math.comb(5, lost) * 0.3**lost * 0.7 ** (5 - lost)) for lost in range(6))
    assert all(one.invited == 5 and one.late == 0 and not one.truncated for one in found)
    for round, one in enumerate(found[:200]):
        assert set(turned_out(5, 5, round, dropout=0.6).clients) <= set(one.clients)
        kept = turned_out(5, 5, round, dropout=0.3, stragglers="partial")
        assert kept.clients == (100, 101, 102, 103, 104)
        assert {kept.clients[place] for place in kept.truncated} == set(kept.clients) - set(one.clients)


def test_partial_work_is_some_of_the_steps_and_never_all() -> None:
    """K′ is uniform on 1 … K−1; with one step there is no part of it."""
    cuts = [
        steps
        for round in range(ROUNDS)
        for steps in turned_out(4, 4, round, steps=5, dropout=0.5, stragglers="partial").truncated.values()
    ]
    counts = Counter(cuts)
    assert set(counts) == {1, 2, 3, 4}
    assert all(near(count, len(cuts), 1 / 4) for count in counts.values())
    single = [turned_out(4, 4, round, steps=1, dropout=0.5, stragglers="partial") for round in range(100)]
    assert sum(one.lost for one in single) > 100
    assert not any(one.truncated for one in single)


def test_of_those_invited_the_first_to_finish_count() -> None:
    """Four places of six invited: filled whenever four finish, by everybody equally often; partial work comes last."""
    found = [turned_out(6, 4, round, dropout=0.2) for round in range(ROUNDS)]
    assert all(len(one.clients) == min(4, 6 - one.lost) and one.invited == 6 for one in found)
    assert all(one.clients == tuple(sorted(one.clients)) for one in found)
    counts = Counter(client for one in found for client in one.clients)
    mean = sum(counts.values()) / 6 / ROUNDS
    assert all(near(counts[client], ROUNDS, mean) for client in range(100, 106))
    for round, one in enumerate(found):
        other = turned_out(6, 4, round, dropout=0.2, stragglers="partial")
        assert len(other.clients) == 4
        assert len(other.truncated) == max(one.lost - 2, 0)
        assert (other.lost, other.late) == (0, 2)


def test_nobody_drops_out_by_default() -> None:
    assert turned_out(5, 5, 1) == Cohort((100, 101, 102, 103, 104))


def test_second_draws_come_in_a_second_wave() -> None:
    assert Cohort((3, 5, 3, 1, 3, 5)).turns == ((0, 1, 3), (2, 5), (4,))
    assert Cohort(()).turns == ()
