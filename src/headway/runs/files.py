"""Folders, and writing so that a kill at any moment leaves the old file or the new one, never a part."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.errors import DamagedRun, UserError, shown
from headway.setting_values import is_text


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


def _as_json(content: object) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def write_json(path: Path, content: object) -> None:
    """Write plain data as JSON, without a checksum."""
    write_atomically(path, _as_json(content))


def parsed(content: bytes | str) -> object:
    """The value of a JSON text. A `ValueError` says why a text is not JSON as Headway writes it."""
    try:
        return json.loads(content, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number of JSON")


def read_plain(path: Path) -> bytes:
    """A file's content. A pipe in its place is not opened, since that would wait for its writer."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    return path.read_bytes()


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        content = parsed(read_plain(path).decode())
    except FileNotFoundError:
        raise DamagedRun(f"{path} is missing") from None
    except (OSError, ValueError) as fault:
        raise DamagedRun(f"{path} cannot be read: {fault}") from None
    if not isinstance(content, dict):
        raise DamagedRun(f"{path} is damaged: it holds no JSON object")
    return content


CHECK = "check"
"""The last key of a checked JSON file: `checksum` of all others."""


def checksum(content: object) -> str:
    """The SHA-256 of plain data, written with sorted keys: spaces and line ends of a file do not count."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def sealed_json(content: Mapping[str, object]) -> bytes:
    """An object as JSON, with its checksum last."""
    kept = {name: value for name, value in content.items() if name != CHECK}
    return _as_json({**kept, CHECK: checksum(json.loads(json.dumps(kept)))})


def write_checked(path: Path, content: Mapping[str, object]) -> None:
    """Write an object with its checksum."""
    write_atomically(path, sealed_json(content))


def read_checked(path: Path) -> dict[str, Any]:
    """An object that `write_checked` wrote, or one from before there were checksums."""
    content = read_json(path)
    if CHECK in content and content.pop(CHECK) != checksum(content):
        raise DamagedRun(
            f"{path} is damaged: it fails its checksum; put it back from a copy (Headway's own files are not edited)"
        )
    return content


def as_path(name: str, given: object) -> Path:
    """An argument that is a path; `name` is what the user calls it."""
    if not isinstance(given, str | os.PathLike):
        raise UserError(f"{name} is {shown(given)}; it must be a path, such as 'runs/mine'")
    path = Path(os.fsdecode(given))
    if "\0" in str(path) or not is_text(str(path)) or _is_too_long(path):
        raise UserError(f"{name} is {shown(os.fsdecode(given))}; no file can have this name")
    return path


_LONGEST = "checkpoint/server-0000001.safetensors.part"
"""The longest name that a run writes below its folder."""


def _is_too_long(path: Path) -> bool:
    """Whether the file system has no room for this name, or for those of a run's files below it."""
    for tried in (
        *map(Path, path.parts),
        path / _LONGEST,
    ):  # what lies below a missing folder is not looked at: each by itself
        try:
            os.lstat(tried)
        except OSError as fault:
            if fault.errno == errno.ENAMETOOLONG:
                return True
    return False


def ensure_folder(folder: Path) -> Path:
    """The folder, made with all folders above it where they are missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise UserError(f"{folder} cannot be made: {fault.strerror}") from None
    return folder


def slug(name: str) -> str:
    """A name as that of a folder: letters and digits without accents, and `.+=_-`."""
    return re.sub(r"[^A-Za-z0-9.+=_-]+", "-", name)
