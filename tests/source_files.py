"""What tests of sources share."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from typer.testing import CliRunner

from conftest import refused
from headway.cli import main
from headway.data.sources import Source, load
from headway.data.sources.text import ALPHABET
from headway.data.statistics import Mixes

DRAW = np.random.default_rng(0)
MIXES = [field.name for field in dataclasses.fields(Mixes)]
"""What is said of the class mixes of a split."""


def described(*arguments: str) -> dict[str, Any]:
    """What `headway data describe … --json` says; there is nothing else on standard output."""
    answer = CliRunner().invoke(main.app, ["data", "describe", *arguments, "--json"], catch_exceptions=False)
    assert answer.exit_code == 0
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def refused_source(name: str, folder: Path | None, *words: str) -> None:
    """A source is refused in one line that has all the words."""
    refused(lambda: load(name, None if folder is None else str(folder)), *words)


def same(one: Source, other: Source) -> None:
    """The same samples, labels and users."""
    for first, second in ((one.train, other.train), (one.test, other.test)):
        assert torch.equal(first.x[:], second.x[:])
        assert torch.equal(first.y, second.y)
    assert one.classes == other.classes
    assert one.class_names == other.class_names


def owners(found: Source) -> tuple[list[str], list[str]]:
    """Names of the users of each row."""
    assert found.users is not None
    assert found.test_users is not None
    return [found.user_names[user] for user in found.users], [found.user_names[user] for user in found.test_users]


def picture(path: Path, size: tuple[int, int] = (8, 6), mode: str = "RGB", value: int | None = None) -> np.ndarray:
    """A picture of random pixels or of one colour in a file; its pixels, shape (channels, height, width)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = (3,) if mode == "RGB" else ()
    pixels = DRAW.integers(0, 256, (size[1], size[0], *channels), np.uint8)
    if value is not None:
        pixels = np.full_like(pixels, value)
    Image.fromarray(pixels).save(path)
    return pixels.transpose(2, 0, 1) if mode == "RGB" else pixels[None]


class Spy:
    """Unpickled for real, it would make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


def speech(length: int, seed: int = 0) -> str:
    """Characters of Shakespeare's alphabet, drawn at random."""
    return "".join(ALPHABET[place] for place in np.random.default_rng(seed).integers(0, len(ALPHABET), length))


def idx(array: np.ndarray) -> bytes:
    """An array of bytes as a file of MNIST."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
