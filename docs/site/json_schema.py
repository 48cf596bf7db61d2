"""Writes docs/reference/numbers.schema.json, the schema of what --json prints."""

from __future__ import annotations

import json
from pathlib import Path

from headway.cli.json_schema import schema

FILE = Path(__file__).parents[1] / "reference" / "numbers.schema.json"


def text() -> str:
    """What the file holds."""
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
