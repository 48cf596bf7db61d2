"""A command of Headway becomes a program of Flower's: alone in its state folder, and with it ends all that it started.

The lock on the state folder, and a pipe to a guard, are open descriptors that the program inherits and its own children
do not. When it ends, however it does, the lock is free, and the guard ends whatever it has left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from headway import random
from headway.deploy import guard, locks
from headway.deploy.commands import Command
from headway.errors import MachineError

MARK = "HEADWAY_PROGRAM"
"""The variable in the environment of a program and of all that it starts: a token."""


def become(command: Command, lock: Path, holder: str) -> NoReturn:
    """Take this process's place by a program; `lock` is a file of its state folder, `holder` says what runs there."""
    held = locks.hold(lock, holder)
    mark = f"{MARK}={random.secret(16).hex()}"
    kept = [held]
    if guard.sees_processes():
        watching = subprocess.Popen(
            [sys.executable, "-I", str(Path(guard.__file__)), mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # a Ctrl-C is for the program
        )
        assert watching.stdin is not None
        kept.append(watching.stdin.fileno())
    for descriptor in kept:
        os.set_inheritable(descriptor, True)
    name, _, token = mark.partition("=")
    try:
        os.execve(command.arguments[0], list(command.arguments), {**os.environ, **command.environment, name: token})
    except OSError as fault:
        raise MachineError(f"{command.arguments[0]} cannot be started: {fault.strerror or fault}") from None
