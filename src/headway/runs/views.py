"""How results show themselves: pictures, pages and tables are made by `headway.report`, which stands above runs.

Runs know only this protocol. The report is looked up by its name when somebody asks a result for a picture.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from headway.runs.grid import Grid
    from headway.runs.result import Result
    from headway.runs.study import Study


class Picture(Protocol):
    """A picture that a notebook shows."""

    def save(self, path: str | Path) -> Path:
        """Write it: as PNG, SVG or PDF, by the end of the name."""

    def _repr_png_(self) -> bytes: ...


class Views(Protocol):
    """What `headway.report.views` has."""

    def plot(self, of: Result | Study) -> Picture: ...

    def plot_grid(self, of: Grid) -> Picture: ...

    def html(self, of: Result | Study) -> str: ...

    def html_of_grid(self, of: Grid) -> str: ...

    def report(self, of: Result | Study | Grid, folder: str | Path) -> Path: ...


def views() -> Views:
    """The views, imported when they are first needed."""
    return cast(Views, importlib.import_module("headway.report.views"))
