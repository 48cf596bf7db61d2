"""MNIST and Fashion-MNIST from idx files, and the tenth of Fashion-MNIST that is inside the package."""

from __future__ import annotations

import gzip
import math
import zlib
from importlib import resources
from pathlib import Path

import numpy as np

from headway.data.federation import Samples
from headway.data.sources.files import (
    Damaged,
    Missing,
    cause,
    check_plain,
    check_unpacked,
    data_folder,
    read_arrays,
    read_bytes,
)
from headway.data.sources.source import Source, check_alike, known_users, samples_of

GARMENTS = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_FASHION = "Fashion-MNIST (Xiao, Rasul and Vollgraf 2017), MIT licence"


def read_idx(path: Path) -> np.ndarray:
    """Reads an array of bytes in the idx layout: two zero bytes, type, dimensions, big-endian sizes, bytes."""
    packed = path.with_name(path.name + ".gz")
    if not path.is_file() and not packed.is_file():
        raise Missing(f"{path} is missing; put it (or {packed.name}) there")
    raw = read_bytes(path) if path.is_file() else _unpacked(packed)
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise Damaged(f"{path} is not an idx file of bytes")
    head, shape = 4 + 4 * raw[3], tuple[int, ...]()
    if len(raw) >= head:
        shape = tuple(np.frombuffer(raw, ">u4", count=raw[3], offset=4).tolist())
    if not shape or len(raw) - head != math.prod(shape):
        raise Damaged(f"{path} is truncated: its header promises other sizes than its {len(raw)} bytes hold")
    return np.frombuffer(raw, np.uint8, offset=head).reshape(shape).copy()


def _unpacked(packed: Path) -> bytes:
    """The content of a gzipped idx file, up to one byte more than its header promises."""
    check_plain(packed)
    try:
        with gzip.open(packed) as file:
            head = file.read(4)
            sizes = file.read(4 * head[3]) if len(head) == 4 else b""
            promised = math.prod(np.frombuffer(sizes[: len(sizes) // 4 * 4], ">u4").tolist())
            check_unpacked(packed, promised)
            return head + sizes + file.read(promised + 1)
    except (OSError, EOFError, zlib.error, MemoryError, OverflowError) as fault:
        raise Damaged(f"{packed} cannot be read: {cause(fault)}") from None


def _part(raw: Path, part: str) -> Samples:
    images, labels = raw / f"{part}-images-idx3-ubyte", raw / f"{part}-labels-idx1-ubyte"
    x, y = read_idx(images), read_idx(labels)
    for path, array, dimensions in ((images, x, 3), (labels, y, 1)):
        if array.ndim != dimensions:
            raise Damaged(f"{path} has {array.ndim} dimensions; it must have {dimensions}")
    return samples_of(x[:, None], y, 10, raw)


def _both_parts(raw: Path) -> tuple[Samples, Samples]:
    train, test = _part(raw, "train"), _part(raw, "t10k")
    check_alike(train, test, raw)
    return train, test


def _writers(path: Path, rows: int) -> np.ndarray | None:
    if not path.is_file():
        return None
    writers = read_arrays(path).get("")
    if writers is None or writers.shape != (rows,) or writers.dtype.kind not in "iu":
        raise Damaged(f"{path} must hold one whole number for each of the {rows} images")
    return writers


def mnist(argument: str, data_dir: str | None) -> Source:
    """MNIST's four idx files in `MNIST/raw/`, plain or gzipped, and who wrote each digit where files say so."""
    raw = data_folder(data_dir) / "MNIST" / "raw"
    train, test = _both_parts(raw)
    writers = [_writers(raw / f"{part}-writers.npy", len(of)) for part, of in (("train", train), ("t10k", test))]
    known: tuple[tuple[str, ...], np.ndarray | None, np.ndarray | None] = (), None, None
    if writers[0] is not None and writers[1] is not None:
        known = known_users(writers[0], writers[1])
    return Source(
        train,
        test,
        classes=10,
        mean=(0.1307,),
        std=(0.3081,),
        class_names=tuple("0123456789"),
        users=known[1],
        test_users=known[2],
        user_names=known[0],
        citation="MNIST (LeCun, Cortes and Burges 1998), public; writers from QMNIST (Yadav and Bottou 2019), BSD",
    )


def fashion_mnist(argument: str, data_dir: str | None) -> Source:
    """The whole Fashion-MNIST: four idx files in `FashionMNIST/raw/`, plain or gzipped."""
    train, test = _both_parts(data_folder(data_dir) / "FashionMNIST" / "raw")
    return Source(train, test, 10, (0.2860,), (0.3530,), class_names=GARMENTS, citation=_FASHION)


def embedded(argument: str, data_dir: str | None) -> Source:
    """6,000 + 2,000 images of Fashion-MNIST, inside the package; balanced classes."""
    with resources.as_file(resources.files("headway.data").joinpath("embedded/fashion.npz")) as path:
        held = read_arrays(path)
    train, test = (samples_of(held[f"x_{part}"][:, None], held[f"y_{part}"], 10, path) for part in ("train", "test"))
    return Source(train, test, 10, (0.2860,), (0.3530,), class_names=GARMENTS, citation=_FASHION)
