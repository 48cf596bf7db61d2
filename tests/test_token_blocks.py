"""Texts in blocks with a target at each place: what is cut and held back, to whom blocks belong, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from typer.testing import CliRunner

from headway.cli import main
from headway.data.federation import Samples
from headway.data.grouping import Grouping
from headway.data.partition import PARTITIONS, split
from headway.data.sources import Source, load
from headway.data.sources.text import ALPHABET
from headway.data.sources.token_blocks import IGNORED, MOST_LENGTH, blocks, counted
from headway.errors import UserError
from headway.models.networks import network
from headway.random import built
from headway.scenario_names import settings as named
from source_files import MIXES, described, refused_source, same, speech

NAME = "shakespeare-text"
PLAYS = {"HAMLET": "HAMLET", "GHOST": "HAMLET", "PUCK": "A DREAM"}


TEXTS = {"HAMLET": speech(500), "GHOST": speech(123, 1), "PUCK": speech(260, 2)}


def users_json(folder: Path, texts: dict[str, str], **more: Any) -> Path:
    path = folder / "shakespeare" / "users.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"users": list(texts), "text": texts, **more}))
    return folder


def all_data(folder: Path, texts: dict[str, str], home: str = "shakespeare/data/all_data", **more: Any) -> Path:
    """LEAF's windows of 80, of all texts."""
    data = {}
    for user, text in texts.items():
        starts = range(len(text) - 80)
        data[user] = {"x": [text[at : at + 80] for at in starts], "y": [text[at + 80] for at in starts]}
    (folder / home).mkdir(parents=True, exist_ok=True)
    content = {"users": list(texts), "num_samples": [len(own["y"]) for own in data.values()], "user_data": data}
    (folder / home / "all_data.json").write_text(json.dumps({**content, **more}))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three speakers of two plays."""
    return users_json(tmp_path, TEXTS, hierarchies=list(PLAYS.values()))


def spoken(samples: Samples, users: np.ndarray, user: int) -> tuple[str, str]:
    """The inputs and the targets of one user's blocks, in order, without what only fills a block."""
    x, y = samples.x[users == user], samples.y[users == user]
    real = y != IGNORED
    return "".join(ALPHABET[at] for at in x[real]), "".join(ALPHABET[at] for at in y[real])


def sides(found: Source) -> list[tuple[Samples, np.ndarray]]:
    assert found.users is not None
    assert found.test_users is not None
    return [(found.train, found.users), (found.test, found.test_users)]


# ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class TestBlocks:
    @settings(deadline=None, max_examples=60)
    @given(st.integers(0, 90), st.integers(1, 25))
    def test_they_follow_the_rule(self, count: int, length: int) -> None:
        text = np.random.default_rng(count).integers(0, 80, count).astype(np.uint8)
        x, y = blocks(text, length)
        assert x.dtype == y.dtype == np.int64
        assert x.shape == y.shape == (-(-max(count - 1, 0) // length), length)
        for number, (seen, asked) in enumerate(zip(x, y, strict=True)):
            start = number * length
            there = len(text[start + 1 : start + length + 1])
            assert seen[:there].tolist() == text[start : start + there].tolist()
            assert asked[:there].tolist() == text[start + 1 : start + length + 1].tolist()
            assert (seen[there:] == 0).all()
            assert (asked[there:] == IGNORED).all()
        assert all((row != IGNORED).any() for row in y), "no block is only filling"
        assert counted(torch.from_numpy(y)) == max(count - 1, 0)

    def test_what_is_ignored_is_what_pytorch_ignores(self) -> None:
        logits = torch.zeros(2, 5)
        assert torch.isnan(F.cross_entropy(logits, torch.tensor([IGNORED, IGNORED])))


# ── the data set ─────────────────────────────────────────────────────────────────────────────────────────────────────


class TestShakespeareText:
    @settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.integers(0, 300), min_size=1, max_size=5), st.integers(1, 70))
    def test_each_text_is_split_by_time(self, tmp_path: Path, lengths: list[int], length: int) -> None:
        """First 80 % train; targets are all characters of a side but its first, each once."""
        texts = {f"user {at}": speech(count, at) for at, count in enumerate(lengths)}
        kept = {user: text for user, text in texts.items() if min(cut := int(0.8 * len(text)), len(text) - cut) >= 2}
        users_json(tmp_path, texts)
        if not kept:
            refused_source(NAME, tmp_path, "no text is long enough for training and test blocks")
            return
        found = load(f"{NAME}:{length}", str(tmp_path))
        assert found.user_names == tuple(kept)
        for samples, users in sides(found):
            assert samples.x.shape == samples.y.shape == (len(users), length)
            assert samples.x.dtype == samples.y.dtype == torch.int64
        for user, text in enumerate(kept.values()):
            cut = int(0.8 * len(text))
            for (samples, users), part in zip(sides(found), (text[:cut], text[cut:]), strict=True):
                assert spoken(samples, users, user) == (part[:-1], part[1:])

    def test_no_character_of_a_test_block_was_a_training_target(self, tmp_path: Path) -> None:
        """Of a text without repetition, where a character is its own place."""
        found = load(f"{NAME}:7", str(users_json(tmp_path, {"a": ALPHABET})))
        targets = set(found.train.y[found.train.y != IGNORED].tolist())
        real = found.test.y != IGNORED
        tested = set(found.test.x[real].tolist()) | set(found.test.y[real].tolist())
        assert targets == set(range(1, 64))
        assert tested == set(range(64, 80))

    def test_blocks_of_80_characters_where_no_length_is_given(self, folder: Path) -> None:
        same(load(NAME, str(folder)), load(f"{NAME}:80", str(folder)))
        found = load(NAME, str(folder))
        assert found.train.x.shape == (5 + 2 + 3, 80)
        assert found.classes == 80
        assert found.class_names == tuple(ALPHABET)

    def test_speakers_and_plays(self, folder: Path) -> None:
        found = load(f"{NAME}:50", str(folder))
        assert list(found.groupings) == ["play"]
        play = found.groupings["play"]
        assert play.names == ("HAMLET", "A DREAM")
        assert play.test_users is not None
        for rows, groups in ((found.users, play.users), (found.test_users, play.test_users)):
            assert rows is not None
            owners = [PLAYS[found.user_names[user]] for user in rows]
            assert [play.names[group] for group in groups] == owners

    @pytest.mark.parametrize("home", ["shakespeare/all_data", "shakespeare/data/all_data"])
    def test_leafs_windows_hold_the_same_texts(self, folder: Path, tmp_path: Path, home: str) -> None:
        plain = all_data(tmp_path / "leaf", {**TEXTS, "MUTE": speech(80)}, home, hierarchies=[*PLAYS.values(), "OTHER"])
        one, other = load(NAME, str(folder)), load(NAME, str(plain))
        same(one, other)
        assert one.user_names == other.user_names
        for mine, its in (
            (one.users, other.users),
            (one.test_users, other.test_users),
            (one.groupings["play"].users, other.groupings["play"].users),
            (one.groupings["play"].test_users, other.groupings["play"].test_users),
        ):
            assert np.array_equal(mine, its)

    @pytest.mark.parametrize("hierarchies", [None, ["HAMLET"], "HAMLET", [1, 2, 3]])
    def test_without_a_play_for_each_text_there_is_no_grouping(self, tmp_path: Path, hierarchies: Any) -> None:
        more = {} if hierarchies is None else {"hierarchies": hierarchies}
        assert not load(NAME, str(users_json(tmp_path, TEXTS, **more))).groupings

    @pytest.mark.parametrize("length", ["0", "-3", "x", "1.5", "²", "64,", str(MOST_LENGTH + 1), "9" * 5000])
    def test_lengths_that_are_none_are_refused(self, folder: Path, length: str) -> None:
        refused_source(
            f"{NAME}:{length}", folder, f"write {NAME}:LENGTH with LENGTH from 1 to 4,096, such as {NAME}:64"
        )

    def test_an_empty_length_is_refused(self, folder: Path) -> None:
        refused_source(f"{NAME}:", folder, f"data is '{NAME}:'; write {NAME}[:LENGTH]")

    def test_an_empty_data_folder_says_what_goes_where(self, tmp_path: Path) -> None:
        refused_source(
            NAME, tmp_path, "must hold users.json, or all_data/*.json of LEAF; make it", "put data/all_data in"
        )

    def test_leafs_windows_that_were_drawn_at_random_are_refused(self, tmp_path: Path) -> None:
        all_data(tmp_path, TEXTS, "shakespeare/data/train")
        all_data(tmp_path, TEXTS, "shakespeare/data/test")
        refused_source(NAME, tmp_path, "must hold users.json", "'train' and 'test' at random, so that these overlap")

    def test_windows_that_are_no_text_are_refused(self, tmp_path: Path) -> None:
        text = TEXTS["HAMLET"]
        x, y = [text[at : at + 80] for at in range(5)], [text[at + 80] for at in range(5)]
        place = tmp_path / "shakespeare/all_data"
        place.mkdir(parents=True)
        for windows, letters, words in (
            ([x[0], x[2], x[3]], [y[0], y[2], y[3]], "does not begin a character after"),
            (x, [*y[:3], "é", y[4]], "does not begin a character after"),
            (x, [*y[:4], "é"], "the character 'é' is not in LEAF's alphabet"),
            ([7, *x[1:]], y, "windows that are not texts"),
            ([x[0], None, *x[2:]], y, "does not begin a character after"),
            (x, [*y[:4], 7], "labels that are not single characters"),
            (x, [*y[:4], "ab"], "labels that are not single characters"),
        ):
            data = {"a": {"x": windows, "y": letters}}
            (place / "all_data.json").write_text(json.dumps({"users": ["a"], "user_data": data}))
            refused_source(NAME, tmp_path, "all_data.json: user 'a'", words)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ({"users": ["a"], "text": {"a": "é" * 900}}, "the character 'é' is not in LEAF's alphabet of 80"),
            ({"users": ["a"], "text": {}}, "user 'a' has no text"),
            ({"users": ["a"]}, "must have 'users' and 'text'"),
            ({"users": [{}], "text": {}}, "'users' must be a list of names"),
            ({"users": [], "text": {}}, "no text is long enough"),
        ],
    )
    def test_what_is_no_text_is_refused(self, tmp_path: Path, content: dict[str, Any], words: str) -> None:
        (tmp_path / "shakespeare").mkdir()
        (tmp_path / "shakespeare/users.json").write_text(json.dumps(content))
        refused_source(NAME, tmp_path, "shakespeare", words)

    def test_the_models_answer_at_each_place(self, folder: Path) -> None:
        found = load(f"{NAME}:64", str(folder))
        module = built(lambda: network("gpt-char-small", tuple(found.train.x.shape[1:]), found.classes), 0, "test")
        logits = module(found.train.x[:3])
        assert logits.shape == (3, 64, 80)
        loss = F.cross_entropy(logits.flatten(0, 1), found.train.y[:3].flatten(), ignore_index=IGNORED)
        assert float(loss.detach()) == pytest.approx(np.log(80), abs=0.2)


# ── splits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def cover(shares: list[np.ndarray], samples: int) -> bool:
    return np.array_equal(np.sort(np.concatenate(shares)), np.arange(samples))


BY_PLAY = Grouping(np.array([1, 1, 0, 1, 1, 1]))
BY_ACT = Grouping(np.array([0, 1, 2, 3, 4, 5]))


class TestGroupings:
    USERS = np.array([0, 0, 1, 2, 2, 2])
    GROUPINGS: Mapping[str, Grouping] = MappingProxyType({"play": BY_PLAY, "act": BY_ACT})
    TARGETS = np.zeros((6, 4), np.int64)

    def shares(self, how: str, clients: int = 0) -> list[list[int]]:
        rows = split(how, self.TARGETS, clients, 0, self.USERS, self.GROUPINGS)
        return [sorted(own.tolist()) for own in rows]

    def test_one_client_for_each_group(self) -> None:
        assert self.shares("natural") == [[0, 1], [2], [3, 4, 5]]
        assert self.shares("natural:play") == [[2], [0, 1, 3, 4, 5]]
        assert self.shares("natural:act") == [[0], [1], [2], [3], [4], [5]]
        assert self.shares("natural:play", 1) == [[2]]

    def test_an_unknown_one_is_refused_with_those_there_are(self) -> None:
        none = "but this data set does not have this grouping"
        with pytest.raises(UserError, match=rf"'natural:plays', {none}; did you mean 'play'\? \(known: natural, "):
            self.shares("natural:plays")
        with pytest.raises(UserError, match=rf"{none} \(known: natural, natural:play, natural:act\)$"):
            self.shares("natural:scene")
        with pytest.raises(UserError, match=rf"partition is 'natural:play', {none} \(known: natural\)$"):
            split("natural:play", self.TARGETS, 0, 0, self.USERS)
        with pytest.raises(UserError, match=rf"partition is 'natural', {none} \(known: natural:play, natural:act\)$"):
            split("natural", self.TARGETS, 0, 0, None, self.GROUPINGS)
        for how in ("natural", "natural:play"):
            with pytest.raises(UserError, match=f"'{how}', but the samples of this data set do not belong to users"):
                split(how, self.TARGETS, 0, 0)
        with pytest.raises(UserError, match="there is no partition 'iid:play'"):
            self.shares("iid:play", 2)

    def test_by_speaker_and_by_play(self, folder: Path) -> None:
        found = load(f"{NAME}:20", str(folder))
        targets = found.train.y.numpy()
        speakers = split("natural", targets, 0, 0, found.users, found.groupings)
        plays = split("natural:play", targets, 0, 0, found.users, found.groupings)
        assert cover(speakers, len(targets))
        assert cover(plays, len(targets))
        assert len(speakers) == 3
        assert [len(own) for own in plays] == [len(speakers[0]) + len(speakers[1]), len(speakers[2])]

    @pytest.mark.parametrize("how", ["dirichlet:0.3", "authors:0.3", "gradma:0.1", "shards:2"])
    def test_splits_by_class_are_refused_for_many_targets_a_sample(self, how: str) -> None:
        assert PARTITIONS[how.partition(":")[0]].by_class
        words = "a sample of this data set has 4 targets, not one class; use iid, quantity:ALPHA, natural or file:PATH"
        with pytest.raises(UserError, match=f"partition is '{how}', but {words}"):
            split(how, self.TARGETS, 2, 0)

    @pytest.mark.parametrize("how", ["iid", "quantity:1"])
    def test_other_splits_need_no_classes(self, how: str) -> None:
        assert cover(split(how, self.TARGETS, 2, 0), 6)

    def test_a_scenarios_name_may_have_a_grouping(self) -> None:
        chosen = named(f"{NAME}:64/natural:play/25%")
        assert (chosen["data"], chosen["partition"], chosen["clients"]) == (f"{NAME}:64", "natural:play", 0)
        assert chosen["participation"] == 0.25


# ── headway data ─────────────────────────────────────────────────────────────────────────────────────────────────────


def answered(*arguments: str) -> str:
    """Standard output of a command of `headway data`."""
    answer = CliRunner().invoke(main.app, ["data", *arguments], catch_exceptions=False)
    assert answer.exit_code == 0
    return answer.stdout


class TestCommands:
    def test_it_is_listed_with_shakespeare(self, folder: Path) -> None:
        entries = {entry["name"]: entry for entry in json.loads(answered("list", "--json", "--data-dir", str(folder)))}
        assert entries[NAME]["argument"] == "LENGTH"
        assert entries[NAME]["present"]
        assert entries["shakespeare"]["present"]

    def test_sizes_and_tokens_but_no_class_mixes(self, folder: Path) -> None:
        where = ["--data-dir", str(folder)]
        found = described(f"{NAME}:50", "--partition", "natural", *where)
        assert [found[name] for name in MIXES] == [None] * 4
        assert (found["tokens"], found["test_tokens"]) == (399 + 97 + 207, 99 + 24 + 51)
        assert (found["clients"], found["users"], found["classes"], found["samples"]) == (3, 3, 80, 8 + 2 + 5)
        assert (found["size_min"], found["size_median"], found["size_max"], found["left_out"]) == (2, 5, 8, 0)
        assert described(f"{NAME}:50", "--partition", "natural:play", *where)["clients"] == 2
        words = answered("describe", f"{NAME}:50", "--partition", "natural:play", *where)
        assert "15 + 5 samples, 703 + 174 tokens, 80 classes, 3 users" in words
        assert "classes present" not in words

    def test_a_picture_has_one_row(self, folder: Path, tmp_path: Path) -> None:
        path = tmp_path / "split.svg"
        described(NAME, "--partition", "natural", "--data-dir", str(folder), "--picture", str(path))
        assert "samples" in path.read_text()


# ── the real texts ───────────────────────────────────────────────────────────────────────────────────────────────────


def letters(row: Tensor) -> str:
    return "".join(ALPHABET[place] for place in row.tolist())


@pytest.fixture(scope="module")
def found(real_data: Callable[[str], Path]) -> Source:
    return load(f"{NAME}:64", str(real_data("shakespeare")))


class TestRealTexts:
    def test_sizes(self, found: Source, real_data: Callable[[str], Path]) -> None:
        """1,130 speakers of 36 plays; of 4,316,606 characters all but two of each speaker are targets."""
        held = json.loads((real_data("shakespeare") / "shakespeare/users.json").read_text())
        assert found.user_names == tuple(held["users"])
        assert len(found.user_names) == 1130
        assert len(found.groupings["play"].names) == 36
        assert counted(found.train.y) + counted(found.test.y) == 4_316_606 - 2 * 1130
        assert (len(found.train), len(found.test)) == (54_489, 14_039)
        assert int(found.train.y.max()) < 80
        assert int(found.train.x.min()) >= 0

    def test_speakers_say_their_own_lines(self, found: Source, real_data: Callable[[str], Path]) -> None:
        held = json.loads((real_data("shakespeare") / "shakespeare/users.json").read_text())
        plays = dict(zip(held["users"], held["hierarchies"], strict=True))
        play = found.groupings["play"]
        assert play.test_users is not None
        for user in (0, 17, 800, 1129):
            name = found.user_names[user]
            text = held["text"][name]
            cut = int(0.8 * len(text))
            for (samples, users), part in zip(sides(found), (text[:cut], text[cut:]), strict=True):
                assert spoken(samples, users, user) == (part[:-1], part[1:])
            assert found.users is not None
            assert {play.names[group] for group in play.users[found.users == user]} == {plays[name]}

    def test_by_play(self, found: Source) -> None:
        targets = found.train.y.numpy()
        plays = split("natural:play", targets, 0, 0, found.users, found.groupings)
        assert len(plays) == 36
        assert cover(plays, len(targets))
        assert found.users is not None
        speakers = [set(found.users[rows].tolist()) for rows in plays]
        assert sum(map(len, speakers)) == 1130, "nobody speaks in two plays"
        assert letters(found.train.x[0][:5]).isprintable() or "\n" in letters(found.train.x[0][:5])
