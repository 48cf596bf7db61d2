"""Texts as blocks of T characters with a target for each: x = t[i : i+T], y = t[i+1 : i+T+1]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from headway.data.federation import Samples
from headway.data.grouping import Grouping
from headway.data.sources import leaf, text
from headway.data.sources.files import Damaged, Missing, data_folder, read_json
from headway.data.sources.source import Source
from headway.errors import UserError
from headway.tasks.task import IGNORED

MOST_LENGTH = 4096
"""The longest block: nearly every text is shorter, and each begins a new one, in training and in test data."""


@dataclass(frozen=True)
class Speech:
    """All that one speaker says in one play."""

    speaker: str
    play: str | None
    """None where the files do not say it."""
    tokens: np.ndarray


def blocks(tokens: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(x, y) of one text, int64 of shape (⌈(n − 1)/T⌉, T) each, for n tokens.

    Every token but the first is a target once. The last block is filled up with 0 in x and `IGNORED` in y.
    """
    targets = max(len(tokens) - 1, 0)
    count = -(-targets // length)
    x, y = np.zeros(count * length, np.int64), np.full(count * length, IGNORED, np.int64)
    x[:targets], y[:targets] = tokens[:targets], tokens[1:]
    return x.reshape(count, length), y.reshape(count, length)


def counted(targets: torch.Tensor) -> int:
    """How many targets of blocks are tokens, not filling."""
    return int((targets != IGNORED).sum())


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _users_json(path: Path) -> list[Speech]:
    """The texts of `users.json`, with the play of each where `hierarchies` are there."""
    content = read_json(path)
    texts = text.texts(content, path)
    plays = leaf.groups(content, list(texts))
    return [Speech(user, play, tokens) for (user, tokens), play in zip(texts.items(), plays, strict=True)]


def _leaf_json(folder: Path) -> Iterator[Speech]:
    """The texts behind the windows of LEAF's `all_data`, each of which begins one character after the one before it."""
    for of in leaf.written(folder):
        if of.x:
            yield Speech(of.user, of.group, text.tokens(_joined(of), of.where))


def _joined(of: leaf.Written) -> str:
    """The first window and all characters that follow one, where these are one text."""
    letters = [letter for letter in of.y if isinstance(letter, str) and len(letter) == 1]
    if not isinstance(of.x[0], str) or len(letters) < len(of.y):
        raise Damaged(f"{of.where} has windows that are not texts, or labels that are not single characters")
    whole = of.x[0] + "".join(letters)
    if any(window != whole[start : start + text.LENGTH] for start, window in enumerate(of.x)):
        raise Damaged(
            f"{of.where} has windows of which one does not begin a character after the one before it, so that its text "
            "cannot be put together"
        )
    return whole


def _speeches(folder: Path) -> list[Speech]:
    if (folder / "users.json").is_file():
        return _users_json(folder / "users.json")
    for home in (folder / "all_data", folder / "data" / "all_data"):
        if home.is_dir():
            return list(_leaf_json(home))
    drawn = (folder / "train").is_dir() or (folder / "data" / "train").is_dir()
    why = "; LEAF draws the windows of 'train' and 'test' at random, so that these overlap" if drawn else ""
    raise Missing(f"{folder} must hold users.json, or all_data/*.json of LEAF{why}")


# ── the data set ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _length(argument: str) -> int:
    if not argument:
        return text.LENGTH
    if not argument.isascii() or not argument.isdigit() or not 1 <= int(argument[:9]) <= MOST_LENGTH:
        raise UserError(
            f"data is 'shakespeare-text:{argument}'; write shakespeare-text:LENGTH with LENGTH from 1 to "
            f"{MOST_LENGTH:,}, such as shakespeare-text:64"
        )
    return int(argument)


@dataclass(frozen=True)
class _Part:
    """The blocks of all texts on one side of the split, and the text of each."""

    samples: Samples
    texts: np.ndarray


def _part(texts: list[np.ndarray], length: int) -> _Part:
    pairs = [blocks(tokens, length) for tokens in texts]
    x, y = (torch.from_numpy(np.concatenate([pair[side] for pair in pairs])) for side in (0, 1))
    return _Part(Samples(x, y), np.repeat(np.arange(len(texts)), [len(y) for _, y in pairs]))


def _grouping(speeches: list[Speech], train: _Part, test: _Part) -> dict[str, Grouping]:
    """The grouping `play`, where the play of every text is known. Plays are numbered as they first appear."""
    plays = [speech.play for speech in speeches if speech.play is not None]
    if len(plays) < len(speeches):
        return {}
    numbers = {play: number for number, play in enumerate(dict.fromkeys(plays))}
    of_text = np.array([numbers[play] for play in plays])
    return {"play": Grouping(of_text[train.texts], of_text[test.texts], tuple(numbers))}


def shakespeare_text(argument: str, data_dir: str | None) -> Source:
    """Shakespeare's lines by speaker, in blocks of T characters, 80 or as the argument says.

    Of each text of n characters the first ⌊0.8 n⌋ are for training and the others for tests, each cut into blocks by
    itself: no character of a test block was a training target. Texts without a target on both sides are left out.
    """
    length = _length(argument)
    folder = data_folder(data_dir) / "shakespeare"
    halves, speeches = [], []
    for speech in _speeches(folder):
        cut = int(text.TRAIN * len(speech.tokens))
        if min(cut, len(speech.tokens) - cut) >= 2:
            halves.append(np.split(speech.tokens, [cut]))
            speeches.append(speech)
    if not speeches:
        raise Damaged(f"{folder}: no text is long enough for training and test blocks")
    train, test = (_part([half[side] for half in halves], length) for side in (0, 1))
    return Source(
        train.samples,
        test.samples,
        classes=len(text.ALPHABET),
        class_names=tuple(text.ALPHABET),
        users=train.texts,
        test_users=test.texts,
        user_names=tuple(speech.speaker for speech in speeches),
        groupings=_grouping(speeches, train, test),
        citation="Shakespeare (LEAF, Caldas et al. 2018; Project Gutenberg 100), public",
    )
