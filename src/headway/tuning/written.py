"""The files of a sweep that people read: its table and its picture."""

from __future__ import annotations

from pathlib import Path

from headway.tuning.picture import picture
from headway.tuning.results import Sweep
from headway.tuning.table import markdown


def write_tables(found: Sweep, folder: Path) -> Path | None:
    """sweep.md, and sweep.png where there is a best; the path of the picture."""
    drawn = picture(found, folder / "sweep.png") if found.best is not None else None
    (folder / "sweep.md").write_text(markdown(found, drawn.name if drawn else None), encoding="utf-8")
    return drawn
