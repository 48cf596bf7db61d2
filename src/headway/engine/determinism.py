"""torch's deterministic mode, for runs that overlap in several threads."""

from __future__ import annotations

import threading

import torch


class _Determinism:
    """torch's deterministic mode while any thread is inside, and what it was before when the last has left."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = torch.are_deterministic_algorithms_enabled()
                torch.use_deterministic_algorithms(True)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                torch.use_deterministic_algorithms(self._before)


DETERMINISTIC = _Determinism()
"""The mode is of the whole process, so its count is too."""
