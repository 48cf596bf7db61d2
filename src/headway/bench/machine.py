"""What is measured of the machine itself: its ceiling, its memory, what it is and which versions are on it."""

from __future__ import annotations

import platform
import re
import statistics
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from headway.bench.loop import Variant, settle

_DTYPES = {"fp64": torch.float64, "bf16": torch.bfloat16}
_SIDE = {"cuda": 8192, "cpu": 1536}
_TRIES = 5
_PACKAGES = ("headway", "torch", "numpy", "pfl", "flwr", "ray")


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


def hardware(device: torch.device) -> str:
    """`NVIDIA H200`, or the processor's name and the number of threads torch uses."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {torch.get_num_threads()} threads"


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def environment(device: torch.device) -> dict[str, Any]:
    """Date, hardware and versions, as they stand beside every result."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if device.type == "cuda":
        versions["cuda"] = str(torch.version.cuda)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device.type,
        "hardware": hardware(device),
        "system": platform.platform(),
        "versions": versions,
    }
