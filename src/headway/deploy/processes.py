"""Processes of a rehearsal: started with a mark, found again by it with all their descendants, and always ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from headway import random
from headway.deploy import guard
from headway.deploy.commands import Command
from headway.errors import MachineError, UserError

MARK = "HEADWAY_REHEARSAL"
"""The variable in the environment of every process of a rehearsal: its token and the name of the part."""


@dataclass(frozen=True)
class Child:
    """A process that was started, and the file that has what it said."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def last_words(self) -> str:
        """The end of its log, on one line."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(line.strip() for line in lines if line.strip())[-600:]


class Stage:
    """The folder and the processes of one rehearsal. On leaving, every process is ended and the folder removed.

    A guard does the same where this process is killed. `keep` leaves the folder.
    """

    def __init__(self, keep: bool = False) -> None:
        self.keep = keep
        self.token = random.secret(16).hex()
        self.children: dict[str, Child] = {}

    def __enter__(self) -> Stage:
        if not guard.sees_processes():
            raise UserError("rehearse finds its processes in /proc, which this system does not have; use Linux")
        self.folder = Path(tempfile.mkdtemp(prefix="headway-rehearsal-")).resolve()
        words = [str(Path(guard.__file__)), self.mark, str(self.folder), "keep" if self.keep else "remove"]
        self._guard = subprocess.Popen([sys.executable, "-I", *words], stdin=subprocess.PIPE, start_new_session=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = not self.end()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._guard.communicate(b"" if left else b"done")
        if left and fault is None:
            raise MachineError("processes of the rehearsal could not be ended; look for them: ps -ef | grep flower")

    @property
    def mark(self) -> str:
        return f"{MARK}={self.token}/"

    @property
    def logs(self) -> str:
        """How the paths of the parts' logs begin."""
        return f"{self.folder}/"

    def start(self, name: str, command: Command) -> Child:
        """Start a part; what it prints goes to NAME.log, after what was there."""
        log = self.folder / f"{name}.log"
        environment = {**os.environ, **command.environment, MARK: f"{self.token}/{name}/"}
        with log.open("ab") as output:
            process = subprocess.Popen(
                command.arguments,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is for the rehearsal, which ends its parts in order
            )
        self.children[name] = Child(name, process, log)
        return self.children[name]

    def kill(self, name: str) -> None:
        """Kill a part with all its descendants at once, as a machine dies that loses its power."""
        guard.end_all(f"{self.mark}{name}/", 10, logs=f"{self.logs}{name}.log")
        self.children[name].process.wait()

    def kill_program(self, name: str, program: str) -> bool:
        """Kill the descendants of a part that run a program, and say whether there were any."""
        found = [one for one in guard.marked(f"{self.mark}{name}/") if program in _command_line(one)]
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return bool(found)

    def end(self) -> bool:
        """End every process of the rehearsal; False where some could not be ended."""
        ended = guard.end_all(self.mark, guard.PATIENCE, signal.SIGTERM, self.logs) or guard.end_all(
            self.mark, 10, logs=self.logs
        )
        for child in self.children.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(1 if ended else 0)
        return ended

    def left(self) -> list[int]:
        """The processes that are there now."""
        return list(guard.marked(self.mark, self.logs))


def _command_line(process: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on."""
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            sockets.append(socket.socket())
            sockets[-1].bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def listens(port: int) -> bool:
    """Whether something answers at a port of 127.0.0.1."""
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition: Callable[[], bool], seconds: float, parts: Sequence[Child] = ()) -> bool:
    """Wait for a condition; False after `seconds`. A part that has ended by then is a failure of the machine."""
    until = time.monotonic() + seconds
    while not condition():
        for part in parts:
            if part.process.poll() is not None:
                raise MachineError(f"{part.name} ended with exit code {part.process.returncode}: {part.last_words}")
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True
