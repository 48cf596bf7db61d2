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


def screen() -> Console:
    """Standard output; a file or a pipe has no edge."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 140)
    return console
