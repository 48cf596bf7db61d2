"""What every page is put together from: its frame and files, data inside a script element, and the writing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import metadata
from pathlib import Path
from string import Template
from typing import TypedDict

from headway.errors import UserError

_HERE = Path(__file__).parent


class Sheet(TypedDict):
    """The numbers of a chart, which the page saves as CSV, and the methods that its picture has, by their number."""

    head: list[str]
    rows: list[list[object]]
    """Texts and numbers; None is an empty field."""
    keys: list[tuple[int, str]]


def text_of(name: str, folder: Path = _HERE) -> str:
    """A file that lies beside the code."""
    return (folder / name).read_text(encoding="utf-8").strip()


def framed(title: str, content: str, data: object, styles: Sequence[str] = (), scripts: Sequence[str] = ()) -> str:
    """A whole page: what stands in its `main`, data for its scripts, and styles and scripts beside the common ones.

    `title` is plain text, `content` HTML.
    """
    return Template(text_of("frame.html")).substitute(
        title=escape(title),
        content=content,
        version=escape(metadata.version("headway")),
        data=embedded(data),
        style="\n".join([text_of("page.css"), *styles]),
        script="\n".join([text_of("common.js"), text_of("save.js"), *scripts]),
    )


def look(number: int) -> str:
    """The classes that colour and dash what belongs to one of many methods."""
    return f"c{number % 8} d{number // 8 % 4}"


def swatch(number: int) -> str:
    """A short line in the look of a method."""
    return f'<span class="swatch {look(number)}"></span>'


def name_cell(name: str, number: int | None = None) -> str:
    """The first cell of a row, with the look of a method by its number: a long name gets several lines.

    They end after an argument where they can.
    """
    parted = "<wbr>".join(escape(part) for part in re.split(r"(?<=[,:+/])(?=\w)", name))
    return f'<td>{"" if number is None else swatch(number)}<span class="long">{parted}</span></td>'


def chart(name: str, svg: str, caption: str = "", title: str = "") -> str:
    """A picture that can be saved: `name` is that of its sheet and of the files.

    The lines of `title` are written above the picture in the file only; the page has these words elsewhere.
    """
    words = f"<figcaption>{caption}</figcaption>" if caption else ""
    above = f' data-title="{escape(title)}"' if title else ""
    return f'<figure class="saved" data-name="{escape(name)}"{above}>{words}{svg}</figure>'


def broad(svg: str) -> str:
    """A picture that is scrolled sideways in a narrow window, where it would be too small to read."""
    wider = svg.replace('class="chart"', 'class="broad chart"', 1)
    return f'<div class="wide">{wider}</div>'


def legend(names: Mapping[int, str]) -> str:
    """The methods of a picture, each with its swatch."""
    return f'<p class="keys">{"".join(f"<span>{swatch(at)}{escape(name)}</span>" for at, name in names.items())}</p>'


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
