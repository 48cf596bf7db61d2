"""`Source`: what every reader of a data set returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from headway.data import columns
from headway.data.columns import Windows
from headway.data.drawn import Ranges
from headway.data.federation import Samples
from headway.data.grouping import Grouping
from headway.data.own_samples import type_of
from headway.data.sources.files import Damaged
from headway.errors import UserError, nearest
from headway.scenario_names import PROFILES
from headway.tasks.task import IGNORED
from headway.trees import leaves_of

Channels = tuple[float, ...]


@dataclass(frozen=True)
class Normalisation:
    """The constants of (x/255 − mean)/std for uint8 images, one for each channel."""

    mean: Channels = (0.0,)
    std: Channels = (1.0,)


@dataclass(frozen=True)
class Source:
    """A data set: samples, classes, the users that samples belong to, and the constants that normalise its images."""

    train: Samples
    test: Samples
    classes: int
    """Number of classes, or of tokens in the alphabet of a text; 0 where targets are numbers."""
    mean: Channels = (0.0,)
    std: Channels = (1.0,)
    profiles: Mapping[str, Normalisation] = field(default_factory=dict)
    """The constants that a profile's program uses, where they are not those above."""
    class_names: tuple[str, ...] = ()
    users: np.ndarray | None = None
    """The natural user of each training row, as a place in `user_names`."""
    test_users: np.ndarray | None = None
    """The same for test rows, where the test set belongs to users."""
    user_names: tuple[str, ...] = ()
    groupings: Mapping[str, Grouping] = field(default_factory=dict)
    """Further ways in which rows belong together, by name."""
    clients: Ranges | None = None
    """The rows of each user, where samples are made when they are read; the data is then split by its users alone."""
    citation: str = ""
    """Where the data comes from, and its licence."""

    def __post_init__(self) -> None:
        assert self.users is None or len(self.users) == len(self.train)
        assert self.test_users is None or len(self.test_users) == len(self.test)
        assert len(self.class_names) in (0, self.classes)

    def normalisation(self, profile: str = "paper") -> Normalisation:
        """The constants of a profile's program; those of the data itself for `paper` and where the profile has none."""
        if profile not in PROFILES:
            raise UserError(f"there is no profile '{profile}'{nearest(profile, PROFILES)} ({', '.join(PROFILES)})")
        return self.profiles.get(profile, Normalisation(self.mean, self.std))


def check_labels(samples: int, y: np.ndarray, classes: int, where: Path | str) -> None:
    """Refuse labels that are not from 0 to classes − 1, and a set without samples.

    Where a sample has several labels, those that do not count (−100) are not checked.
    """
    if samples != len(y):
        raise Damaged(f"{where}: there are {samples} samples and {len(y)} labels; the files do not belong together")
    if not samples:
        raise Damaged(f"{where}: there are no samples")
    kept = y if y.ndim == 1 else y[y != IGNORED]
    low, high = int(kept.min(initial=0)), int(kept.max(initial=0))
    if low < 0 or high >= classes:
        raise Damaged(f"{where}: label {low if low < 0 else high} is out of range; labels go from 0 to {classes - 1}")


def samples_of(x: np.ndarray | Windows, y: np.ndarray, classes: int, where: Path | str) -> Samples:
    """Samples with labels, checked; errors begin with `where`."""
    check_labels(len(x), y, classes, where)
    return Samples(torch.from_numpy(x) if isinstance(x, np.ndarray) else x, torch.from_numpy(y.astype(np.int64)))


def check_alike(train: Samples, test: Samples, where: Path | str) -> None:
    """Refuse test samples of another shape or type than training samples: bytes are normalised, other types are not."""
    shapes = columns.shapes(train.x), columns.shapes(test.x)
    if shapes[0] != shapes[1]:
        raise Damaged(f"{where}: training samples have shape {shapes[0]}, test samples {shapes[1]}")
    types = [type_of(leaves_of(part.rows(torch.zeros(0, dtype=torch.int64)).inputs)[0]) for part in (train, test)]
    if types[0] != types[1]:
        raise Damaged(f"{where}: training samples are {types[0]}, test samples {types[1]}; give both alike")


def class_names(names: Sequence[str], classes: int, where: Path) -> tuple[str, ...]:
    """The names of the classes, one for each."""
    if len(names) != classes:
        raise Damaged(f"{where} names {len(names)} classes; there are {classes}")
    return tuple(names)


def known_users(train: np.ndarray, test: np.ndarray) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """The names of all users, sorted, and for each training and test row the place of its user among them."""
    names, places = np.unique(np.concatenate([train, test]), return_inverse=True)
    return tuple(str(name) for name in names), places[: len(train)], places[len(train) :]


def statistics(images: np.ndarray) -> Normalisation:
    """Mean and deviation of uint8 images (n, channels, …) for each channel, from exact counts of the 256 values."""
    values = np.arange(256) / 255
    mean, std = [], []
    for channel in range(images.shape[1]):
        counts = np.zeros(256)
        for start in range(0, len(images), 1000):
            counts += np.bincount(images[start : start + 1000, channel].ravel(), minlength=256)
        share = counts / counts.sum()
        mean.append(float(share @ values))
        std.append(float(np.sqrt(share @ (values - mean[-1]) ** 2)) or 1.0)
    return Normalisation(tuple(mean), tuple(std))
