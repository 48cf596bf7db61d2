"""What is asked of the C library's allocator, and when nothing is."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from headway import malloc


def _asked(monkeypatch: pytest.MonkeyPatch, library: Any) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    for name in (*malloc.KEEPING, "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)


def test_freed_memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    _asked(monkeypatch, SimpleNamespace(mallopt=lambda number, size: asked.append((number, size))))
    malloc.keep_freed_memory()
    assert sorted(asked) == [(-3, 32 << 20), (-1, 256 << 20)]
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")  # the user's own choice
    malloc.keep_freed_memory()
    assert len(asked) == 2


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _asked(monkeypatch, SimpleNamespace())
    malloc.keep_freed_memory()
