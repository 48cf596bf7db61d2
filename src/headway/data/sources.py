"""Data sets by name: the embedded one, and those read from the data folder."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import torch

from headway.data.federation import Pool
from headway.errors import UserError, nearest


@dataclass(frozen=True)
class Source:
    """A data set: its samples, its classes and the statistics its images are normalised with."""

    train: Pool
    test: Pool
    classes: int
    mean: float
    std: float


def data_folder(given: str | None) -> Path:
    """`--data-dir`, else `$HEADWAY_DATA`, else the user's cache."""
    named = given or os.environ.get("HEADWAY_DATA")
    if named:
        folder = Path(named).expanduser()
        if not folder.is_dir():
            raise UserError(f"the data folder {folder} does not exist; make it or give another --data-dir")
        return folder
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "headway"


def _pool(x: np.ndarray, y: np.ndarray) -> Pool:
    if len(x) != len(y):
        raise UserError(f"there are {len(x)} images and {len(y)} labels; the files do not belong together")
    return Pool(torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y.astype(np.int64)))


def _fashion(data_dir: str | None) -> Source:
    """6,000 + 2,000 images of Fashion-MNIST (MIT licence), inside the package; balanced classes."""
    with (
        resources.files("headway.data").joinpath("embedded/fashion.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as held,
    ):
        train, test = _pool(held["x_train"], held["y_train"]), _pool(held["x_test"], held["y_test"])
    return Source(train, test, classes=10, mean=0.2860, std=0.3530)


def _read_idx(path: Path) -> np.ndarray:
    """An array in the idx layout of MNIST: two zero bytes, type, dimensions, big-endian sizes, bytes."""
    packed = path.with_name(path.name + ".gz")
    if not path.is_file() and not packed.is_file():
        raise UserError(f"{path} is missing; put it (or {packed.name}) there")
    try:
        raw = path.read_bytes() if path.is_file() else gzip.decompress(packed.read_bytes())
    except (OSError, EOFError, zlib.error) as fault:
        raise UserError(f"{path if path.is_file() else packed} cannot be read: {fault}") from None
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise UserError(f"{path} is no idx file of bytes")
    head, shape = 4 + 4 * raw[3], tuple[int, ...]()
    if len(raw) >= head:
        shape = tuple(np.frombuffer(raw, ">u4", count=raw[3], offset=4).tolist())
    if not shape or len(raw) - head != np.prod(shape):
        raise UserError(f"{path} is truncated: its header promises other sizes than its {len(raw)} bytes hold")
    return np.frombuffer(raw, np.uint8, offset=head).reshape(shape).copy()


def _mnist(data_dir: str | None) -> Source:
    """MNIST's four idx files in `MNIST/raw/` of the data folder, plain or gzipped."""
    raw = data_folder(data_dir) / "MNIST" / "raw"
    pools = [
        _pool(_read_idx(raw / f"{part}-images-idx3-ubyte"), _read_idx(raw / f"{part}-labels-idx1-ubyte"))
        for part in ("train", "t10k")
    ]
    return Source(pools[0], pools[1], classes=10, mean=0.1307, std=0.3081)


SOURCES: dict[str, Callable[[str | None], Source]] = {"fashion": _fashion, "mnist": _mnist}


def load(name: str, data_dir: str | None) -> Source:
    if name not in SOURCES:
        raise UserError(f"there is no data set '{name}'{nearest(name, SOURCES)} (known: {', '.join(SOURCES)})")
    if data_dir:
        data_folder(data_dir)  # a folder that was asked for must be there, whatever the data set needs
    return SOURCES[name](data_dir)
