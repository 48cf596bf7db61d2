"""Locks of a deployment: they end with the process that holds them, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.errors import UserError

try:
    import fcntl
except ImportError:  # no Unix; Flower's programs are started by hand there
    fcntl = None  # type: ignore[assignment]


def hold(path: Path, holder: str) -> int:
    """Lock a file and return its descriptor: the lock lasts until that is closed, also through an exec.

    `holder` says in the refusal who has it where somebody else does.
    """
    handle = _open(path)
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            process = os.read(handle, 20).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise UserError(
                f"{path.parent} is the state folder of {holder} that runs already, as process {process}; end that one, "
                "or give another folder: --state FOLDER"
            ) from None
    os.ftruncate(handle, 0)
    os.write(handle, f"{os.getpid()}\n".encode())
    return handle


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Wait until no other process is in such a block of the same file."""
    handle = _open(path)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
