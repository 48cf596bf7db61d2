"""Where Headway keeps what it can make or download again: in the user's cache, or where `$HEADWAY_CACHE` says."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def user_cache() -> Path:
    """The folder for files that can be downloaded again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"


def cache_of(kind: str) -> Path:
    """The folder for one kind of things that were found out before: `$HEADWAY_CACHE/KIND`, else in the user's cache."""
    named = os.environ.get("HEADWAY_CACHE")
    return (Path(named) if named else user_cache()) / kind


class NotPrivate(Exception):
    """Somebody else could have written what lies in a folder; the message says who and where."""


def private_folder(kind: str) -> Path:
    """`cache_of` for things that are not checked when they are read: a folder that only its user can write to.

    It is made where it is missing. Anybody who could write to it, or put another folder in its place, could have any
    code run.
    """
    try:
        folder = cache_of(kind).expanduser().absolute()
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        folder = folder.resolve()
        found = folder.stat()
        user = os.getuid() if hasattr(os, "getuid") else found.st_uid  # Windows has no owners of this kind
        if found.st_uid != user:
            raise NotPrivate(f"{folder} belongs to another user")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise NotPrivate(f"others can write to {folder}; chmod 700 makes it private")
        for above in folder.parents:
            mode = above.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                raise NotPrivate(
                    f"others can put another folder in the place of {folder}, as they can write to {above}"
                )
    except (OSError, RuntimeError) as fault:  # RuntimeError: there is no home folder
        raise NotPrivate(f"the cache has no place: {fault}") from None
    return folder
