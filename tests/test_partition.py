"""Every split gives every sample to one client or says what it leaves out or repeats, keeps its sizes, and follows its
seed.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from headway.data import partition
from headway.data.own_split import Rows
from headway.data.partition import PARTITIONS, Number, Partition, spelled, split
from headway.data.statistics import class_counts
from headway.data.statistics import sizes as sizes_of
from headway.engine.building import build
from headway.errors import UserError
from headway.methods.spelling import method
from headway.scenario import COUNTING_PARTITIONS, scenario

quick = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

DRAWN = ("iid", "dirichlet", "gradma", "shards", "quantity")
"""Those that draw: they cover all samples, and another seed gives another split."""


@st.composite
def federations(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Labels with odd counts, also of classes that nobody has, and a number of clients that can be served."""
    counts = draw(st.lists(st.integers(0, 23), min_size=1, max_size=7).filter(lambda counts: sum(counts) > 0))
    labels = np.repeat(np.arange(len(counts)), counts)
    labels = np.random.default_rng(draw(st.integers(0, 99))).permutation(labels)
    labels.flags.writeable = False
    return labels, draw(st.integers(1, len(labels)))


@st.composite
def spellings(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(DRAWN))
    if name == "iid":
        return name
    if name == "shards":
        return f"shards:{draw(st.integers(1, 4))}"
    return f"{name}:{draw(st.sampled_from(['1e-9', '0.01', '0.3', '1', '100', '1e9']))}"


SEEDS = st.integers(0, 2**32)


def least(spelled: str) -> int:
    """Samples that a split needs for each client."""
    name, _, argument = spelled.partition(":")
    return {"gradma": 2, "shards": int(argument) if name == "shards" else 0}.get(name, 1)


def even(samples: int, parts: int) -> list[int]:
    return [samples // parts + (part < samples % parts) for part in range(parts)]


def sizes(shares: Rows) -> list[int]:
    return [len(share) for share in shares]


def same(one: Rows, other: Rows) -> bool:
    return all(np.array_equal(first, second) for first, second in zip(one, other, strict=True))


class TestEverySplit:
    @quick
    @given(federations(), spellings(), SEEDS)
    @example((np.zeros(1, int), 1), "dirichlet:0.3", 0)
    @example((np.array([3, 3]), 1), "gradma:0.01", 0)
    @example((np.array([0] * 3 + [1] * 50), 20), "dirichlet:0.3", 0)
    @example((np.array([0] * 3 + [6] * 50), 20), "gradma:0.01", 0)
    def test_every_sample_has_one_owner_and_nobody_is_empty(
        self, given: tuple[np.ndarray, int], spelled: str, seed: int
    ) -> None:
        labels, clients = given
        assume(clients * least(spelled) <= len(labels))
        shares = split(spelled, labels, clients, seed)
        assert len(shares) == clients
        assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(len(labels)))
        assert min(sizes(shares)) >= (2 if spelled.startswith("gradma") else 1)

    @quick
    @given(federations(), spellings(), SEEDS)
    def test_sizes_are_as_promised(self, given: tuple[np.ndarray, int], spelled: str, seed: int) -> None:
        labels, clients = given
        assume(clients * least(spelled) <= len(labels))
        found = sizes(split(spelled, labels, clients, seed))
        name, _, argument = spelled.partition(":")
        if name in ("iid", "dirichlet"):
            assert found == even(len(labels), clients)
        if name == "shards":
            each = int(argument)
            shard = len(labels) // (clients * each)
            assert all(each * shard <= size <= each * (shard + 1) for size in found)

    @quick
    @given(federations(), spellings(), SEEDS)
    def test_the_same_seed_gives_the_same_split(self, given: tuple[np.ndarray, int], spelled: str, seed: int) -> None:
        labels, clients = given
        assume(clients * least(spelled) <= len(labels))
        assert same(split(spelled, labels, clients, seed), split(spelled, labels, clients, seed))

    @pytest.mark.parametrize("spelled", ["iid", "dirichlet:0.3", "gradma:0.3", "shards:2", "quantity:0.3"])
    def test_another_seed_gives_another_split(self, spelled: str) -> None:
        labels = np.repeat(np.arange(5), 20)
        found = {tuple(np.concatenate(split(spelled, labels, 7, seed))) for seed in range(20)}
        assert len(found) == 20

    @quick
    @given(federations(), spellings(), st.integers(1, 9))
    def test_too_few_samples_are_refused(self, given: tuple[np.ndarray, int], spelled: str, more: int) -> None:
        labels, _ = given
        clients = len(labels) // least(spelled) + more
        with pytest.raises(UserError, match=rf"{clients} clients|clients is {clients}, more than the"):
            split(spelled, labels, clients, 0)

    @pytest.mark.parametrize("name", ["dirichlet", "gradma", "quantity", "shards"])
    @pytest.mark.parametrize("argument", ["", "0", "-1", "nan", "inf", "much", "0.3:4"])
    def test_a_number_that_is_none_is_refused(self, name: str, argument: str) -> None:
        letter = {"gradma": "OMEGA", "shards": "C"}.get(name, "ALPHA")
        with pytest.raises(UserError, match=f"{name}:{letter} with {letter} above 0"):
            split(f"{name}:{argument}", np.zeros(5, int), 2, 0)

    def test_half_a_shard_is_refused(self) -> None:
        with pytest.raises(UserError, match="shards:C with C above 0, such as shards:2"):
            split("shards:1.5", np.zeros(5, int), 2, 0)

    @pytest.mark.parametrize(
        ("spelled", "words"),
        [
            ("dirichle:0.3", "did you mean 'dirichlet'"),
            ("natrual", "did you mean 'natural'"),
            ("iid:3", "iid, dirichlet:ALPHA"),
            ("natural:3", "do not belong to users"),
        ],
    )
    def test_another_name_is_refused(self, spelled: str, words: str) -> None:
        with pytest.raises(UserError, match=words):
            split(spelled, np.zeros(5, int), 2, 0)


MADE_BY_RULE = [name for name in PARTITIONS if name != "file"]
"""Every line of the table, also new ones, but for the one that reads a file."""


def example_of(name: str) -> str:
    """A line of the table with the argument that its error shows."""
    argument = PARTITIONS[name].argument
    return f"{name}:{argument.example}" if isinstance(argument, Number) else name


def split_or_refusal(spelled: str, labels: np.ndarray, clients: int, seed: int) -> Rows | str:
    try:
        return split(spelled, labels, clients, seed, users=np.arange(len(labels)) % max(clients, 1))
    except UserError as refusal:
        return str(refusal)


class TestEveryLineOfTheTable:
    @pytest.mark.parametrize("name", MADE_BY_RULE)
    def test_each_sample_has_at_most_one_owner_unless_it_says_so_and_everybody_has_a_sample(self, name: str) -> None:
        labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))
        labels.flags.writeable = False
        shares = split_or_refusal(example_of(name), labels, 20, 0)
        assert not isinstance(shares, str), shares
        owned = np.concatenate(shares)
        assert len(shares) == 20
        assert min(sizes(shares)) >= 1
        assert all(share.dtype.kind == "i" for share in shares)
        assert len(set(owned.tolist())) == len(owned) or PARTITIONS[name].repeats
        assert owned.min() >= 0
        assert owned.max() < len(labels)
        assert len(set(owned.tolist())) == len(labels) or "left out" in PARTITIONS[name].help

    @pytest.mark.parametrize("name", MADE_BY_RULE)
    def test_it_follows_its_seed_and_nothing_else(self, name: str) -> None:
        """Another seed gives another split, is refused, or does not matter to data that has its own users."""
        labels = np.repeat(np.arange(10), 60)
        first, again, other = (split_or_refusal(example_of(name), labels, 20, seed) for seed in (0, 0, 1))
        assert not isinstance(first, str)
        assert not isinstance(again, str)
        assert same(first, again)
        if isinstance(other, str):
            assert "split_seed is 1" in other
        else:
            assert same(first, other) == PARTITIONS[name].by_user

    @quick
    @given(federations(), st.sampled_from(MADE_BY_RULE), SEEDS)
    def test_what_it_cannot_split_is_refused_in_one_line(
        self, given: tuple[np.ndarray, int], name: str, seed: int
    ) -> None:
        labels, clients = given
        found = split_or_refusal(example_of(name), labels, clients, seed)
        if isinstance(found, str):
            assert "\n" not in found
        else:
            assert len(found) == clients
            assert min(sizes(found)) >= 1

    @pytest.mark.parametrize("name", PARTITIONS)
    def test_the_page_of_data_has_its_row(self, name: str) -> None:
        page = (Path(__file__).parents[1] / "docs" / "data.md").read_text(encoding="utf-8")
        assert f"| `{PARTITIONS[name].spelled(name)}` |" in page

    @pytest.mark.parametrize("name", [name for name in MADE_BY_RULE if name != "natural"])
    def test_it_has_a_place_in_the_name_of_a_scenario(self, name: str) -> None:
        spelled = example_of(name)
        short = spelled.replace("dirichlet:", "dir").replace(":", "")
        assert scenario(f"fashion/{short}/60x6").partition == spelled


class TestNumbersAsTargets:
    """Regression: what needs no classes works, what needs them says so."""

    @pytest.mark.parametrize("shape", [(30,), (30, 2)])
    @pytest.mark.parametrize("spelled", ["iid", "quantity:1"])
    def test_splits_without_classes(self, spelled: str, shape: tuple[int, ...]) -> None:
        shares = split(spelled, np.linspace(-1, 1, int(np.prod(shape))).reshape(shape), 4, 0)
        assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(30))

    def test_users_and_files_need_no_classes(self, tmp_path: Path) -> None:
        targets = np.linspace(-1, 1, 4)
        assert sizes(split("natural", targets, 2, 0, np.array([5, 5, 5, 2]))) == [1, 3]
        (tmp_path / "rows.json").write_text("[[3], [0, 1]]")
        assert sizes(split(f"file:{tmp_path / 'rows.json'}", targets, 2, 0)) == [1, 2]

    @pytest.mark.parametrize("shape", [(30,), (30, 2)])
    @pytest.mark.parametrize("spelled", ["dirichlet:0.3", "gradma:0.1", "shards:2"])
    def test_splits_by_class_are_refused(self, spelled: str, shape: tuple[int, ...]) -> None:
        words = "use iid, quantity:ALPHA, natural or file:PATH"
        with pytest.raises(UserError, match=f"'{spelled}', but the targets of this data set are not classes; {words}"):
            split(spelled, np.zeros(shape), 4, 0)


class TestIid:
    def test_each_client_has_the_mix_of_all(self) -> None:
        """Mean L1 distance to uniform of 1,000 draws from ten classes: 10 · √(2/π · .1 · .9 / 1000) = 0.0757."""
        labels = np.repeat(np.arange(10), 5000)
        mixes = [np.bincount(labels[share], minlength=10) / 1000 for share in split("iid", labels, 50, 0)]
        assert np.mean([np.abs(mix - 0.1).sum() for mix in mixes]) == pytest.approx(0.0757, rel=0.1)


def textbook(alpha: float, seed: int) -> np.ndarray:
    """Class counts of each client, drawn sample by sample: class c with probability ∝ p[c] · (how many are left)."""
    draw = np.random.default_rng(seed)
    left = np.full(10, 500)
    counts = np.zeros((100, 10), int)
    for client in range(100):
        p = draw.dirichlet(np.full(10, alpha))
        for coin in draw.random(50):
            odds = np.cumsum(p * left)
            chosen = int(np.searchsorted(odds, coin * odds[-1], side="right"))
            counts[client, chosen] += 1
            left[chosen] -= 1
    return counts


class TestDirichlet:
    @pytest.mark.parametrize("alpha", ["0.3", "0.6"])
    def test_it_is_the_split_that_draws_sample_by_sample(self, alpha: str) -> None:
        """Largest shares of the first 20 clients, the next 20, …: means over 30 splits, within 4 deviations."""
        labels = np.repeat(np.arange(10), 500)

        def ours(seed: int) -> np.ndarray:
            shares = split(f"dirichlet:{alpha}", labels, 100, seed)
            return np.stack([np.bincount(labels[share], minlength=10) for share in shares])

        def largest(counts: np.ndarray) -> np.ndarray:
            return (counts.max(1) / counts.sum(1)).reshape(5, 20).mean(1)

        found = np.stack([largest(ours(seed)) for seed in range(30)])
        expected = np.stack([largest(textbook(float(alpha), seed)) for seed in range(30)])
        deviation = np.sqrt((found.var(0, ddof=1) + expected.var(0, ddof=1)) / 30)
        assert np.all(np.abs(found.mean(0) - expected.mean(0)) < 4 * deviation)

    def test_a_large_alpha_is_almost_iid_and_a_small_one_almost_one_class(self) -> None:
        labels = np.repeat(np.arange(4), 1000)

        def largest(alpha: str) -> float:
            """The largest share of the first client, which finds every class whole; mean over 20 splits."""
            firsts = [split(f"dirichlet:{alpha}", labels, 10, seed)[0] for seed in range(20)]
            return float(np.mean([np.bincount(labels[share], minlength=4).max() / len(share) for share in firsts]))

        assert largest("1e6") < 0.3
        assert largest("1e-3") > 0.98


class TestGradma:
    def test_a_large_omega_is_even_in_every_class(self) -> None:
        """Each class gives n_c/N to each client, but for two samples that each takes first, and rounding."""
        labels = np.repeat(np.arange(5), [400, 40, 200, 0, 80])
        shares = split("gradma:1e9", labels, 20, 0)
        counts = np.stack([np.bincount(labels[share], minlength=5) for share in shares])
        assert np.all(np.abs(counts - np.array([20, 2, 10, 0, 4])) <= 2 + 2)
        assert max(sizes(shares)) - min(sizes(shares)) <= 8

    def test_a_small_omega_gives_each_class_to_one_client(self) -> None:
        """All but the samples taken first: 100 of 10,000, at random among ten classes."""
        labels = np.repeat(np.arange(10), 1000)
        shares = split("gradma:1e-6", labels, 50, 0)
        held = np.stack([np.bincount(labels[share], minlength=10) for share in shares]).max(0)
        assert np.all(held > 960)
        assert sizes(shares).count(2) >= 40


class TestShards:
    def test_a_client_has_as_many_classes_as_shards(self) -> None:
        labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 100))
        for each in (1, 2, 5):
            shares = split(f"shards:{each}", labels, 20, 0)
            assert sizes(shares) == [50] * 20
            assert max(len(set(labels[share])) for share in shares) == each


class TestQuantity:
    def test_a_large_alpha_is_even_and_a_small_one_gives_all_to_one(self) -> None:
        labels = np.zeros(1003, int)
        assert sorted(Counter(sizes(split("quantity:1e9", labels, 10, 0)))) == [100, 101]
        assert max(sizes(split("quantity:1e-6", labels, 10, 0))) >= 1003 - 9 - 5

    def test_classes_are_at_random(self) -> None:
        labels = np.repeat(np.arange(2), 5000)
        shares = [share for share in split("quantity:1", labels, 5, 0) if len(share) > 500]
        assert len(shares) > 1
        for share in shares:
            assert labels[share].mean() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(len(share)))


USERS = st.one_of(
    st.lists(st.integers(-3, 12), min_size=1, max_size=60).map(np.array),
    st.lists(st.sampled_from(["ROMEO", "JULIET", "NURSE", "é"]), min_size=1, max_size=30).map(np.array),
)


class TestNatural:
    @quick
    @given(USERS, st.data())
    def test_each_user_is_a_client_and_the_first_ones_take_part(self, users: np.ndarray, data: st.DataObject) -> None:
        names = np.unique(users)
        clients = data.draw(st.integers(1, len(names)))
        shares = split("natural", np.zeros(len(users), int), clients, 0, users)
        assert len(shares) == clients
        for name, share in zip(names[:clients], shares, strict=True):
            assert np.array_equal(share, np.flatnonzero(users == name))
        everybody = split("natural", np.zeros(len(users), int), 0, 0, users)
        assert len(everybody) == len(names)
        assert same(everybody[:clients], shares)

    @pytest.mark.parametrize(
        ("users", "words"),
        [(None, "do not belong to users"), (np.array([4, 4, 2]), "the data has 2 users; use --clients 2 or fewer")],
    )
    def test_too_few_users_are_refused(self, users: np.ndarray | None, words: str) -> None:
        with pytest.raises(UserError, match=words):
            split("natural", np.zeros(3, int), 3, 0, users)


@st.composite
def lists_of_rows(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    samples = draw(st.integers(1, 40))
    order = draw(st.permutations(range(samples)))
    cuts = draw(st.lists(st.integers(1, samples), min_size=1, max_size=6, unique=True).map(sorted))
    return samples, [list(order[start:stop]) for start, stop in zip([0, *cuts[:-1]], cuts, strict=True)]


class TestFile:
    @quick
    @given(lists_of_rows(), st.booleans())
    def test_lists_are_taken_as_they_are(self, tmp_path: Path, case: tuple[int, list[list[int]]], named: bool) -> None:
        samples, lists = case
        content = {f"client {number}": own for number, own in enumerate(lists)} if named else lists
        (tmp_path / "rows.json").write_text(json.dumps(content))
        shares = split(f"file:{tmp_path / 'rows.json'}", np.zeros(samples, int), len(lists), 0)
        assert [share.tolist() for share in shares] == lists
        assert same(shares, split(f"file:{tmp_path / 'rows.json'}", np.zeros(samples, int), 0, 0)), "0: all there are"

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("[[0], [1, 2]", "cannot be read as JSON"),
            ("7", "one list of rows for each client"),
            ('"rows"', "one list of rows for each client"),
            ("[[0], 1]", "one list of rows for each client"),
            ("[[0], [1], [2]]", "has 3 clients, but clients is 2; use --clients 3"),
            ("[]", "has no clients"),
            ("[[0], []]", "client 1 has no samples"),
            ("[[0], [5]]", "client 1 has row 5; rows go from 0 to 4"),
            ("[[0], [-1]]", "client 1 has row -1"),
            ("[[0], [1.5]]", r"client 1 has row 1\.5"),
            ('[[0], ["1"]]', "client 1 has row '1'"),
            ("[[0], [true]]", "client 1 has row True"),
            ("[[0], [[1]]]", r"client 1 has row \[1\]"),
            ("[[0], [1180591620717411303424]]", "client 1 has row 118059"),
            ("[[0, 1], [2, 1]]", "row 1 of client 1 was given before"),
            ("[[0, 0], [2, 1]]", "row 0 of client 0 was given before"),
        ],
    )
    def test_what_is_no_split_is_refused(self, content: str, words: str, tmp_path: Path) -> None:
        (tmp_path / "rows.json").write_text(content)
        with pytest.raises(UserError, match=words) as caught:
            split(f"file:{tmp_path / 'rows.json'}", np.zeros(5, int), 2, 0)
        assert "\n" not in str(caught.value)

    def test_a_file_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"^there is no partition file '.*rows\.json'$"):
            split(f"file:{tmp_path / 'rows.json'}", np.zeros(5, int), 2, 0)


def dealt(labels: np.ndarray, clients: int, seed: int) -> list[np.ndarray]:
    """Samples in order of label, dealt like cards from the place `seed` on."""
    order = np.roll(np.argsort(labels, kind="stable"), seed)
    return [order[client::clients] for client in range(clients)]


LABELS = np.array([2, 0, 1, 1, 0, 2, 2, 0])


class TestAFunction:
    def test_its_rows_are_taken_as_they_are(self) -> None:
        shares = split(dealt, LABELS, 3, 1)
        assert same(shares, dealt(LABELS, 3, 1))
        assert all(share.dtype == np.int64 for share in shares)
        assert (spelled(dealt), spelled("iid")) == ("own", "iid")

    @pytest.mark.parametrize(
        "found",
        [
            [[0, 1], [5]],
            ([0, 1], (5,)),
            [np.array([0, 1], np.uint8), torch.tensor([5])],
            [range(2), [np.int32(5)]],
            np.array([[0, 1], [5, 2]]),
        ],
        ids=["lists", "tuples", "small types and tensors", "ranges", "one array"],
    )
    def test_rows_may_be_left_out_and_come_in_any_sequence(self, found: Any) -> None:
        shares = split(lambda *_: found, LABELS, 2, 0)
        assert [share.tolist() for share in shares] == [list(map(int, own)) for own in found]

    def test_nothing_of_it_is_shared_with_the_caller(self) -> None:
        mine = [np.array([0, 1]), np.array([2])]
        shares = split(lambda *_: mine, LABELS, 2, 0)
        mine[0][:] = 7
        assert shares[0].tolist() == [0, 1]
        before = LABELS.copy()
        with pytest.raises(UserError, match=r"the partition function raised ValueError: .*read-only"):
            split(lambda labels, *_: labels.sort(), LABELS, 2, 0)
        assert np.array_equal(LABELS, before)
        assert LABELS.flags.writeable

    def test_it_may_choose_the_number_of_clients_where_none_is_given(self) -> None:
        assert sizes(split(lambda labels, clients, seed: [[row] for row in range(5)], LABELS, 0, 0)) == [1] * 5

    @pytest.mark.parametrize(
        ("found", "words"),
        [
            (None, "returned None; it must return an array of rows for each client"),
            ("0, 1", "returned '0, 1'; it must return an array of rows for each client"),
            ({0: [1], 1: [2]}, "it must return an array of rows for each client"),
            (np.array(3), "it must return an array of rows for each client"),
            ([[0], [1], [2]], "returned rows of 3 clients, but clients is 2"),
            ([], "returned rows of 0 clients, but clients is 2"),
            ([[0], []], "client 1 has no samples"),
            ([[0], [8]], "client 1 has row 8; rows go from 0 to 7"),
            ([[-1], [0]], "client 0 has row -1; rows go from 0 to 7"),
            ([[0], [1.0]], r"client 1 has an array of type float64 and shape \(1,\); rows are whole numbers"),
            ([[0], LABELS == 0], r"client 1 has an array of type bool and shape \(8,\); rows are whole numbers"),
            ([[0], [[1]]], r"client 1 has an array of type int64 and shape \(1, 1\)"),
            ([[0], 1], r"client 1 has an array of type int64 and shape \(\)"),
            ([[0], [[1], [1, 2]]], r"client 1 has \[\[1\], \[1, 2\]\] in place of an array of rows"),
            ([[0, 3], [4, 3]], "gave row 3 to client 0 and to client 1; a row has one owner"),
            ([[0], [4, 3, 4]], "gave row 4 to client 1 twice; a row has one owner"),
        ],
    )
    def test_what_is_not_a_split_is_refused_in_one_line(self, found: Any, words: str) -> None:
        with pytest.raises(UserError, match=words) as caught:
            split(lambda *_: found, LABELS, 2, 0)
        assert "\n" not in str(caught.value)
        assert "partition function" in str(caught.value)

    def test_nobody_at_all_is_refused(self) -> None:
        with pytest.raises(UserError, match="returned rows of 0 clients, but there must be at least one"):
            split(lambda *_: [], LABELS, 0, 0)

    def test_its_own_refusal_is_passed_on(self) -> None:
        def refusing(labels: np.ndarray, clients: int, seed: int) -> Rows:
            raise UserError("clients must be even")

        with pytest.raises(UserError, match=r"^clients must be even$"):
            split(refusing, LABELS, 3, 0)

    @pytest.mark.parametrize("given", [7, None, [[0], [1]]])
    def test_what_is_neither_name_nor_function_is_refused(self, given: Any) -> None:
        with pytest.raises(UserError, match=r"give a name such as 'dirichlet:0.3' or a function"):
            split(given, LABELS, 2, 0)

    def test_its_place_holder_is_not_a_name(self) -> None:
        with pytest.raises(UserError, match="partition is 'own', a function or data that was passed as an object"):
            split("own", LABELS, 2, 0)


class TestTheTable:
    def test_a_new_line_is_found_by_its_name_and_by_the_errors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def every(labels: np.ndarray, clients: int, seed: int, step: float) -> Rows:
            return [np.arange(client, len(labels), int(step)) for client in range(clients)]

        line = Partition(every, "every STEP-th sample", Number("STEP", "3", whole=True))
        monkeypatch.setattr(partition, "PARTITIONS", {**PARTITIONS, "every": line})
        assert [share.tolist() for share in split("every:4", LABELS, 2, 0)] == [[0, 4], [1, 5]]
        with pytest.raises(UserError, match="write every:STEP with STEP above 0, such as every:3"):
            split("every:0.5", LABELS, 2, 0)
        with pytest.raises(UserError, match=r"no partition 'evry'; did you mean 'every'\? \(iid, .*, every:STEP\)"):
            split("evry", LABELS, 2, 0)
        with pytest.raises(UserError, match=r"are not classes; use .* file:PATH or every:STEP"):
            split("shards:2", np.zeros(8), 2, 0)

    @pytest.mark.parametrize("name", PARTITIONS)
    def test_every_line_says_what_it_does(self, name: str) -> None:
        assert PARTITIONS[name].help
        assert len(PARTITIONS[name].help) < 110
        assert PARTITIONS[name].spelled(name).startswith(name)

    def test_those_that_count_their_clients_are_those_a_scenario_knows(self) -> None:
        """`scenario` takes all clients of these where no number is given."""
        assert {name for name, line in PARTITIONS.items() if line.counts_clients} == set(COUNTING_PARTITIONS)
        assert {name for name in PARTITIONS if scenario(partition=name).clients == 0} == set(COUNTING_PARTITIONS)


class TestRepeated:
    """`dirichlet-repeated`, the one split in which a sample may be held more than once."""

    @quick
    @given(federations(), st.sampled_from(["0.01", "0.3", "1", "100"]), SEEDS)
    def test_a_class_begins_anew_only_when_it_is_used_up(
        self, given: tuple[np.ndarray, int], alpha: str, seed: int
    ) -> None:
        labels, clients = given
        shares = split(f"dirichlet-repeated:{alpha}", labels, clients, seed)
        assert sizes(shares) == even(len(labels), clients)
        uses = np.bincount(np.concatenate(shares), minlength=len(labels))
        for label in np.unique(labels):
            own = uses[labels == label]
            assert own.max() - own.min() <= 1
        assert same(shares, split(f"dirichlet-repeated:{alpha}", labels, clients, seed))

    def test_samples_are_repeated_and_others_left_out(self) -> None:
        labels = np.repeat(np.arange(10), 200)
        shares = split("dirichlet-repeated:0.3", labels, 50, 0)
        held = np.concatenate(shares)
        assert len(held) == len(labels)
        assert 0 < sizes_of(shares, len(labels)).left_out == len(labels) - len(set(held.tolist()))
        assert sizes_of(split("dirichlet:0.3", labels, 50, 0), len(labels)).left_out == 0

    def test_the_mixes_are_those_of_the_dirichlet_distribution(self) -> None:
        """Σ_c E[p_c²] of Dir(α) with K classes is (α + 1)/(Kα + 1)."""
        labels = np.repeat(np.arange(10), 500)
        for alpha in (0.1, 0.3, 1.0):
            counts = class_counts(labels, split(f"dirichlet-repeated:{alpha}", labels, 100, 3), 10)
            sizes = counts.sum(1, keepdims=True)
            unbiased = (counts * (counts - 1) / (sizes * (sizes - 1))).sum(1)
            expected, error = (alpha + 1) / (10 * alpha + 1), unbiased.std() / 10
            assert abs(unbiased.mean() - expected) < 4 * error

    @pytest.mark.parametrize("setting", ["validation", "client_test"])
    def test_samples_are_not_held_out_of_it(self, setting: str) -> None:
        chosen = scenario("fashion/dirichlet-repeated0.3/10x50%", device="cpu", model="linear", **{setting: 0.1})
        with pytest.raises(UserError, match=f"{setting} is 0.1, but with partition dirichlet-repeated:0.3 clients may"):
            build(chosen, method("fedavg"))

    def test_a_sample_that_is_held_twice_counts_twice_in_the_loss_on_all_data(self) -> None:
        chosen = scenario("fashion/dirichlet-repeated0.3/10x50%", device="cpu", model="linear", weights="uniform")
        made = build(chosen, method("fedavg"))
        by_hand = torch.zeros(len(made.federation.train), dtype=torch.float64)
        for rows in made.federation.clients:
            for row in rows.tolist():
                by_hand[row] += 1 / 10 / len(rows)
        assert torch.allclose(made.sample_weights, by_hand, rtol=1e-12, atol=0)
        assert by_hand.max() > 1.5 / 10 / len(made.federation.clients[0])
