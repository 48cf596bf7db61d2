"""Damaged data files: small sets in the layout of each publisher, with one file damaged in its bytes or its sense."""

from __future__ import annotations

import gzip
import io
import json
import math
import pickle
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import headway
from damaged_files import DAMAGE
from fuzzing.attempts import Attempt, Finding
from fuzzing.commands import fresh
from headway.data.partition import split
from headway.data.sources import Source, load
from headway.data.sources.text import ALPHABET
from headway.errors import ClientError, UserError
from source_files import idx

DRAW = np.random.default_rng(0)


def _mnist(folder: Path) -> None:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", 12), ("t10k", 6)):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(DRAW.integers(0, 256, (count, 28, 28))))
        (raw / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.arange(count) % 10)))
        np.save(raw / f"{part}-writers.npy", np.arange(count) % 3)


def _cifar(folder: Path) -> None:
    place = folder / "cifar-10-batches-bin"
    place.mkdir()
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        rows = DRAW.integers(0, 256, (3, 3073), np.uint8)
        rows[:, 0] %= 10
        (place / f"{name}.bin").write_bytes(rows.tobytes())
    (place / "batches.meta.txt").write_text("".join(f"class {number}\n" for number in range(10)))


def _pickled(folder: Path) -> None:
    place = folder / "cifar-100-python"
    place.mkdir()
    for name in ("train", "test"):
        labels = DRAW.integers(0, 100, 6).tolist()
        content = {"data": DRAW.integers(0, 256, (6, 3072), np.uint8), "fine_labels": labels, "coarse_labels": labels}
        (place / name).write_bytes(pickle.dumps(content, protocol=2))
    names = {"fine_label_names": [f"name {number}" for number in range(100)]}
    (place / "meta").write_bytes(pickle.dumps(names, protocol=2))


def _femnist(folder: Path) -> None:
    for part, users in (("train", ("eve", "bob")), ("test", ("eve", "bob"))):
        content = {
            "users": list(users),
            "num_samples": [3, 3],
            "user_data": {user: {"x": np.round(DRAW.random((3, 784)), 2).tolist(), "y": [0, 61, 3]} for user in users},
        }
        (folder / "femnist" / part).mkdir(parents=True)
        (folder / "femnist" / part / "all_data.json").write_text(json.dumps(content))


def _femnist_npz(folder: Path) -> None:
    (folder / "femnist").mkdir()
    for part in ("train", "test"):
        x = DRAW.integers(0, 256, (8, 28, 28), np.uint8)
        np.savez_compressed(folder / "femnist" / f"{part}.npz", x=x, y=np.arange(8), user=np.arange(8) % 3)


def _shakespeare(folder: Path) -> None:
    (folder / "shakespeare").mkdir()
    texts = {user: "".join(DRAW.choice(list(ALPHABET), 600)) for user in ("ROMEO", "JULIET")}
    (folder / "shakespeare" / "users.json").write_text(json.dumps({"users": list(texts), "text": texts}))


def _images(folder: Path) -> None:
    for part in ("train", "test"):
        for name in ("ant", "cat"):
            (folder / part / name).mkdir(parents=True)
            for number in range(3):
                pixels = DRAW.integers(0, 256, (6, 8, 3), np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{number}.{'png' if number else 'jpg'}")


def _arrays(folder: Path) -> None:
    x, y = DRAW.normal(size=(12, 5)).astype(np.float32), np.arange(12) % 3
    users = np.array(["eve", "bob", "ann"])[y]
    np.savez(folder / "own.npz", x_train=x, y_train=y, x_test=x[:6], y_test=y[:6], users_train=users)


def _rows(folder: Path) -> None:
    rows = {f"client {number}": list(range(10 * number, 10 * number + 10)) for number in range(6)}
    (folder / "rows.json").write_text(json.dumps(rows))


SETS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "mnist": (_mnist, "mnist", "natural"),
    "cifar10": (_cifar, "cifar10", "dirichlet:0.3"),
    "cifar100": (_pickled, "cifar100", "iid"),
    "femnist": (_femnist, "femnist", "natural"),
    "femnist.npz": (_femnist_npz, "femnist", "natural"),
    "shakespeare": (_shakespeare, "shakespeare", "natural"),
    "images": (_images, "folder:{}", "iid"),
    "arrays": (_arrays, "npz:{}/own.npz", "natural"),
    "rows": (_rows, "fashion", "file:{}/rows.json"),
}
"""Who writes it, its name and its split; {} is the folder."""


# ── damage that a checksum of a container would hide ─────────────────────────────────────────────────────────────────


def _unpacked(content: bytes, draw: random.Random) -> bytes:
    """A gzipped file whose content is damaged and whose checksum is right."""
    inner = DAMAGE[draw.choice([name for name in DAMAGE if name != "gone"])](gzip.decompress(content), draw)
    return gzip.compress(inner or b"", compresslevel=1)


def _bomb(content: bytes, draw: random.Random) -> bytes:
    return gzip.compress(content[:4] + b"\0" * 40_000_000, compresslevel=1)


ODD: tuple[Callable[[np.ndarray], Any], ...] = (
    lambda array: array[:-1],
    lambda array: array[None],
    lambda array: array.reshape(-1),
    lambda array: array[:0],
    lambda array: array.astype(object),
    lambda array: array.astype(str),
    lambda array: array.astype("c8") if array.dtype.kind in "iuf" else array[..., None],
    lambda array: np.full(array.shape, np.nan),
    lambda array: np.full(array.shape, np.inf, np.float32),
    lambda array: np.full(array.shape, 1e300),
    lambda array: np.full(array.shape, -1),
    lambda array: np.full(array.shape, 2**62),
    lambda array: np.zeros(array.shape, bool),
    lambda array: np.zeros(array.shape, "M8[s]"),
    lambda array: np.zeros(array.shape, ">i8"),
    lambda array: np.zeros((), array.dtype),
    lambda array: np.broadcast_to(array[:1], (100_000, *array.shape[1:])),
)


def _array(content: bytes, draw: random.Random) -> bytes:
    """An archive in which one array is another, lost, or has another name."""
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        arrays = dict(held.items())
    name, written = draw.choice(sorted(arrays)), io.BytesIO()
    how = draw.randrange(8)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[name + "s"] = arrays.pop(name)
    else:
        arrays[name] = draw.choice(ODD)(arrays[name])
    np.savez(written, **arrays)
    return written.getvalue()


def _header(content: bytes, draw: random.Random) -> bytes:
    """An archive in which one array's header promises another shape or type."""
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        entries = {name: packed.read(name) for name in packed.namelist()}
    shape = draw.choice(((10**13,), (2**40, 2**40), (-3,), (0,), (10**6, 10**4), (True, 2), ("x",), ()))
    kind = draw.choice(("<f8", "|O", "|V80", "<M8[s]", "nonsense", "<U999999999", [("a", "<f8")]))
    head = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    name, written = draw.choice(sorted(entries)), io.BytesIO()
    entries[name] = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) + 1) + head + b"\n" + b"\0" * 64
    with zipfile.ZipFile(written, "w") as packed:
        for entry, inner in entries.items():
            packed.writestr(entry, inner)
    return written.getvalue()


NODES = (
    None,
    True,
    -1,
    1.5,
    10**30,
    1e300,
    float("nan"),
    "",
    "x",
    "é" * 50,
    "\ud800",
    [],
    [[]],
    {},
    {"x": []},
    [1] * 1000,
)


def _node(content: bytes, draw: random.Random) -> bytes:
    """JSON in which one value anywhere is another."""
    held = json.loads(content)
    parent, key, value = None, None, held
    while isinstance(value, dict | list) and value and (parent is None or draw.random() < 0.8):
        parent, key = value, draw.choice(sorted(value)) if isinstance(value, dict) else draw.randrange(len(value))
        value = parent[key]
    if parent is None or draw.random() < 0.1:
        return json.dumps(draw.choice(NODES)).encode()
    parent[key] = draw.choice(NODES)
    return json.dumps(held).encode()


def _deep(content: bytes, draw: random.Random) -> bytes:
    return draw.choice((b"[", b'{"users": ', b'{"a":')) * draw.choice((900, 100_000))


SENSE: dict[str, tuple[Callable[[bytes, random.Random], bytes], ...]] = {
    ".gz": (_unpacked, _unpacked, _bomb),
    ".npz": (_array, _array, _header),
    ".json": (_node, _node, _deep),
}


class DataFiles:
    """A data set with one damaged file is refused in a line, or read as a sound one is."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name, (write, _, _) in SETS.items():
            (place / "whole" / name).mkdir(parents=True)
            write(place / "whole" / name)
            assert self.play(name) == "read"  # else nothing is learnt from what is refused

    def attempt(self, draw: random.Random) -> Attempt:
        name = draw.choice(list(SETS))
        whole = self.place / "whole" / name
        file = draw.choice(sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file()))
        content = (whole / file).read_bytes()
        changes = SENSE.get(file.suffix, ())
        if changes and draw.random() < 0.6:
            change = draw.choice(changes)
            how, after = change.__name__, change(content, draw)
        else:
            how = draw.choice(list(DAMAGE))
            damaged = DAMAGE[how](content, draw)
            after = damaged if damaged is not None else None
        return Attempt(f"{name}: {file}: {how}", lambda: self.play(name, file, after))

    def play(self, name: str, file: Path | None = None, content: bytes | None = None) -> str:
        folder = self.place / "box"
        fresh(self.place / "whole" / name, folder)
        if file is not None:
            (folder / file).unlink() if content is None else (folder / file).write_bytes(content)
        spelled, partition = (part.format(folder) for part in SETS[name][1:])
        data_dir = None if ":" in spelled or spelled == "fashion" else str(folder)
        clients = 2 if partition in ("iid", "dirichlet:0.3") else 0
        try:
            found = load(spelled, data_dir)
            sound(found, split(partition, found.train.y.numpy(), clients, 0, found.users))
            trained(data=spelled, data_dir=data_dir, partition=partition, clients=clients)
        except (UserError, ClientError) as fault:
            return one_line(fault)
        return "read"


def one_line(fault: Exception) -> str:
    line = str(fault)
    if not line.strip() or "\n" in line:
        raise Finding(f"not one line: {line!r}")
    if not line.isprintable():
        raise Finding(f"a line has characters that no terminal should get: {line!r:.300}")
    if len(line) > 1500:
        raise Finding(f"a line has {len(line)} characters: {line[:300]}…")
    return "refused"


def sound(found: Source, rows: list[np.ndarray]) -> None:
    """What was read fits together."""
    for pool in (found.train, found.test):
        if not len(pool) or len(pool.x) != len(pool.y):
            raise Finding(f"{len(pool.x)} samples, {len(pool.y)} targets")
        if found.classes and not 0 <= int(pool.y.min()) <= int(pool.y.max()) < found.classes:
            raise Finding(f"labels from {pool.y.min()} to {pool.y.max()} of {found.classes} classes")
    every = np.concatenate(rows)
    if len(set(every.tolist())) != len(every) or not all(0 <= row < len(found.train) for row in every):
        raise Finding("a split has rows twice or out of range")


def trained(**settings: Any) -> None:
    """One round of it has finite numbers."""
    model = "shakespeare-lstm" if settings["data"] == "shakespeare" else "linear"
    little = {"rounds": 1, "steps": 1, "batch_size": 2, "eval_samples": 4, "device": "cpu", "executor": "serial"}
    record = headway.simulate("fedavg", model=model, participation=1.0, **little, **settings).records[0]
    if not all(math.isfinite(value) for value in record.values() if isinstance(value, float)):
        raise Finding(f"a round of it is {record}")
