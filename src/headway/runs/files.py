"""Folders, and writing so that a kill at any moment leaves the old file or the new one, never a part."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from headway.errors import UserError, shown


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside, flush to the disk, then rename over."""
    beside = path.with_name(path.name + ".part")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename or a removal in a folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, content: Any) -> None:
    write_atomically(path, (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise UserError(f"{path} is damaged: it holds no JSON object")
        return content
    except FileNotFoundError:
        raise UserError(f"{path} is missing") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as fault:
        raise UserError(f"{path} cannot be read: {fault}") from None


def as_path(name: str, given: object) -> Path:
    """An argument that is a path; `name` is what the user calls it."""
    if not isinstance(given, str | os.PathLike):
        raise UserError(f"{name} is {shown(given)}; it must be a path, such as 'runs/mine'")
    return Path(given)


def made(folder: Path) -> Path:
    """The folder, made with those above it where they are not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise UserError(f"{folder} cannot be made: {fault.strerror}") from None
    return folder


def slug(name: str) -> str:
    """A name as that of a folder: letters and digits without accents, and `.+=_-`."""
    return re.sub(r"[^A-Za-z0-9.+=_-]+", "-", name)
