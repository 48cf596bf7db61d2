"""Where a result was made: hardware, system and versions."""

from __future__ import annotations

import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TypedDict

import torch


class MadeOn(TypedDict):
    """Hardware, system and versions."""

    device: str
    hardware: str
    system: str
    versions: dict[str, str]


class Environment(MadeOn):
    """The same with the date."""

    date: str


_PACKAGES = ("headway", "torch", "numpy", "pfl", "flwr", "ray")


def hardware(device: torch.device) -> str:
    """`NVIDIA H200`, or the processor's name and the number of threads torch uses."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{processor()}, {threads} thread{'s' if threads != 1 else ''}"


def processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def hardware_and_versions(device: torch.device) -> MadeOn:
    """What a run's numbers and times depend on beside its settings; the same on each repetition."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if device.type == "cuda":
        versions["cuda"] = str(torch.version.cuda)
    return {
        "device": device.type,
        "hardware": hardware(device),
        "system": platform.platform(),
        "versions": versions,
    }


def commit() -> str:
    """The commit of Headway's own source, with `+dirty` where it was changed since; '' where it is in no checkout."""
    source = Path(__file__).resolve().parents[1]

    def git(*words: str) -> str:
        answer = subprocess.run(["git", "-C", str(source), *words], capture_output=True, text=True, check=True)
        return answer.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # an installed package may lie in somebody else's checkout
        return git("rev-parse", "HEAD") + ("+dirty" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def environment(device: torch.device) -> Environment:
    """Date, hardware and versions, as they stand beside every result."""
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), **hardware_and_versions(device)}
