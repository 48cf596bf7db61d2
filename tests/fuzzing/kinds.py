"""Every kind of fuzzer, with how many cases its long form plays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fuzzing.attempts import Kind
from fuzzing.commands import Commands
from fuzzing.datafiles import DataFiles
from fuzzing.folders import Folders
from fuzzing.kills import Kills
from fuzzing.learning import Learning
from fuzzing.misuse import Misuse
from fuzzing.scenarios import Scenarios

KINDS: dict[str, tuple[Callable[[Path], Kind], int]] = {
    "kills": (Kills, 500),
    "commands": (Commands, 1600),
    "folders": (Folders, 600),
    "data": (DataFiles, 600),
    "scenarios": (Scenarios, 600),
    "misuse": (Misuse, 1000),
    "learning": (Learning, 1000),
}
