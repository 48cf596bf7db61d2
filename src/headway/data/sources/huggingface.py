"""Data sets of the Hugging Face hub, through the optional package `datasets`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

from headway.data.sources.arrays import counted, labelled, sample_type
from headway.data.sources.files import cause
from headway.data.sources.source import Normalisation, Source, check_alike, known_users, statistics
from headway.errors import UserError

Row = Mapping[str, object]


class Split(Protocol):
    """What is used of a split of the package `datasets`."""

    features: Mapping[str, object]
    """The columns and their types."""

    def select_columns(self, columns: list[str]) -> Iterable[Row]: ...
    def __getitem__(self, column: str) -> Iterable[object]: ...


TESTS = ("test", "validation", "valid")


def _loaded(name: str) -> Mapping[str, Split]:
    try:
        library = importlib.import_module("datasets")
    except ImportError:
        raise UserError(
            "Hugging Face data sets need the package 'datasets', which is not installed: "
            "pip install 'headway[huggingface]'"
        ) from None
    try:
        splits: Mapping[str, Split] = library.load_dataset(name)
    except Exception as fault:  # the library raises dozens of kinds: no network, unknown name, damaged cache
        raise UserError(f"the Hugging Face data set '{name}' cannot be loaded: {cause(fault)}") from None
    return splits


def _parts(name: str) -> tuple[list[Split], str]:
    """The training and the test split of a data set, and the name of the latter."""
    loaded = _loaded(name)
    splits = list(loaded)
    test = next((part for part in TESTS if part in splits), None)
    if "train" not in splits or test is None:
        raise UserError(f"'{name}' has the splits {', '.join(map(str, splits))}; it must have train and test")
    return [loaded["train"], loaded[test]], test


def _check_targets(y: np.ndarray, y_test: np.ndarray, where: str, test: str) -> None:
    if {y.dtype.kind, y_test.dtype.kind} - set("fiu"):
        raise UserError(f"{where} holds no numbers; name a column of labels or numbers")
    if (y.dtype.kind == "f") != (y_test.dtype.kind == "f"):
        raise UserError(
            f"{where} is {y.dtype} in train and {y_test.dtype} in {test}; both must be labels or both numbers"
        )


def _columns(name: str, split: Split, chosen: list[str]) -> tuple[str, str]:
    """The columns of samples and targets: those named, else the first of images and the first of class labels."""
    kinds = {column: type(kind).__name__ for column, kind in split.features.items()}
    for column in chosen:
        if column not in kinds:
            raise UserError(f"'{name}' has no column '{column}'; it has {', '.join(kinds)}")
    if len(chosen) >= 2:
        return chosen[0], chosen[1]
    found = [next((c for c, k in kinds.items() if k == wanted), None) for wanted in ("Image", "ClassLabel")]
    if found[0] is None or found[1] is None:
        raise UserError(
            f"'{name}' has no column of images and labels; name two of {', '.join(kinds)}: hf:{name},SAMPLES,TARGETS"
        )
    return found[0], found[1]


def _sample(value: object) -> np.ndarray:
    """One image as uint8 (channels, height, width), or numbers as they are."""
    if not hasattr(value, "convert") or not hasattr(value, "mode"):
        return np.asarray(value)
    pixels = np.asarray(value if value.mode == "L" else value.convert("RGB"))
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _samples(name: str, column: str, split: Split) -> np.ndarray:
    """The samples of a split: images as uint8 (n, channels, height, width), numbers as they are."""
    rows = [_sample(row[column]) for row in split.select_columns([column])]
    if not rows:
        raise UserError(f"'{name}' has an empty split")
    for row in rows:
        if row.shape != rows[0].shape:
            raise UserError(
                f"'{name}': samples of '{column}' have shapes {rows[0].shape} and {row.shape}; give one size"
            )
    return sample_type(np.stack(rows), f"'{name}': {column}")


def huggingface(argument: str, data_dir: str | None) -> Source:
    """`hf:NAME`, or `hf:NAME,SAMPLES,TARGETS` or `hf:NAME,SAMPLES,TARGETS,USERS` where the columns must be named.

    Training samples are the split `train`, test samples the split `test` or, without one, `validation`.
    """
    name, *chosen = argument.split(",")
    if len(chosen) not in (0, 2, 3):
        raise UserError(f"data is 'hf:{argument}'; write hf:NAME, hf:NAME,SAMPLES,TARGETS or …,USERS")
    parts, test = _parts(name)
    samples, targets = _columns(name, parts[0], chosen)
    x, x_test = (_samples(name, samples, part) for part in parts)
    y, y_test = (np.asarray(list(part[targets])) for part in parts)
    labels = getattr(parts[0].features[targets], "names", None)
    _check_targets(y, y_test, f"'{name}': '{targets}'", test)
    classes = len(labels) if labels and y.dtype.kind != "f" else counted(y, y_test, f"'{name}'")
    both = labelled(x, y, classes, f"'{name}'"), labelled(x_test, y_test, classes, f"'{name}'")
    check_alike(*both, f"'{name}'")
    own = statistics(x) if x.dtype == np.uint8 else Normalisation()
    roster: tuple[tuple[str, ...], np.ndarray | None, np.ndarray | None] = (), None, None
    if len(chosen) == 3:
        roster = known_users(*(np.asarray(list(part[chosen[2]])) for part in parts))
    return Source(
        *both,
        classes,
        own.mean,
        own.std,
        class_names=tuple(labels or ()),
        users=roster[1],
        test_users=roster[2],
        user_names=roster[0],
        citation=f"Hugging Face: {name}",
    )
