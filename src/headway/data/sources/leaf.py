"""LEAF's json files, and the data sets that LEAF writes: FEMNIST, CelebA and Shakespeare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from headway.data.columns import Windows
from headway.data.sources import text
from headway.data.sources.files import Damaged, Missing, data_folder, read_arrays, read_json
from headway.data.sources.images import pillow, read_images
from headway.data.sources.source import Source, check_labels, known_users, samples_of

GLYPHS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
CELEBA_SIZE = 84


@dataclass(frozen=True)
class Written:
    """One user's samples and labels in one file."""

    path: Path
    user: str
    x: list[object]
    y: list[object]
    group: str | None = None
    """What the user belongs to, in files with `hierarchies`: a role's play."""

    @property
    def where(self) -> str:
        """File and user, for errors; a name with line breaks is escaped."""
        return f"{self.path}: user {self.user!r}"


def written(folder: Path) -> Iterator[Written]:
    """Every user of every json file of a folder; only one file is in memory at a time."""
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if not paths:
        raise Missing(f"{folder} holds no json file of LEAF")
    for path in paths:
        content = read_json(path)
        users, data = content.get("users"), content.get("user_data")
        if not isinstance(users, list) or not isinstance(data, dict):
            raise Damaged(f"{path} is not a file of LEAF: it must have 'users' and 'user_data'")
        if not all(isinstance(user, str) for user in users):
            raise Damaged(f"{path} is not a file of LEAF: 'users' must be a list of names")
        for user, group in zip(users, groups(content, users), strict=True):
            yield _of_user(path, user, group, data.get(user))


def groups(content: Mapping[str, object], users: list[str]) -> list[str | None]:
    """What each user belongs to, from the list `hierarchies` beside that of the users; None where it does not fit.

    LEAF's split by sample writes a list that still has the users it removed, so that nobody knows whose an entry is.
    """
    found = content.get("hierarchies")
    fits = isinstance(found, list) and len(found) == len(users) and all(isinstance(group, str) for group in found)
    return list(found) if isinstance(found, list) and fits else [None] * len(users)


def _of_user(path: Path, user: str, group: str | None, own: object) -> Written:
    """What a file has under a user's name."""
    x, y = (own.get("x"), own.get("y")) if isinstance(own, dict) else (None, None)
    if not isinstance(x, list) or not isinstance(y, list):
        raise Damaged(f"{path}: user {user!r} has no lists 'x' and 'y' in 'user_data'")
    if len(x) != len(y):
        raise Damaged(f"{path}: user {user!r} has {len(x)} samples and {len(y)} labels")
    return Written(path, user, x, y, group)


def _home(folder: Path) -> Path:
    """The folder with `train` and `test`: LEAF writes them in `data`; directly in the set's folder will do as well."""
    return folder / "data" if (folder / "data" / "train").is_dir() else folder


Converted = TypeVar("Converted")


def _gathered(
    folder: Path,
    roster: dict[str, int],
    samples: Callable[[Written], Converted],
    labels: Callable[[Written], np.ndarray],
) -> tuple[list[Converted], np.ndarray, np.ndarray]:
    """The samples of each user, and label and user of each row. New users are added to the roster, name → number."""
    x, y, users = [], [], []
    for of in written(folder):
        if of.y:
            x.append(samples(of))
            y.append(labels(of))
            users.append(np.full(len(of.y), roster.setdefault(of.user, len(roster))))
    if not y:
        raise Damaged(f"{folder}: there are no samples")
    return x, np.concatenate(y), np.concatenate(users)


def _numbers(of: Written) -> np.ndarray:
    """Labels that are numbers; LEAF writes those of CelebA with a decimal point."""
    try:
        labels = np.array(of.y, np.float64)
    except (TypeError, ValueError, OverflowError):
        labels = np.full(1, np.nan)
    if labels.ndim != 1 or not (np.abs(labels) < 2**31).all() or (labels != np.floor(labels)).any():
        raise Damaged(f"{of.where} has labels that are not whole numbers")
    return labels.astype(np.int64)


# ── FEMNIST ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _glyphs(of: Written) -> np.ndarray:
    """Images of 784 numbers k/255 as bytes k, shape (n, 1, 28, 28)."""
    try:
        x = np.array(of.x, np.float64).reshape(len(of.x), 1, 28, 28)
    except (TypeError, ValueError, OverflowError):
        raise Damaged(f"{of.where} has images that are not 784 numbers") from None
    if not ((x >= 0) & (x <= 1)).all():
        raise Damaged(f"{of.where} has pixels outside 0 to 1")
    return np.rint(x * 255).astype(np.uint8)


def _femnist_npz(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    held = read_arrays(path)
    if absent := [key for key in ("x", "y", "user") if key not in held]:
        raise Damaged(f"{path} has no array '{absent[0]}'; it must have x, y and user")
    x, y, users = held["x"], held["y"], held["user"]
    if x.dtype != np.uint8 or x.shape[1:] != (28, 28):
        raise Damaged(f"{path}: x is {x.dtype} of shape {x.shape}; it must be uint8 of shape (n, 28, 28)")
    if y.shape != (len(x),) or users.shape != (len(x),) or y.dtype.kind not in "iu":
        raise Damaged(f"{path}: x has {len(x)} samples; y and user must have one whole number for each")
    check_labels(len(x), y, len(GLYPHS), path)
    return x[:, None], y, users


def femnist(argument: str, data_dir: str | None) -> Source:
    """Hand-written digits and letters by writer, 28 × 28, dark on white and not normalised, as LEAF has them.

    `femnist/train.npz` and `test.npz` (x, y, user), or LEAF's `femnist/train/*.json` and `test/*.json`.
    """
    folder = data_folder(data_dir) / "femnist"
    if (folder / "train.npz").is_file() or (folder / "test.npz").is_file():
        train, test = (_femnist_npz(folder / f"{part}.npz") for part in ("train", "test"))
        names, users, test_users = known_users(train[2], test[2])
    else:
        roster: dict[str, int] = {}
        (x, y, users), (x_test, y_test, test_users) = (
            _gathered(_home(folder) / part, roster, _glyphs, _numbers) for part in ("train", "test")
        )
        train, test = (np.concatenate(x), y, users), (np.concatenate(x_test), y_test, test_users)
        names = tuple(roster)
    return Source(
        samples_of(train[0], train[1], len(GLYPHS), folder),
        samples_of(test[0], test[1], len(GLYPHS), folder),
        classes=len(GLYPHS),
        class_names=tuple(GLYPHS),
        users=users,
        test_users=test_users,
        user_names=names,
        citation="FEMNIST (LEAF, Caldas et al. 2018; NIST Special Database 19), public",
    )


# ── CelebA ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _names(of: Written, images: Path) -> list[Path]:
    names = [name for name in of.x if isinstance(name, str)]
    if len(names) < len(of.x):
        raise Damaged(f"{of.where} has images that are not names of files")
    return [images / Path(name).name for name in names]


def celeba(argument: str, data_dir: str | None) -> Source:
    """Faces by celebrity, smiling or not, in colour and scaled to 84 × 84.

    LEAF's `celeba/train/*.json` and `test/*.json`, and the images in `celeba/raw/img_align_celeba/`.
    """
    pillow()
    folder = _home(data_folder(data_dir) / "celeba")
    images = folder / "raw" / "img_align_celeba"
    roster: dict[str, int] = {}
    parts, users = [], []
    for part in ("train", "test"):
        names, y, owners = _gathered(folder / part, roster, lambda of: _names(of, images), _numbers)
        check_labels(len(y), y, 2, folder / part)
        faces = read_images([path for paths in names for path in paths], resize=(CELEBA_SIZE, CELEBA_SIZE))
        parts.append(samples_of(faces, y, 2, folder / part))
        users.append(owners)
    return Source(
        parts[0],
        parts[1],
        classes=2,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        class_names=("not smiling", "smiling"),
        users=users[0],
        test_users=users[1],
        user_names=tuple(roster),
        citation="CelebA (Liu et al. 2015; LEAF, Caldas et al. 2018), for non-commercial research",
    )


# ── Shakespeare ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _following(of: Written) -> np.ndarray:
    letters = [letter for letter in of.y if isinstance(letter, str) and len(letter) == 1]
    if len(letters) < len(of.y):
        raise Damaged(f"{of.where} has labels that are not single characters")
    return text.tokens("".join(letters), of.path)


def _windows(folder: Path, roster: dict[str, int]) -> tuple[Windows, np.ndarray, np.ndarray]:
    """Windows (LEAF's x, 80 characters), the character after each (y), and the user of each."""
    stream = text.Stream()
    _, y, users = _gathered(folder, roster, lambda of: stream.extend(of.x, of.where), _following)
    return stream.windows(folder), y, users


def shakespeare(argument: str, data_dir: str | None) -> Source:
    """The character after 80 others, by role: `shakespeare/users.json`, or LEAF's `shakespeare/{train,test}/*.json`."""
    folder = data_folder(data_dir) / "shakespeare"
    if (folder / "users.json").is_file():
        names, train, test = text.split_texts(folder / "users.json")
    else:
        roster: dict[str, int] = {}
        train, test = (_windows(_home(folder) / part, roster) for part in ("train", "test"))
        names = tuple(roster)
    return Source(
        samples_of(train[0], train[1], len(text.ALPHABET), folder),
        samples_of(test[0], test[1], len(text.ALPHABET), folder),
        classes=len(text.ALPHABET),
        class_names=tuple(text.ALPHABET),
        users=train[2],
        test_users=test[2],
        user_names=names,
        citation="Shakespeare (LEAF, Caldas et al. 2018; Project Gutenberg 100), public",
    )
