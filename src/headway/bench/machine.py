"""Measures the machine itself: how many operations a second it reaches, and how much memory a piece of work takes."""

from __future__ import annotations

import re
import statistics
import time
from pathlib import Path

import torch

from headway.bench.loop import Variant, wait_for

_DTYPES = {"fp64": torch.float64, "bf16": torch.bfloat16}
_SIDE = {"cuda": 8192, "cpu": 1536}
_TRIES = 5


def peak_flops(device: torch.device, precision: str) -> float:
    """FLOP/s of a product of two large n × n matrices, 2n³ over the median time: about the most a round can reach."""
    side, dtype = _SIDE[device.type], _DTYPES.get(precision, torch.float32)
    left, right = (torch.ones(side, side, dtype=dtype, device=device) for _ in range(2))
    out = torch.empty_like(left)
    taken = []
    with Variant(precision).arithmetic():
        for _ in range(1 + _TRIES):
            wait_for(device)
            start = time.perf_counter()
            torch.mm(left, right, out=out)
            wait_for(device)
            taken.append(time.perf_counter() - start)
    return 2 * side**3 / statistics.median(taken[1:])


class Memory:
    """The most memory that this process took on the device since `watch`, beyond what it had then.

    None where the system does not report it. On a CPU it is the resident memory as Linux counts it: without memory that
    was free before and is used again, and without that of other processes.
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
