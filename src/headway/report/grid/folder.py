"""A folder with everything that is reported of a grid."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from headway.report import folder as of_study
from headway.report import tables
from headway.report.grid.cells import heat, lead, methods
from headway.report.grid.page import write_page
from headway.report.grid.pictures import heat_map, small_multiples
from headway.runs.files import as_path, ensure_folder
from headway.runs.grid import Cell, Grid


@dataclass(frozen=True)
class GridReport:
    """The files of a report on a grid."""

    page: Path
    """report.html: small multiples, heat map and tables in one file, with links to the scenarios' own pages."""
    picture: Path
    """grid.png: a panel for each scenario."""
    heat_map: Path
    """heat.png: methods × scenarios."""
    markdown: Path
    """grid.md: the table of all scenarios, then that of each."""
    latex: Path
    """grid.tex: the same for a paper."""


def write_grid(grid: Grid, folder: str | Path) -> GridReport:
    """Write the report on a grid, and that of each scenario below it.

    >>> write_grid(headway.compare_grid(["fedavg", "fedacg"], vary={"rate": [0.05, 0.1]}, rounds=30), "grid")
    """
    place = ensure_folder(as_path("folder", folder))
    at_home = grid.folder is not None and grid.folder.resolve() == place.resolve()
    links = {}
    for number, cell in enumerate(grid.cells):
        if cell.study is not None:
            own = cell.study.folder if at_home and cell.study.folder is not None else place / f"{number + 1:02d}"
            links[number] = Path(os.path.relpath(of_study.write(cell.study, own).page, place)).as_posix()
    report = GridReport(
        page=write_page(grid, place / "report.html", links),
        picture=small_multiples(grid, place / "grid.png"),
        heat_map=heat_map(grid, place / "heat.png"),
        markdown=place / "grid.md",
        latex=place / "grid.tex",
    )
    report.markdown.write_text(_markdown(grid), encoding="utf-8")
    report.latex.write_text(_latex(grid), encoding="utf-8")
    return report


def table(grid: Grid) -> tuple[list[str], list[list[str]], set[tuple[int, int]]]:
    """Headings, cells, and which are the best of their scenario: a row for each scenario, a column for each method."""
    content = heat(grid)
    head = [*grid.axes, *methods(grid)]
    body, bold = [], set()
    for number, cell in enumerate(grid.cells):
        body.append([*(str(value) for value in cell.settings.values()), *(row[number][0] for row in content)])
        for column, row in enumerate(content, start=len(grid.axes)):
            if row[number][1] == 1 and len(content) > 1:
                bold.add((number, column))
    return head, body, bold


def _markdown(grid: Grid) -> str:
    head, body, bold = table(grid)
    lines = [
        "| " + " | ".join(map(tables.plain, head)) + " |",
        "|" + "---|" * len(grid.axes) + "---:|" * len(methods(grid)),
    ]
    for row, texts in enumerate(body):
        cells = (tables.plain(text).replace("|", "\\|") for text in texts)
        lines.append(
            "| " + " | ".join(f"**{text}**" if (row, at) in bold else text for at, text in enumerate(cells)) + " |"
        )
    parts = ["\n".join(lines), f"{lead(grid).words}; the best of each scenario in bold"]
    parts += [f"## {tables.plain(cell.label)}\n\n{_of_cell(cell)}" for cell in grid.cells]
    return "\n\n".join(parts) + "\n"


def _of_cell(cell: Cell) -> str:
    if cell.study is None:
        return tables.plain(cell.failure)
    scenario = next(iter(cell.study.runs.values()))[0].scenario
    return tables.markdown(cell.study.summary(), scenario).strip()


def _latex(grid: Grid) -> str:
    head, body, bold = table(grid)
    lines = tables.tabular("l" * len(grid.axes) + "r" * len(methods(grid)), head, body, bold)
    return "\n".join([tables.NEEDS_BOOKTABS, *lines, f"% {lead(grid).words}"]) + "\n"
