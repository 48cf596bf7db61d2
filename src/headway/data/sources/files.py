"""Reading the files of data sets: the data folder, and a one-line error for a missing or damaged file."""

from __future__ import annotations

import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from headway.errors import UserError
from headway.user_cache import user_cache

FREELY = 1 << 30
"""Bytes that any file may unpack to; the largest published set, EMNIST, unpacks to half of that."""
SHRINKS = 100
"""Beyond that, a file may unpack to this many times its size: samples do not shrink to a hundredth, and a file made to
fill the memory shrinks to a thousandth. Arrays that do are to be saved unpacked, for which there is no limit."""
MOST_JSON = 1 << 32
"""The most bytes of a JSON file; LEAF's largest have some hundred million. Python takes ten times as much memory."""


class Missing(UserError):
    """A file that a data set needs is not there."""


class Damaged(UserError):
    """A file is there, but it cannot be what the publisher wrote."""


def cause(fault: BaseException) -> str:
    """The first line of an exception, without the path, which the caller names."""
    words = fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)
    return (words.splitlines() or [type(fault).__name__])[0]


@contextmanager
def readable(where: Path | str) -> Iterator[None]:
    """Turns an `OSError` inside into a `UserError` of one line, with the path and the reason."""
    try:
        yield
    except OSError as fault:
        raise UserError(f"{fault.filename or where} cannot be read: {cause(fault)}") from None


def named_folder(given: str | None) -> Path:
    """The data folder: `--data-dir`, else `$HEADWAY_DATA`, else in the user's cache. It may not exist yet."""
    named = given or os.environ.get("HEADWAY_DATA")
    return Path(named).expanduser() if named else user_cache()


def data_folder(given: str | None) -> Path:
    """The data folder; one that was named by the user must exist."""
    folder = named_folder(given)
    if (given or os.environ.get("HEADWAY_DATA")) and not folder.is_dir():
        raise UserError(f"the data folder {folder} does not exist; make it or give another --data-dir")
    return folder


def _opened(path: Path) -> BinaryIO:
    with readable(path):
        check_plain(path)
        return path.open("rb")


def check_plain(path: Path) -> None:
    """Refuse a path that is missing or not a plain file: opening a pipe would wait for a writer."""
    if not path.is_file():
        if path.exists():
            raise Damaged(f"{path} is not a plain file")
        raise Missing(f"{path} is missing; put it there")


def check_unpacked(path: Path, size: int) -> None:
    """Refuse a file that would unpack to `size` bytes where that is more than samples ever do."""
    packed = max(path.stat().st_size, 1)
    if size > FREELY and size > SHRINKS * packed:
        raise Damaged(
            f"{path} is refused: its {packed:,} bytes unpack to {size:,}, more than {SHRINKS} times as many; if that "
            "is meant, save it unpacked (np.savez, gunzip)"
        )


def read_bytes(path: Path) -> bytes:
    with _opened(path) as file:
        try:
            return file.read()
        except OSError as fault:
            raise Damaged(f"{path} cannot be read: {cause(fault)}") from None


def read_lines(path: Path) -> list[str]:
    """The lines that are not empty, without the blanks around them."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as fault:
        raise Damaged(f"{path} is not UTF-8 text: {cause(fault)}") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_json(path: Path) -> dict[str, object]:
    check_plain(path)
    if path.stat().st_size > MOST_JSON:
        raise Damaged(f"{path} is refused: it has {path.stat().st_size:,} bytes; a JSON file has at most {MOST_JSON:,}")
    content = read_bytes(path)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as fault:
        raise Damaged(f"{path} is not a complete JSON file: {cause(fault)}") from None
    if not isinstance(found, dict):
        raise Damaged(f"{path} holds no JSON object, but a {type(found).__name__}")
    return found


_NPY, _ZIP = b"\x93NUMPY", b"PK"
"""The first bytes of a file with one array, and of an archive with several."""


_FAULTS = (
    OSError,
    ValueError,  # also what is not text where text is expected
    EOFError,
    KeyError,
    RuntimeError,  # an archive with a password, a header that is nested too deeply
    MemoryError,
    OverflowError,
    SyntaxError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""The exceptions that NumPy and zipfile raise over a damaged archive or array."""


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file by name; the one array of an npy file under ''. Pickled objects are refused."""
    with _opened(path) as file:
        try:
            start = file.read(len(_NPY))
            file.seek(0)
            if start.startswith(_NPY):
                return {"": _array(file, path.stat().st_size)}
            if not start.startswith(_ZIP):
                raise ValueError(f"it is not an {'.npy file' if path.suffix == '.npy' else '.npz archive'}")
            with zipfile.ZipFile(file) as packed:
                entries = {entry.filename.removesuffix(".npy"): entry for entry in packed.infolist()}
                check_unpacked(path, sum(entry.file_size for entry in packed.infolist()))
                return {name: _entry(packed, entry) for name, entry in entries.items()}
        except UserError:
            raise
        except _FAULTS as fault:
            raise Damaged(f"{path} cannot be read as NumPy arrays: {cause(fault)}") from None


def _entry(packed: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    with packed.open(entry) as content:
        return _array(content, entry.file_size)


def _array(file: IO[bytes], size: int) -> np.ndarray:
    """Reads an array from `size` bytes. A header that promises more is refused before memory is allocated."""
    major, _ = np.lib.format.read_magic(file)
    head = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, _, kind = head(file)
    if not all(type(size) is int for size in shape):
        raise ValueError(f"a header promises an array of shape {shape}")
    promised = math.prod(shape) * kind.itemsize
    if not kind.hasobject and promised > size - file.tell():
        raise ValueError(f"a header promises an array of shape {shape} and {promised:,} bytes; there are {size:,}")
    file.seek(0)
    found: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    return found
