"""What takes seconds to find out about the catalogue, kept in the user's cache until Headway's files change.

It is read before torch is imported: `headway methods` and the completion of a word are then there at once. What is
wrong with the cache is no error: then it is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar, cast

import headway
from headway.errors import UserError
from headway.runs.files import read_checked, sealed_json
from headway.user_cache import cache_of

_PACKAGE = Path(headway.__file__).parent

Content = TypeVar("Content", bound=Mapping[str, object])


def remembered(name: str, make: Callable[[], Content]) -> Content:
    """What `make` returns, an object of JSON: from the cache where the package's files are as they were."""
    state = _state()
    place = hashlib.sha256(str(_PACKAGE).encode()).hexdigest()[:16]
    path = cache_of("catalogue") / f"{name}-{place}.json"
    with contextlib.suppress(UserError, OSError, RuntimeError):  # RuntimeError: there is no home folder
        found = read_checked(path)
        if found.get("of") == state and isinstance(found.get("content"), dict):
            return cast(Content, found["content"])
    content = make()
    with contextlib.suppress(OSError, RuntimeError):
        _write(path, sealed_json({"of": state, "content": content}))
    return content


def _write(path: Path, content: bytes) -> None:
    """Write beside, then rename over: of two who write at once, one is there in the end, and whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def _state() -> str:
    """A digest of the names, sizes and times of all files of the package: a change in any makes another one."""
    found = hashlib.sha256(headway.__version__.encode())
    for folder, below, names in os.walk(_PACKAGE):
        below[:] = sorted(name for name in below if name != "__pycache__")
        for name in sorted(names):
            about = os.stat(os.path.join(folder, name))
            found.update(f"{folder}/{name} {about.st_size} {about.st_mtime_ns}\n".encode())
    return found.hexdigest()
