"""What several commands take and print in the same way."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import IO, cast

import typer
from rich.console import Console

TRACK = typer.Option(
    "--track", help="tensorboard[:DIR], mlflow[:URI] or wandb[:PROJECT]; repeatable", show_default=False
)
JSON = typer.Option("--json", help="print JSON on standard output and nothing else there")


def print_json(content: object) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))


WIDE, ENDLESS = 140, 1000
"""Columns where there is no edge: of tables that choose by them what they show, and of all else."""


def listed(spelled: str | None) -> list[str] | None:
    """Names that are given with commas."""
    return None if spelled is None else [name.strip() for name in spelled.split(",")]


def screen(least: int = WIDE) -> Console:
    """Standard output, for results; a file or a pipe has no edge."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, least)
    return console


def stderr_console() -> Console:
    """Standard error, for progress and messages: everything but results.

    A run goes on where nobody can read messages any more: its terminal is closed, or the disk of its log is full.
    """
    return Console(file=cast(IO[str], _Patient(sys.stderr)), highlight=False)


class _Patient(io.TextIOBase):
    """Writes to a stream and loses what it cannot take. It holds the stream itself: rich replaces `sys.stderr`."""

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return str(getattr(self._stream, "encoding", None) or "utf-8")

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        return -1 if self._stream is None else self._stream.fileno()

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            if self._stream is not None:
                return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            if self._stream is not None:
                self._stream.flush()
