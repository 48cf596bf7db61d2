"""Every source reads its publisher's layout, and refuses what is missing, damaged or out of range in one line:
LEAF, text and synthetic clients, whose samples belong to somebody; and the publishers' real files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from conftest import SMALL, held, played
from headway.data.columns import Windows
from headway.data.federation import Federation, Samples
from headway.data.sources import Source, load
from headway.data.sources.files import Damaged
from headway.data.sources.source import statistics
from headway.data.sources.synthetic import LEAST, MOST
from headway.data.sources.text import ALPHABET, LENGTH, Stream, split_texts
from headway.engine.building import build
from headway.methods.spelling import method
from headway.random import built
from source_files import DRAW, owners, picture, refused_source, same, speech

# ── LEAF ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def leaf(path: Path, users: dict[str, tuple[list[Any], list[Any]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    path.write_text(json.dumps(content))


def glyphs(count: int) -> np.ndarray:
    return DRAW.integers(0, 256, (count, 28, 28), np.uint8)


def as_leaf(x: np.ndarray) -> list[list[float]]:
    return (x.reshape(len(x), -1) / 255).tolist()


class TestFemnist:
    def test_both_forms_hold_the_same(self, tmp_path: Path) -> None:
        x, y, user = glyphs(6), np.array([0, 61, 5, 5, 9, 40]), np.array([0, 0, 1, 1, 1, 2])
        (tmp_path / "packed/femnist").mkdir(parents=True)
        for part, rows in (("train", slice(0, 6)), ("test", slice(1, 5))):
            np.savez(tmp_path / f"packed/femnist/{part}.npz", x=x[rows], y=y[rows], user=user[rows])
        for home in ("femnist", "femnist/data"):
            plain = tmp_path / home.replace("/", "-")
            leaf(plain / home / "train/all_data_0.json", {"0": (as_leaf(x[:2]), y[:2].tolist()), "9": ([], [])})
            rest = {"1": (as_leaf(x[2:5]), y[2:5].tolist()), "2": (as_leaf(x[5:]), [40.0])}
            leaf(plain / home / "train/all_data_1.json", rest)
            held = {"0": (as_leaf(x[1:2]), [61]), "1": (as_leaf(x[2:5]), y[2:5].tolist())}
            leaf(plain / home / "test/all_data_0.json", held)
            one, other = load("femnist", str(tmp_path / "packed")), load("femnist", str(plain))
            same(one, other)
            assert owners(one) == owners(other)
            assert one.train.x.shape == (6, 1, 28, 28)
            assert one.class_names[61] == "z"
            assert one.mean == (0.0,)
            assert one.std == (1.0,)

    @pytest.mark.parametrize(
        ("arrays", "words"),
        [
            ({"x": glyphs(2), "y": np.array([0, 62]), "user": np.zeros(2, int)}, "label 62 is out of range"),
            ({"x": glyphs(2), "y": np.array([0, -1]), "user": np.zeros(2, int)}, "label -1 is out of range"),
            ({"x": glyphs(2), "y": np.array([0]), "user": np.zeros(2, int)}, "y and user must have one"),
            ({"x": glyphs(2), "y": np.array([0.5, 1]), "user": np.zeros(2, int)}, "whole number"),
            ({"x": glyphs(2) / 255, "y": np.zeros(2, int), "user": np.zeros(2, int)}, "it must be uint8"),
            ({"x": glyphs(2), "y": np.zeros(2, int)}, "has no array 'user'"),
            ({"x": glyphs(0), "y": np.zeros(0, int), "user": np.zeros(0, int)}, "there are no samples"),
        ],
    )
    def test_arrays_that_do_not_fit_are_refused(self, tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
        (tmp_path / "femnist").mkdir()
        np.savez(tmp_path / "femnist/train.npz", **arrays)
        refused_source("femnist", tmp_path, "train.npz", words)

    def test_a_missing_or_truncated_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "femnist").mkdir()
        np.savez(tmp_path / "femnist/train.npz", x=glyphs(2), y=np.zeros(2, int), user=np.zeros(2, int))
        refused_source("femnist", tmp_path, "test.npz is missing")
        whole = (tmp_path / "femnist/train.npz").read_bytes()
        (tmp_path / "femnist/train.npz").write_bytes(whole[:700])
        refused_source("femnist", tmp_path, "train.npz cannot be read as NumPy arrays")

    @pytest.mark.parametrize(
        ("x", "y", "words"),
        [
            (as_leaf(glyphs(2)), [1], "user 'u' has 2 samples and 1 labels"),
            ([[0.5] * 783], [1], "images that are not 784 numbers"),
            ([[0.5] * 783 + ["a"]], [1], "images that are not 784 numbers"),
            ([[0.5] * 783 + [1.5]], [1], "pixels outside 0 to 1"),
            ([[0.5] * 784], [1.5], "labels that are not whole numbers"),
            ([[0.5] * 784], ["a"], "labels that are not whole numbers"),
            ([[0.5] * 784], [1e300], "labels that are not whole numbers"),
            ([[0.5] * 784], [10**400], "labels that are not whole numbers"),
            ([[0.5] * 784], [{}], "labels that are not whole numbers"),
            ([[0.5] * 784], [[1]], "labels that are not whole numbers"),
            ([[0.5] * 783 + [10**400]], [1], "images that are not 784 numbers"),
            ([{}], [1], "images that are not 784 numbers"),
            ([[0.5] * 784], [62], "label 62 is out of range"),
            ([], [], "there are no samples"),
        ],
    )
    def test_json_that_does_not_fit_is_refused(self, tmp_path: Path, x: list[Any], y: list[Any], words: str) -> None:
        for part in ("train", "test"):
            leaf(tmp_path / f"femnist/{part}/all.json", {"u": (x, y)})
        refused_source("femnist", tmp_path, str(tmp_path / "femnist"), words)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ('{"users": ["a"], "user_data": {"a": {"x": [', "is not a complete JSON file"),
            ("", "is not a complete JSON file"),
            ("\xff\xfe", "is not a complete JSON file"),
            ("[1]", "holds no JSON object, but a list"),
            ('{"users": ["a"]}', "must have 'users' and 'user_data'"),
            ('{"users": ["a"], "user_data": {}}', "user 'a' has no lists 'x' and 'y'"),
            ('{"users": ["a"], "user_data": {"a": {"x": []}}}', "user 'a' has no lists 'x' and 'y'"),
            ('{"users": ["a"], "user_data": {"a": []}}', "user 'a' has no lists 'x' and 'y'"),
            ('{"users": ["a\\nb"], "user_data": {}}', "user 'a\\nb' has no lists 'x' and 'y'"),
            ('{"users": [["a"]], "user_data": {}}', "'users' must be a list of names"),
            ('{"users": [{}], "user_data": {}}', "'users' must be a list of names"),
            ('{"users": [null], "user_data": {}}', "'users' must be a list of names"),
            ('{"users": {}, "user_data": {}}', "must have 'users' and 'user_data'"),
            ('{"users": ["a"], "user_data": ["a"]}', "must have 'users' and 'user_data'"),
        ],
    )
    def test_what_is_no_json_of_leaf_is_refused(self, tmp_path: Path, content: str, words: str) -> None:
        (tmp_path / "femnist/train").mkdir(parents=True)
        (tmp_path / "femnist/train/all.json").write_bytes(content.encode("latin-1"))
        refused_source("femnist", tmp_path, "all.json", words)


class TestCelebA:
    @pytest.fixture
    def faces(self, tmp_path: Path) -> Path:
        home = tmp_path / "celeba"
        for number in range(1, 6):
            picture(home / f"raw/img_align_celeba/{number:06}.jpg", (178, 218), value=40 * number)
        leaf(home / "train/all.json", {"7": (["000001.jpg", "000002.jpg"], [0.0, 1.0]), "8": (["000003.jpg"], [1])})
        leaf(home / "test/all.json", {"8": (["000005.jpg"], [0.0]), "7": (["000004.jpg"], [1.0])})
        return tmp_path

    def test_faces_are_scaled_and_belong_to_celebrities(self, faces: Path) -> None:
        found = load("celeba", str(faces))
        assert found.train.x.shape == (3, 3, 84, 84)
        assert found.train.x[:, 0, 40, 40].tolist() == [40, 80, 120]
        assert found.train.y.tolist() == [0, 1, 1]
        assert found.test.y.tolist() == [0, 1]
        assert owners(found) == (["7", "7", "8"], ["8", "7"])
        assert found.mean == (0.5, 0.5, 0.5)

    def test_what_is_damaged_is_refused(self, faces: Path) -> None:
        (faces / "celeba/raw/img_align_celeba/000002.jpg").unlink()
        refused_source("celeba", faces, "000002.jpg is missing", "img_align_celeba")
        leaf(faces / "celeba/train/all.json", {"7": (["000001.jpg"], [2])})
        refused_source("celeba", faces, "label 2 is out of range; labels go from 0 to 1")
        for name in ({}, ["000001.jpg"], 1, None):
            leaf(faces / "celeba/train/all.json", {"7": ([name], [1])})
            refused_source("celeba", faces, "user '7' has images that are not names of files")


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def texts(path: Path, content: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"users": list(content), "text": content}))
    return path


def said(rows: Tensor) -> list[str]:
    return ["".join(ALPHABET[place] for place in row) for row in rows.tolist()]


def by_the_rule(text: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Windows of one user, written down as in the data's README."""
    n = len(text) - LENGTH
    n_tr = max(1, int(0.8 * n))
    pairs = [(text[i : i + LENGTH], text[i + LENGTH]) for i in range(n)]
    return pairs[:n_tr], pairs[n_tr + 79 :]


class TestShakespeare:
    def test_the_alphabet_is_leafs(self) -> None:
        assert len(ALPHABET) == len(set(ALPHABET)) == 80
        assert "".join(sorted(ALPHABET)) == ALPHABET

    @settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.integers(0, 700), min_size=1, max_size=5), st.integers(0, 99))
    def test_windows_follow_the_rule(self, tmp_path: Path, lengths: list[int], seed: int) -> None:
        content = {f"user {at}": speech(length, seed + at) for at, length in enumerate(lengths)}
        ruled = {user: by_the_rule(text) for user, text in content.items()}
        kept = [user for user, (_, test) in ruled.items() if test]
        path = texts(tmp_path / "users.json", content)
        if not kept:
            with pytest.raises(Damaged, match="no text is long enough"):
                split_texts(path)
            return
        names, *parts = split_texts(path)
        assert list(names) == kept
        for number, (windows, y, users) in enumerate(parts):
            expected = [(user, x, following) for user in kept for x, following in ruled[user][number]]
            letters = [ALPHABET[place] for place in y]
            found = zip([names[user] for user in users], said(windows[:]), letters, strict=True)
            assert list(found) == expected

    def test_both_forms_hold_the_same(self, tmp_path: Path) -> None:
        content = {"a": speech(520), "b": speech(600, 1), "short": speech(150, 2)}
        texts(tmp_path / "packed/shakespeare/users.json", content)
        for part in (0, 1):
            ruled = {user: by_the_rule(text)[part] for user, text in content.items() if user != "short"}
            users = {user: ([x for x, _ in pairs], [y for _, y in pairs]) for user, pairs in ruled.items()}
            leaf(tmp_path / f"plain/shakespeare/data/{('train', 'test')[part]}/all.json", users)
        one, other = load("shakespeare", str(tmp_path / "packed")), load("shakespeare", str(tmp_path / "plain"))
        same(one, other)
        assert owners(one) == owners(other)
        assert one.train.x.tokens.numel() == 1120, "the texts themselves"
        overlapping = sum(len(by_the_rule(content[user])[0]) + LENGTH - 1 for user in "ab")
        assert other.train.x.tokens.numel() == overlapping, "each character once"

    @settings(deadline=None, max_examples=60)
    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 220)), min_size=1, max_size=30))
    def test_windows_in_any_order_are_kept(self, places: list[tuple[int, int]]) -> None:
        """Windows of four texts, one of which repeats itself."""
        plays = [speech(300, 0), speech(300, 1), "ab" * 150, speech(300, 2)]
        windows = [plays[play][at : at + LENGTH] for play, at in places]
        stream = Stream()
        stream.extend(windows, "here")
        assert said(stream.windows(Path("here"))[:]) == windows

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ({"users": ["a"], "text": {"a": "é" * 900}}, "the character 'é' is not in LEAF's alphabet of 80"),
            ({"users": ["a"], "text": {"a": "\ud800" * 900}}, "is not in LEAF's alphabet"),
            ({"users": ["a"], "text": {"a": "~" * 900}}, "user 'a': the character '~'"),
            ({"users": ["a"], "text": {}}, "user 'a' has no text"),
            ({"users": ["a"]}, "must have 'users' and 'text'"),
            ({"users": [["a"]], "text": {"a": "x" * 200}}, "'users' must be a list of names"),
            ({"users": [{}], "text": {}}, "'users' must be a list of names"),
            ({"users": [7], "text": {"7": "x" * 900}}, "'users' must be a list of names"),
            ({"users": ["a"], "text": {"a": ["x"]}}, "user 'a' has no text"),
            ({"users": ["a\nb"], "text": {}}, "user 'a\\nb' has no text"),
            ({"users": ["a"], "text": {"a": "too short"}}, "no text is long enough"),
        ],
    )
    def test_what_is_no_text_is_refused(self, tmp_path: Path, content: dict[str, Any], words: str) -> None:
        (tmp_path / "shakespeare").mkdir()
        (tmp_path / "shakespeare/users.json").write_text(json.dumps(content))
        refused_source("shakespeare", tmp_path, "users.json", words)

    @pytest.mark.parametrize(
        ("x", "y", "words"),
        [
            (["a" * 79], ["a"], "not a text of 80 characters"),
            ([80], ["a"], "not a text of 80 characters"),
            (["a" * 80], ["ab"], "not single characters"),
            (["a" * 80], [3], "not single characters"),
            (["a" * 80], [["a"]], "not single characters"),
            ([{}], ["a"], "not a text of 80 characters"),
            (["^" * 80], ["a"], "the character '^'"),
            (["a" * 80], ["^"], "the character '^'"),
        ],
    )
    def test_json_that_is_no_text_is_refused(self, tmp_path: Path, x: list[Any], y: list[Any], words: str) -> None:
        leaf(tmp_path / "shakespeare/train/all.json", {"a": (x, y)})
        refused_source("shakespeare", tmp_path, str(tmp_path / "shakespeare/train"), words)


class NextCharacter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 4)
        self.head = nn.Linear(4, 80)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x[:, -3:]).mean(1))


class TestWindows:
    TOKENS = torch.arange(50, dtype=torch.uint8)
    WINDOWS = Windows(TOKENS, torch.tensor([0, 7, 3, 45]), 5)

    def test_they_are_indexed_as_the_tensor_they_stand_for(self) -> None:
        whole = torch.stack([self.TOKENS[start : start + 5].long() for start in (0, 7, 3, 45)])
        assert self.WINDOWS.shape == whole.shape
        assert len(self.WINDOWS) == 4
        for rows in (2, slice(1, 3), torch.tensor([3, 0, 0]), np.array([1, 1]), torch.tensor([[0, 1], [2, 3]])):
            assert torch.equal(self.WINDOWS[rows], whole[rows])
        assert self.WINDOWS[:2].dtype == torch.int64

    def test_they_are_indexed_under_vmap_and_move_with_their_pool(self) -> None:
        rows = torch.tensor([[0, 1], [3, 2]])
        found = torch.func.vmap(lambda rows: self.WINDOWS[rows])(rows)
        assert torch.equal(found, self.WINDOWS[rows])
        moved = Samples(self.WINDOWS, torch.zeros(4)).to(torch.device("meta"))
        assert moved.x[rows.to("meta")].device.type == "meta"

    def test_tokens_are_not_normalised(self) -> None:
        pool = Samples(self.WINDOWS, torch.zeros(4, dtype=torch.int64))
        federation = Federation(pool, pool, [np.arange(4)], 1, mean=(0.5,), std=(0.5,))
        assert federation.sample_shape == (5,)
        assert torch.equal(federation.inputs(self.WINDOWS[:], torch.float64), self.WINDOWS[:])

    def test_every_executor_trains_on_them_alike(self, tmp_path: Path) -> None:
        texts(tmp_path / "shakespeare/users.json", {"a": speech(500), "b": speech(520, 1)})
        ends = []
        for executor in ("serial", "batched", "pool"):
            scenario = SMALL.changed(
                data="shakespeare", data_dir=str(tmp_path), partition="iid", clients=5, rounds=2, batch_size=64
            )
            chosen = build(scenario, method("fedacg"), model=built(NextCharacter, 0, "test"))
            ends.append(played(chosen, executor)[0][-1]["loss"])
        assert ends == pytest.approx([ends[0]] * 3, rel=1e-9)


# ── synthetic ────────────────────────────────────────────────────────────────────────────────────────────────────────


class TestSynthetic:
    def test_shapes_and_users(self) -> None:
        found = load("synthetic:1,1", None)
        assert found.train.x.shape[1:] == (60,)
        assert found.train.x.dtype == torch.float32
        assert found.classes == 10
        assert len(found.user_names) == 30
        assert found.users is not None
        assert found.test_users is not None
        sizes = np.bincount(found.users, minlength=30) + np.bincount(found.test_users, minlength=30)
        assert sizes.min() >= LEAST
        assert sizes.max() <= MOST
        assert np.array_equal(np.bincount(found.users, minlength=30), (0.9 * sizes).astype(int))

    def test_the_name_fixes_the_data_and_more_users_change_no_other(self) -> None:
        one, other, many = (load(name, None) for name in ("synthetic:1,0.5", "synthetic:1,0.5", "synthetic:1,0.5,90"))
        same(one, other)
        assert torch.equal(many.train.x[: len(one.train)], one.train.x)
        assert not torch.equal(load("synthetic:1,0.6", None).train.x, one.train.x)

    def test_sizes_are_lognormal(self) -> None:
        """⌊e^z⌋ + 5 with z ~ N(3, 2²): of 1,000 users a half has less than e³ + 5, a sixth more than e⁵ + 5."""
        found = load("synthetic:0,0,1000", None)
        sizes = np.bincount(np.concatenate([found.users, found.test_users]), minlength=1000)
        assert np.mean(sizes < np.exp(3) + 5) == pytest.approx(0.5, abs=4.5 * 0.016)
        assert np.mean(sizes > np.exp(5) + 5) == pytest.approx(0.1587, abs=4.5 * 0.0116)

    def test_beta_spreads_the_inputs_and_variances_fall_as_promised(self) -> None:
        """A user's mean over features is B + O(1/√60), B ~ N(0, β²); feature j has variance j^−1.2."""
        spread = {}
        for beta in (0, 3):
            found = load(f"synthetic:0,{beta},300", None)
            x, users = found.train.x.numpy(), found.users
            means = np.array([x[users == user].mean() for user in range(300)])
            spread[beta] = means.std()
            large = np.flatnonzero(np.bincount(users) > 300)
            inside = np.mean([x[users == user].var(0) for user in large], axis=0)
            assert inside == pytest.approx(np.arange(1, 61) ** -1.2, rel=0.1)
        assert spread[0] < 0.3
        assert spread[3] == pytest.approx(3, rel=0.2)

    def test_each_user_has_a_linear_model(self) -> None:
        """The labels of one user are the largest of linear functions: least squares tells a pair of them apart."""
        found = load("synthetic:1,1", None)
        user = int(np.bincount(found.users).argmax())
        x, y = found.train.x.numpy()[found.users == user], found.train.y.numpy()[found.users == user]
        first, second = np.argsort(-np.bincount(y, minlength=10))[:2]
        chosen = (y == first) | (y == second)
        design = np.hstack([x[chosen], np.ones((chosen.sum(), 1))])
        target = np.where(y[chosen] == first, 1.0, -1.0)
        answer = design @ np.linalg.lstsq(design, target, rcond=None)[0]
        assert np.mean(np.sign(answer) == target) > 0.85

    @pytest.mark.parametrize("argument", ["1", "a,b", "-1,1", "1,-1", "nan,1", "inf,1", "1,1,0", "1,1,2.5", "1,1,2,3"])
    def test_other_arguments_are_refused(self, argument: str) -> None:
        refused_source(f"synthetic:{argument}", None, f"data is 'synthetic:{argument}'", "such as synthetic:1,1")


# ── the real files ───────────────────────────────────────────────────────────────────────────────────────────────────


def measured(found: Source) -> None:
    """The constants are the data's own, to the four digits they are given in."""
    own = statistics(found.train.x.numpy())
    assert own.mean == pytest.approx(found.mean, abs=6e-5)
    assert own.std == pytest.approx(found.std, abs=6e-5)


class TestRealFiles:
    def test_mnist_by_writer(self, real_data: Callable[[str], Path]) -> None:
        found = load("mnist", str(real_data("mnist")))
        assert (len(found.train), len(found.test)) == (60000, 10000)
        if found.users is None:
            pytest.skip("nobody says who wrote these digits")
        train, test = owners(found)
        assert (len(set(train)), len(set(test))) == (539, 297)
        assert not set(train) & set(test)
        measured(found)

    def test_femnist_by_writer(self, real_data: Callable[[str], Path]) -> None:
        found = load("femnist", str(real_data("femnist")))
        assert (len(found.train), len(found.test)) == (41495, 4763)
        train, test = owners(found)
        assert len(set(train)) == len(set(test)) == 300
        assert set(train) == set(test)
        assert torch.bincount(found.train.y, minlength=62).min() > 0

    def test_shakespeare_by_role(self, real_data: Callable[[str], Path]) -> None:
        found = load("shakespeare", str(real_data("shakespeare")))
        assert (len(found.train), len(found.test)) == (3335127, 771051)
        assert len(found.user_names) == 799
        held = json.loads((real_data("shakespeare") / "shakespeare/users.json").read_text())["text"]
        for user in (0, 17, 798):
            ruled = by_the_rule(held[found.user_names[user]])
            for pool, users, pairs in zip(
                (found.train, found.test), (found.users, found.test_users), ruled, strict=True
            ):
                rows = np.flatnonzero(users == user)
                assert len(rows) == len(pairs)
                some = [0, len(pairs) // 2, len(pairs) - 1]
                letters = [ALPHABET[place] for place in pool.y[rows[some]].tolist()]
                assert list(zip(said(pool.x[rows[some]]), letters, strict=True)) == [pairs[at] for at in some]

    @pytest.mark.parametrize("name", ["cifar10", "cifar100"])
    def test_cifar(self, name: str) -> None:
        if held(name) is None:
            pytest.skip(f"$HEADWAY_DATA has no {name}")
        found = load(name, None)
        assert torch.bincount(found.train.y).tolist() == [50000 // found.classes] * found.classes
        assert torch.bincount(found.test.y).tolist() == [10000 // found.classes] * found.classes
        measured(found)
