"""`compare --vary`, and resume and report of its folder: what is printed of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from headway.cli.ending import resumable
from headway.cli.outcome import document
from headway.cli.screen import print_json, screen, stderr_console
from headway.errors import RunsFailed

if TYPE_CHECKING:
    from headway.runs.grid import Grid
    from headway.runs.lanes.jobs import Jobs
    from headway.scenario import Scenario

VARY = typer.Option(
    "--vary",
    help="a setting and its values, such as participation=0.05,0.2; repeatable: every combination is compared",
    show_default=False,
)


def compare(
    methods: list[str],
    scenario: Scenario,
    vary: list[str],
    folder: Path,
    as_json: bool,
    quiet: bool,
    track: list[str],
    lanes: tuple[str | None, str | None] = (None, None),
) -> None:
    """Compare methods on every combination of what varies."""
    from headway.runs.grid import axes_of, compare_grid
    from headway.runs.progress import Bar

    cells = 1
    for values in axes_of(vary).values():
        cells *= len(values)
    choosing = scenario.executor == "auto" and not as_json
    with (
        Bar(stderr_console(), quiet, choosing, cells * len(methods) * scenario.seeds) as bar,
        resumable(folder),
    ):
        jobs, devices = lanes
        grid = compare_grid(
            methods, scenario, vary=vary, out=folder, observer=bar, track=track, jobs=jobs, devices=devices
        )
    show(grid, folder, as_json)


def resume(
    folder: Path, as_json: bool, quiet: bool, track: Sequence[str], accept: bool, jobs: Jobs | None = None
) -> None:
    """Go on with a grid."""
    from headway.runs.grid import resume_grid, unfinished_of_grid
    from headway.runs.progress import Bar

    left = unfinished_of_grid(folder)
    with Bar(stderr_console(), quiet, runs=left) as bar, resumable(folder):
        grid = resume_grid(folder, bar, track, accept, jobs)
        if not left:
            bar.tell(f"{folder} is finished; nothing is left to do")
    show(grid, folder, as_json)


def report(folder: Path, out: Path, as_json: bool) -> None:
    """The report on a grid as far as it is."""
    from headway.runs.grid import load_grid
    from headway.runs.progress import Bar

    show(load_grid(folder, Bar(stderr_console(), quiet=True)), out, as_json)


def show(grid: Grid, folder: Path, as_json: bool) -> None:
    """Write the report; print the table of all scenarios, or a document for each."""
    from headway.report import write_grid
    from headway.report.grid.cells import lead
    from headway.report.grid.folder import table

    written = write_grid(grid, folder)
    if as_json:
        cells = [
            {"settings": dict(cell.settings), "failure": cell.failure}
            | ({"methods": [], "runs": [], "note": ""} if cell.study is None else dict(document(cell.study)))
            for cell in grid.cells
        ]
        print_json({"axes": {name: list(values) for name, values in grid.axes.items()}, "cells": cells})
    else:
        head, body, bold = table(grid)
        shown = Table(box=box.SIMPLE_HEAD, caption=lead(grid).words, caption_justify="left")
        for number, name in enumerate(head):
            shown.add_column(name, justify="left" if number < len(grid.axes) else "right", overflow="fold")
        for row, texts in enumerate(body):
            shown.add_row(*(Text(text, style="bold" if (row, at) in bold else "") for at, text in enumerate(texts)))
        screen().print(shown)
        for line in grid.failed:
            typer.echo(line)
        typer.echo(
            f"page:     {written.page}\npictures: {written.picture}, {written.heat_map}\n"
            f"tables:   {written.markdown}, {written.latex}"
        )
    if count := len(grid.failed):
        raise RunsFailed(f"{count} run{'s' if count > 1 else ''} failed; the tables are of the others")
