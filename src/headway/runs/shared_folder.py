"""The folder of a run on several ranks, perhaps on several machines: all must see the same one."""

from __future__ import annotations

import os
import time
from pathlib import Path

from headway.engine.ranks import Ranks, all_or_none, told_by_first
from headway.errors import UserError
from headway.runs.files import write_atomically

_TOKEN = "ranks.token"
_PATIENCE = 10.0
"""Seconds that a network's file system has to show a new file everywhere."""


def check(folder: Path, ranks: Ranks) -> None:
    """Refuse a folder that is not the same one for all ranks: rank 0 writes a token, which the others must find."""
    if ranks.size == 1:
        return
    path = folder / _TOKEN
    token = told_by_first(ranks, lambda: _written(path))
    with all_or_none(ranks):
        if ranks.rank > 0 and not _found(path, token):
            raise UserError(
                f"rank {ranks.rank} does not see the folder {folder.absolute()} that rank 0 writes; give an --out that "
                "all machines share, with the same path"
            )
    ranks.tell({})
    if ranks.rank == 0:
        path.unlink(missing_ok=True)


def _written(path: Path) -> str:
    """A token that no other run has written."""
    token = f"{os.uname().nodename if hasattr(os, 'uname') else ''} {os.getpid()} {time.time_ns()}"
    write_atomically(path, token.encode())
    return token


def _found(path: Path, token: str) -> bool:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            if path.read_text() == token:
                return True
        except OSError:
            pass
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
