"""Texts as windows of characters: x = t[i : i+80], y = t[i+80]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from headway.data.columns import Windows
from headway.data.sources.files import Damaged, read_json

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's Shakespeare, in LEAF's order."""

LENGTH = 80
TRAIN = 0.8

_NOWHERE = 255
_PLACES = np.full(256, _NOWHERE, np.uint8)
_PLACES[np.frombuffer(ALPHABET.encode(), np.uint8)] = np.arange(len(ALPHABET))

Part = tuple[Windows, np.ndarray, np.ndarray]
"""Windows, the character after each, and the user of each."""


def tokens(text: str, where: Path | str) -> np.ndarray:
    """The place of each character in the alphabet, uint8."""
    found = _PLACES[np.frombuffer(text.encode(errors="surrogatepass"), np.uint8)]
    if (found == _NOWHERE).any():
        strange = next(letter for letter in text if letter not in ALPHABET)
        raise Damaged(f"{where}: the character {strange!r} is not in LEAF's alphabet of {len(ALPHABET)}")
    return found


class Stream:
    """Collects windows that overlap: the text is kept once, and of each window the place where it begins."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.starts: list[int] = []
        self.length = 0
        self.last = ""

    def extend(self, windows: Sequence[object], where: str) -> None:
        for window in windows:
            if not isinstance(window, str) or len(window) != LENGTH:
                raise Damaged(f"{where} has a sample that is not a text of {LENGTH} characters")
            new = next((gap for gap in range(LENGTH) if self.last[gap:] == window[: LENGTH - gap]), LENGTH)
            self.pieces.append(window[LENGTH - new :])
            self.length += new
            self.starts.append(self.length - LENGTH)
            self.last = window

    def windows(self, where: Path) -> Windows:
        return Windows(torch.from_numpy(tokens("".join(self.pieces), where)), torch.tensor(self.starts), LENGTH)


def texts(content: Mapping[str, object], path: Path) -> dict[str, np.ndarray]:
    """The text of each user of `users.json`, as tokens; `path` is where its content was read."""
    users, texts = content.get("users"), content.get("text")
    if not isinstance(users, list) or not isinstance(texts, dict):
        raise Damaged(f"{path} must have 'users' and 'text'")
    for user in users:
        if not isinstance(user, str):
            raise Damaged(f"{path}: 'users' must be a list of names")
        if not isinstance(texts.get(user), str):
            raise Damaged(f"{path}: user {user!r} has no text")
    return {user: tokens(texts[user], f"{path}: user {user!r}") for user in users}


def split_texts(path: Path) -> tuple[tuple[str, ...], Part, Part]:
    """Users, and LEAF's split of each one's windows.

    A text of n + 80 characters has n windows. With n_tr = max(1, ⌊0.8 n⌋), training windows are i < n_tr and test
    windows i ≥ n_tr + 79, so that no character of a test window was a target. Users without test windows are left out.
    """
    names: list[str] = []
    kept: list[np.ndarray] = []
    starts: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    users: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    at = 0
    for user, text in texts(read_json(path), path).items():
        samples = len(text) - LENGTH
        train = max(1, int(TRAIN * samples))
        if train + LENGTH - 1 >= samples:
            continue
        for number, windows in enumerate((np.arange(train), np.arange(train + LENGTH - 1, samples))):
            starts[number].append(at + windows)
            users[number].append(np.full(len(windows), len(names)))
        names.append(user)
        kept.append(text)
        at += len(text)
    if not kept:
        raise Damaged(f"{path}: no text is long enough for training and test windows")
    whole = np.concatenate(kept)
    stream = torch.from_numpy(whole)

    def part(number: int) -> Part:
        rows = np.concatenate(starts[number])
        return Windows(stream, torch.from_numpy(rows), LENGTH), whole[rows + LENGTH], np.concatenate(users[number])

    return tuple(names), part(0), part(1)
