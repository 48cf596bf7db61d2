"""Where Headway keeps what it can make or download again: in the user's cache, or where `$HEADWAY_CACHE` says."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """The folder for files that can be downloaded again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"


def cache_of(kind: str) -> Path:
    """The folder for one kind of things that were found out before: `$HEADWAY_CACHE/KIND`, else in the user's cache."""
    named = os.environ.get("HEADWAY_CACHE")
    return (Path(named) if named else user_cache()) / kind
