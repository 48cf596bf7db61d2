"""What `result.plot()`, `study.report(…)` and a notebook show: the pictures, pages and tables of this package."""

from __future__ import annotations

import io
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import UserError
from headway.measure.summary import over_seeds
from headway.report.figures import compare_figure
from headway.report.folder import write
from headway.report.grid.cells import lead
from headway.report.grid.folder import table as table_of_grid
from headway.report.grid.folder import write_grid
from headway.report.grid.pictures import multiples_figure
from headway.report.tables import best, caption, cells
from headway.runs.files import as_path
from headway.runs.grid import Grid
from headway.runs.result import Result
from headway.runs.study import Study, study_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """A picture: a notebook shows it, `save` writes it, and `figure` is matplotlib's."""

    figure: Figure

    def save(self, path: str | Path) -> Path:
        """Write it as PNG, SVG or PDF, by the end of the name."""
        target = as_path("path", path)
        if target.suffix not in (".png", ".svg", ".pdf"):
            raise UserError(f"path is '{target}'; it must end in .png, .svg or .pdf")
        try:
            self.figure.savefig(target, dpi=130)
        except OSError as fault:
            raise UserError(f"the picture '{target}' cannot be written: {fault.strerror or fault}") from None
        return target

    def __repr__(self) -> str:
        return "a picture; .save('curves.png') writes it"

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.figure.savefig(content, format="png", dpi=100)
        return content.getvalue()


def plot(of: Result | Study) -> Drawing:
    """The curves over rounds and over bytes sent."""
    return Drawing(compare_figure(_study(of)))


def plot_grid(of: Grid) -> Drawing:
    """A panel of curves for each scenario."""
    return Drawing(multiples_figure(of))


def report(of: Result | Study | Grid, folder: str | Path) -> Path:
    """Write page, tables and pictures into a folder; the path of the page."""
    return (write_grid(of, folder) if isinstance(of, Grid) else write(of, folder)).page


def html(of: Result | Study) -> str:
    """The table of the comparison, for a notebook; of a run its own row."""
    if isinstance(of, Result):
        rows, scenario, note = [over_seeds(of.method, [of.summary])], of.scenario, ""
    else:
        rows, scenario = of.summary(), next(iter(of.runs.values()))[0].scenario
        note = f"<p>{escape(of.note)}</p>" if of.note else ""
    return f"{_table(*cells(rows), best(rows), 1)}<p><small>{escape(caption(rows, scenario))}</small></p>{note}"


def html_of_grid(of: Grid) -> str:
    """A row for each scenario, a column for each method, for a notebook."""
    failed = "".join(f"<p>{escape(line)}</p>" for line in of.failed)
    return f"{_table(*table_of_grid(of), len(of.axes))}<p><small>{escape(lead(of).words)}</small></p>{failed}"


def _study(of: Result | Study) -> Study:
    return of if isinstance(of, Study) else study_of([of])


def _table(head: list[str], body: list[list[str]], bold: set[tuple[int, int]], names: int) -> str:
    """A table of texts, whose first columns are names."""

    def cell(text: str, row: int, column: int) -> str:
        inner = f"<strong>{escape(text)}</strong>" if (row, column) in bold else escape(text)
        return f'<td style="text-align:{"left" if column < names else "right"}">{inner}</td>'

    heads = "".join(f"<th>{escape(text)}</th>" for text in head)
    lines = (
        "<tr>" + "".join(cell(text, row, column) for column, text in enumerate(line)) + "</tr>"
        for row, line in enumerate(body)
    )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
