"""What several commands take and print in the same way."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console

TRACK = typer.Option("--track", help="tensorboard[:DIR] or mlflow[:URI]; repeatable", show_default=False)
JSON = typer.Option("--json", help="print JSON on standard output and nothing else there")


def print_json(content: Any) -> None:
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


def aside() -> Console:
    """Standard error, for progress and messages: all that is no result."""
    return Console(stderr=True, highlight=False)
