"""Files of data sets: where they lie, and one clear line for each that is missing or damaged."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from headway.errors import UserError


class Missing(UserError):
    """A file that a data set needs is not there."""


class Damaged(UserError):
    """A file is there, but it cannot be what the publisher wrote."""


def cause(fault: BaseException) -> str:
    """The first line of what went wrong, without the path that the caller names."""
    words = fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)
    return (words.splitlines() or [type(fault).__name__])[0]


@contextmanager
def readable(where: Path | str) -> Iterator[None]:
    """What the system does not let us read is one line with its path and the reason."""
    try:
        yield
    except OSError as fault:
        raise UserError(f"{fault.filename or where} cannot be read: {cause(fault)}") from None


def named_folder(given: str | None) -> Path:
    """`--data-dir`, else `$HEADWAY_DATA`, else the user's cache; it may not be there yet."""
    named = given or os.environ.get("HEADWAY_DATA")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named).expanduser() if named else Path(cache) / "headway"


def data_folder(given: str | None) -> Path:
    """The named folder; one that was asked for must be there."""
    folder = named_folder(given)
    if (given or os.environ.get("HEADWAY_DATA")) and not folder.is_dir():
        raise UserError(f"the data folder {folder} does not exist; make it or give another --data-dir")
    return folder


def _opened(path: Path) -> BinaryIO:
    with readable(path):
        if not path.is_file():
            raise Missing(f"{path} is missing; put it there")
        return path.open("rb")


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
        raise Damaged(f"{path} is no UTF-8 text: {cause(fault)}") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_json(path: Path) -> dict[str, Any]:
    content = read_bytes(path)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as fault:
        raise Damaged(f"{path} is no complete JSON file: {cause(fault)}") from None
    if not isinstance(found, dict):
        raise Damaged(f"{path} holds no JSON object, but a {type(found).__name__}")
    return found


_NPY, _ZIP = b"\x93NUMPY", b"PK"
"""How a file of one array and an archive of several begin."""


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file by name; the one array of an npy file under ''. Pickled objects are refused."""
    with _opened(path) as file:
        try:
            if not file.read(len(_NPY)).startswith((_NPY, _ZIP)):
                raise ValueError(f"it is no {'.npy file' if path.suffix == '.npy' else '.npz archive'}")
            file.seek(0)
            found = np.load(file, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return {"": found}
            with found:
                return {name: found[name] for name in found.files}
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as fault:
            raise Damaged(f"{path} cannot be read as NumPy arrays: {cause(fault)}") from None
