"""Folders and files that their owner alone can read: 0700 and 0600, each written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from headway.runs.files import sync_folder


def private_folder(folder: Path) -> Path:
    """The folder, made where it is missing with those above it, for its owner alone."""
    missing = [folder, *folder.parents]
    for one in reversed([place for place in missing if not place.exists()]):
        one.mkdir(exist_ok=True, mode=0o700)
    os.chmod(folder, 0o700)
    return folder


def write_private(path: Path, content: bytes) -> None:
    """Write beside, flush to the disk, then rename over. What a full disk leaves beside is removed."""
    beside = path.with_name(path.name + ".part")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append_private(path: Path, line: str) -> None:
    """Add a line to a file."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(line.encode("utf-8", "backslashreplace") + b"\n")
