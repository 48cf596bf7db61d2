"""NumPy arrays of the user's in one npz file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from headway.data.federation import Samples
from headway.data.own_data import MOST_CLASSES
from headway.data.sources.files import Damaged, Missing, read_arrays
from headway.data.sources.source import Normalisation, Source, check_alike, known_users, samples_of, statistics
from headway.errors import UserError

NEEDED = ("x_train", "y_train", "x_test", "y_test")


def labelled(x: np.ndarray, y: np.ndarray, classes: int, where: Path | str) -> Samples:
    """Samples with labels or, where classes is 0, with numbers."""
    if classes:
        return samples_of(x, y, classes, where)
    if len(x) != len(y) or not len(y):
        raise Damaged(f"{where}: there are {len(x)} samples and {len(y)} targets")
    with np.errstate(
        over="ignore"
    ):  # a number too large for float32 becomes infinite, and is refused later, with its row
        return Samples(torch.from_numpy(x), torch.from_numpy(y.astype(np.float32)))


def counted(y: np.ndarray, y_test: np.ndarray, where: Path | str) -> int:
    """The number of classes: one more than the largest label; 0 where targets are numbers."""
    if y.dtype.kind == "f":
        return 0
    largest = int(max(y.max(initial=0), y_test.max(initial=0)))
    if largest >= MOST_CLASSES:
        raise UserError(
            f"{where}: label {largest} is out of range; labels go from 0 to at most {MOST_CLASSES - 1:,}, one for each "
            "class (give numbers that are to be learnt with a decimal point)"
        )
    return largest + 1


def sample_type(x: np.ndarray, where: Path | str) -> np.ndarray:
    """Samples in the type that is kept: uint8 images with a channel axis, tokens as int64, numbers as float32."""
    if x.ndim < 2 or x.dtype.kind not in "fiu":
        raise UserError(f"{where} is {x.dtype} of shape {x.shape}; samples must be numbers of shape (n, …)")
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x[:, None] if x.ndim == 3 else x)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(x, np.float32 if x.dtype.kind == "f" else np.int64)


def _targets(held: Mapping[str, np.ndarray], path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The targets of training and test samples: both labels, one a sample or several, or both numbers."""
    for name in NEEDED:
        if name not in held:
            raise UserError(f"{path} has no array '{name}'; it must have {', '.join(NEEDED)}")
    y, y_test = held["y_train"], held["y_test"]
    for name, found in (("y_train", y), ("y_test", y_test)):
        if found.dtype.kind not in "fiu" or not found.ndim:
            raise UserError(f"{path}: {name} is {found.dtype} of shape {found.shape}; give labels or numbers")
    if (y.dtype.kind == "f") != (y_test.dtype.kind == "f"):
        raise UserError(f"{path}: y_train is {y.dtype} and y_test {y_test.dtype}; both must be labels or both numbers")
    return y, y_test


def _owners(held: Mapping[str, np.ndarray], name: str, rows: int, path: Path) -> np.ndarray | None:
    """The user of each sample, where the file says it."""
    found = held.get(name)
    if found is not None and (found.shape != (rows,) or found.dtype.kind not in "iuU"):
        raise UserError(f"{path}: {name} must have one name or whole number for each of the {rows} samples")
    return found


def npz(argument: str, data_dir: str | None) -> Source:
    """The arrays x_train, y_train, x_test, y_test of a file; users_train and users_test where samples have owners.

    Images are uint8 (n, channels, height, width) or (n, height, width) and are normalised with their own mean and
    deviation. Whole targets are classes unless the task learns them as numbers, others are learnt by regression.
    """
    path = Path(argument).expanduser()
    if not path.is_file():
        raise Missing(f"{path} is a folder; name an .npz file" if path.is_dir() else f"there is no file {path}")
    held = read_arrays(path)
    y, y_test = _targets(held, path)
    classes = counted(y, y_test, path)
    x, x_test = (sample_type(held[name], f"{path}: {name}") for name in ("x_train", "x_test"))
    train, test = labelled(x, y, classes, path), labelled(x_test, y_test, classes, path)
    check_alike(train, test, path)
    own = statistics(x) if x.dtype == np.uint8 else Normalisation()
    users, test_users = _owners(held, "users_train", len(train), path), _owners(held, "users_test", len(test), path)
    if users is None:
        return Source(train, test, classes, own.mean, own.std)
    names, places, test_places = known_users(users, users[:0] if test_users is None else test_users)
    owned = None if test_users is None else test_places
    return Source(train, test, classes, own.mean, own.std, users=places, test_users=owned, user_names=names)
