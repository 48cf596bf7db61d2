"""The page of headway deploy status: one HTML file that loads nothing, for light and dark screens, wide and narrow."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

STYLE = """\
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 60rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid GrayText; padding: .3rem .6rem; text-align: left; }
@media (max-width: 600px) {
  thead { display: none; }
  tr { border-bottom: 2px solid GrayText; display: block; padding: .4rem 0; }
  td { border: 0; display: flex; gap: 1rem; justify-content: space-between; padding: .1rem 0; }
  td::before { content: attr(data-label); color: GrayText; }
}
"""


def page(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str, again: bool) -> str:
    """The page as text; a browser loads it anew every five seconds where `again` says so."""
    refresh = '<meta http-equiv="refresh" content="5">\n' if again else ""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "\n".join(
        "<tr>"
        + "".join(
            f'<td data-label="{escape(column)}">{escape(cell)}</td>' for column, cell in zip(columns, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{refresh}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n<p>{escape(note)}</p>\n"
        "</body>\n</html>\n"
    )
