"""What every page is put together from: its files, data inside a script element, and the writing."""

from __future__ import annotations

import json
from pathlib import Path

from headway.errors import UserError

_HERE = Path(__file__).parent


def text_of(name: str, folder: Path = _HERE) -> str:
    """A file that lies beside the code."""
    return (folder / name).read_text(encoding="utf-8").strip()


def look(number: int) -> str:
    """The classes that colour and dash what belongs to one of many methods."""
    return f"c{number % 8} d{number // 8 % 4}"


def swatch(number: int) -> str:
    """A short line in the look of a method."""
    return f'<span class="swatch {look(number)}"></span>'


def embedded(content: object) -> str:
    """JSON inside a script element; without "<" no text can end that element."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def written(page: str, path: Path) -> Path:
    try:
        path.write_text(page + "\n", encoding="utf-8")
    except OSError as fault:
        raise UserError(f"the page '{path}' cannot be written: {fault.strerror or fault}") from None
    return path
