"""CIFAR-10 and CIFAR-100, in the official binary layout or in the python layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headway.data.federation import Samples
from headway.data.sources.files import Damaged, Missing, data_folder, read_bytes, read_lines
from headway.data.sources.pickled import read_pickled
from headway.data.sources.source import Normalisation, Source, check_labels, class_names, samples_of

_PIXELS = 3 * 32 * 32

_CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
_OLD_STD = (0.2023, 0.1994, 0.2010)
"""The mean of the deviations within each image: widely used, although it is not the deviation of CIFAR-10."""


@dataclass(frozen=True)
class Layout:
    """The file names of one of the two data sets, the form of their content, and the set's constants."""

    classes: int
    binary: str
    train: tuple[str, ...]
    test: str
    labels: int
    """Bytes before the pixels of a binary row; the last of them is the class."""
    names: str
    python: str
    python_meta: str
    python_key: str
    """The key of the labels in a python file; their names have `label_names` in place of `labels`."""
    own: Normalisation
    profiles: Mapping[str, Normalisation]


CIFAR10 = Layout(
    classes=10,
    binary="cifar-10-batches-bin",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    labels=1,
    names="batches.meta.txt",
    python="cifar-10-batches-py",
    python_meta="batches.meta",
    python_key="labels",
    own=Normalisation(_CIFAR10_MEAN, (0.2470, 0.2435, 0.2616)),
    profiles={
        "acg24": Normalisation(_CIFAR10_MEAN, _OLD_STD),
        "gradma-code": Normalisation(_CIFAR10_MEAN, _OLD_STD),
        "fl-simulator": Normalisation((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
    },
)

CIFAR100 = Layout(
    classes=100,
    binary="cifar-100-binary",
    train=("train",),
    test="test",
    labels=2,
    names="fine_label_names.txt",
    python="cifar-100-python",
    python_meta="meta",
    python_key="fine_labels",
    own=Normalisation((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    profiles={
        "agm21": Normalisation(_CIFAR10_MEAN, _OLD_STD),
        "acg24": Normalisation((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
        "gradma-code": Normalisation((0.50708, 0.48655, 0.44092), (0.26733, 0.25644, 0.27615)),
        "fl-simulator": Normalisation((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    },
)


def _binary(path: Path, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, 3, 32, 32) and labels of one file: rows of label bytes and 3,072 bytes, red before green and blue."""
    raw, row = read_bytes(path), layout.labels + _PIXELS
    if not raw or len(raw) % row:
        raise Damaged(f"{path} is truncated: its {len(raw)} bytes are not a whole number of rows of {row}")
    rows = np.frombuffer(raw, np.uint8).reshape(-1, row)
    return rows[:, layout.labels :].reshape(-1, 3, 32, 32), rows[:, layout.labels - 1]


def _python(path: Path, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    found = read_pickled(path)
    x, y = found.get("data"), found.get(layout.python_key)
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.shape[1] != _PIXELS:
        raise Damaged(f"{path} holds no images of {_PIXELS} bytes under 'data'")
    if not isinstance(y, list) or not all(type(label) is int for label in y):
        raise Damaged(f"{path} holds no list of labels under '{layout.python_key}'")
    return x.reshape(-1, 3, 32, 32), np.array(y, np.int64)


def _python_names(path: Path, layout: Layout) -> list[str]:
    key = layout.python_key.replace("labels", "label_names")
    found = read_pickled(path).get(key)
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise Damaged(f"{path} holds no list of names under '{key}'")
    return found


def _read(read: Callable[[Path, Layout], tuple[np.ndarray, np.ndarray]], paths: list[Path], layout: Layout) -> Samples:
    parts = [read(path, layout) for path in paths]
    for (x, y), path in zip(parts, paths, strict=True):
        check_labels(len(x), y, layout.classes, path)
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return samples_of(x, y, layout.classes, paths[0].parent)


def _source(layout: Layout, data_dir: str | None) -> Source:
    folder = data_folder(data_dir)
    binary, python = folder / layout.binary, folder / layout.python
    names: list[str] = []
    if binary.is_dir():
        train, test = (
            _read(_binary, [binary / f"{part}.bin" for part in parts], layout)
            for parts in (layout.train, [layout.test])
        )
        meta = binary / layout.names
        names = read_lines(meta) if meta.is_file() else []
    elif python.is_dir():
        train, test = (
            _read(_python, [python / part for part in parts], layout) for parts in (layout.train, [layout.test])
        )
        meta = python / layout.python_meta
        names = _python_names(meta, layout) if meta.is_file() else []
    else:
        raise Missing(f"{binary} is missing; put the binary files of the set there (or the python files in {python})")
    return Source(
        train,
        test,
        layout.classes,
        layout.own.mean,
        layout.own.std,
        layout.profiles,
        class_names(names, layout.classes, meta) if meta.is_file() else (),
        citation="CIFAR (Krizhevsky 2009), no licence stated",
    )


def cifar10(argument: str, data_dir: str | None) -> Source:
    """50,000 + 10,000 colour images of 32 × 32 in `cifar-10-batches-bin/` or `cifar-10-batches-py/`."""
    return _source(CIFAR10, data_dir)


def cifar100(argument: str, data_dir: str | None) -> Source:
    """50,000 + 10,000 colour images of 32 × 32 in `cifar-100-binary/` or `cifar-100-python/`, fine labels."""
    return _source(CIFAR100, data_dir)
