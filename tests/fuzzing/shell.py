"""Commands played in this process as a shell would play them, and what must be true of each end."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from fuzzing.attempts import Finding
from headway.cli import main as cli

LONGEST = 1500
"""Characters of a complaint that somebody still reads."""

PROGRESS = re.compile(r"headway: |task: |.* · seed \d+ · |round \d+")
"""How lines on standard error begin; the first is a complaint or a note, the others are of a run that goes on."""

OF_THE_MACHINE = re.compile(
    r"File name too long|there is too little memory|Permission denied|Is a directory|Not a directory|"
    r"No such file or directory|Too many levels of symbolic links|File exists|No space left"
)
"""What exit code 1 may be about: the machine, not the request."""


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.err.split("\n") if line.strip()]


def command(*words: str) -> Answer:
    """`headway WORDS` in this process, in the folder it is in."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="replace") for _ in range(2))
    before, sys.argv = sys.argv, ["headway", *words]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.argv = before
    return Answer(code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    if not stream.closed:
        stream.flush()
        return stream.buffer.getvalue().decode(errors="replace")  # type: ignore[attr-defined, no-any-return]
    return ""


def judged(answer: Answer) -> str:
    """How a command ended, if it ended as every command must: 0, or a code and one line that says why."""
    for line in answer.lines:
        if not PROGRESS.match(line):
            raise Finding(f"standard error has a line that is not Headway's: {answer.err!r}")
        if not line.isprintable():
            raise Finding(f"a line has characters that no terminal should get: {answer.err!r}")
        if len(line) > LONGEST:
            raise Finding(f"a line has {len(line)} characters: {line[:300]}…")
    if "Traceback" in answer.err + answer.out:
        raise Finding(f"a traceback: {answer}")
    if answer.code == 0:
        return "done"
    if not answer.lines:
        if answer.code == 2 and "Usage" in answer.out:
            return "help"
        raise Finding(f"no line says why: {answer}")
    if answer.code == 2:
        return "refused"
    if answer.code == 1 and OF_THE_MACHINE.search(answer.lines[-1]):
        return "refused by the machine"
    if answer.code == 130 and "stopped" in answer.lines[-1]:
        return "stopped"
    raise Finding(f"this end is not promised: {answer}")


def strict(text: str) -> object:
    """JSON without NaN and infinities, which other programs cannot read."""

    def refuse(constant: str) -> object:
        raise Finding(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """In a folder, without a network, and with no settings of the user's."""

    def nowhere(*address: object, **more: object) -> list[object]:
        raise OSError("there is no network in here")

    before, lookup, variables = Path.cwd(), socket.getaddrinfo, dict(os.environ)
    os.chdir(folder)
    os.environ.pop("HEADWAY_DATA", None)
    os.environ |= {"COLUMNS": "100", "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(folder / "cache")}
    socket.getaddrinfo = nowhere  # type: ignore[assignment]
    try:
        yield
    finally:
        socket.getaddrinfo = lookup
        os.chdir(before)
        os.environ.clear()
        os.environ.update(variables)


def spelled(words: Sequence[str]) -> str:
    """A command for a report: long words are cut."""
    return " ".join(repr(word) if len(word) < 200 else f"{word[:60]!r}…({len(word)})" for word in words)
