"""Ends what a rehearsal, a server or a site left behind: a program of its own that only waits.

python guard.py MARK [FOLDER KEEP]: reads standard input to its end, which comes when the watched process has ended,
however it did. Unless the last word was "done", every process with MARK in its environment is ended. Of a rehearsal,
which has a FOLDER, also those whose output goes to a file of it, at once, and FOLDER is removed unless KEEP is "keep".
It imports nothing of Headway, so it starts at once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 8.0
"""Seconds that processes have to end by themselves before they are killed."""


def sees_processes() -> bool:
    """Whether this system shows processes and their environment in /proc."""
    return Path("/proc/self/environ").exists()


def marked(mark: str, logs: str = "") -> Iterator[int]:
    """The processes whose environment has the variable `mark`, written NAME=VALUE, or one that begins so.

    nginx writes its title over its environment, so those count too whose output goes to a file whose path begins with
    `logs`.
    """
    wanted = mark.encode()
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it has ended, or it is another user's
            if any(one.startswith(wanted) for one in (place / "environ").read_bytes().split(b"\0")) or (
                logs and os.readlink(place / "fd" / "1").startswith(logs)
            ):
                yield int(place.name)


def end_all(mark: str, seconds: float, number: int = signal.SIGKILL, logs: str = "") -> bool:
    """Send every marked process a signal until none is left; False where some are left after `seconds`."""
    until = time.monotonic() + seconds
    told: set[int] = set()
    while found := set(marked(mark, logs)):
        for process in found - told if number != signal.SIGKILL else found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        told |= found
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def main(mark: str, folder: str = "", keep: str = "keep") -> None:
    if sys.stdin.read().strip().endswith("done"):
        return
    if not folder:
        end_all(mark, PATIENCE, signal.SIGTERM)
    end_all(mark, 30, logs=f"{folder}/" if folder else "")
    if keep != "keep":
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
