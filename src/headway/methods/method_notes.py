"""What a person wrote of a method, in `methods/notes/NAME.md`."""

from __future__ import annotations

import re
from importlib import resources

from headway.errors import UserError

NOTES = (
    "Symbols",
    "Arguments",
    "What is logged",
    "Details that matter",
    "What the authors' program does differently",
    "Tested",
    "Run it",
    "Source",
)
"""The headings that a file of notes may have. The text before the first says what the method is for."""


def purpose(name: str) -> str:
    """What a method is for, in a line of plain text; empty where it has no notes."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(read_notes(name)[0].split()))


def read_notes(name: str) -> tuple[str, dict[str, str]]:
    """(what the method is for, the text under each heading); both empty where a method has no notes."""
    file = resources.files("headway.methods").joinpath("notes", f"{name}.md")
    if not file.is_file():
        return "", {}
    summary, *pieces = re.split(r"^## (.+)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    notes = {heading: text.strip("\n") for heading, text in zip(pieces[::2], pieces[1::2], strict=True)}
    if unknown := [heading for heading in notes if heading not in NOTES]:
        raise UserError(f"the notes of {name} have the heading '{unknown[0]}'; allowed: {', '.join(NOTES)}")
    return summary.strip("\n"), notes
