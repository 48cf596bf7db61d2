"""What is measured of the machine itself: its ceiling and its memory."""

from __future__ import annotations

import re
import statistics
import time
from pathlib import Path

import torch

from headway.bench.loop import Variant, settle

_DTYPES = {"fp64": torch.float64, "bf16": torch.bfloat16}
_SIDE = {"cuda": 8192, "cpu": 1536}
_TRIES = 5


def ceiling(device: torch.device, precision: str) -> float:
    """FLOP/s of a large product of two square matrices: 2n³ over the median time."""
    side, dtype = _SIDE[device.type], _DTYPES.get(precision, torch.float32)
    left, right = (torch.ones(side, side, dtype=dtype, device=device) for _ in range(2))
    out = torch.empty_like(left)
    taken = []
    with Variant(precision).arithmetic():
        for _ in range(1 + _TRIES):
            settle(device)
            start = time.perf_counter()
            torch.mm(left, right, out=out)
            settle(device)
            taken.append(time.perf_counter() - start)
    return 2 * side**3 / statistics.median(taken[1:])


class Memory:
    """Peak of this process's memory on the device since `watch`, beyond what was there then; None where nobody tells.

    On a CPU it is the resident memory as Linux counts it; memory that was freed before and is used again is not in it,
    and neither are other processes.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.before: int | None = None

    def watch(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self.before = torch.cuda.memory_allocated(self.device)
            return
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            self.before = None
        else:
            self.before = _status("VmRSS")

    def peak(self) -> int | None:
        if self.before is None:
            return None
        now = torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else _status("VmHWM")
        return None if now is None else max(now - self.before, 0)


def _status(field: str) -> int | None:
    """Bytes of a line of /proc/self/status."""
    try:
        found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
