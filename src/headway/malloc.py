"""glibc's allocator, set to keep the memory that tensors free.

The next local step needs as much again, and new pages from the system cost as much time as the step's sums.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

KEEPING = {"MALLOC_MMAP_THRESHOLD_": 32 << 20, "MALLOC_TRIM_THRESHOLD_": 256 << 20}
"""The settings in bytes, by the names under which a new process takes them from its environment."""
_NUMBERS = {"MALLOC_MMAP_THRESHOLD_": -3, "MALLOC_TRIM_THRESHOLD_": -1}
"""Their numbers in malloc.h, for the process that is running."""


def keep_freed_memory() -> None:
    """Set it for this process, unless the environment has its own settings or the C library is another."""
    if sys.platform != "linux" or any(name in os.environ for name in (*KEEPING, "GLIBC_TUNABLES")):
        return
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for name, size in KEEPING.items():
            library.mallopt(_NUMBERS[name], size)
