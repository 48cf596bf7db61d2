"""What `headway reproduce` shows without running anything: all items, what one would run, and the board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

import typer
from rich import box
from rich.table import Table

from headway.cli.screen import print_json, screen, stderr_console

if TYPE_CHECKING:
    from headway.papers.cost_estimate import Seconds
    from headway.papers.plan import Plan


def board(source: Path, out: Path | None, as_json: bool) -> None:
    """The page of all items and its picture in a folder; or the same as data, and nothing is written."""
    from headway.papers.board.cells import board as filled
    from headway.papers.board.cells import plain
    from headway.papers.board.page import page
    from headway.papers.board.picture import pictures
    from headway.report.page.parts import written
    from headway.runs.files import ensure_folder

    out = out or Path("runs", "board")
    content = plain(filled(source), out)
    if as_json:
        print_json(content)
        return
    path = written(page(content), ensure_folder(out) / "board.html")
    begun = len({item["item"] for item in content["items"] if item["runs"]})
    typer.echo(f"{begun} item{'s' if begun != 1 else ''} with runs, {len(content['cells'])} numbers\npage:    {path}")
    for picture in pictures(content["cells"], out):
        typer.echo(f"picture: {picture}")


class ListedItem(TypedDict):
    """A table or figure as plain data."""

    item: str
    kind: str
    runs: int
    title: str
    source: str
    rows: list[str]
    columns: list[str]
    published: int
    """How many numbers are printed."""
    shares: list[str]
    chosen: list[str]


def list_all(as_json: bool) -> None:
    """Every table and figure, with its number of runs and of published values."""
    from headway.papers.items import every_preset
    from headway.papers.plan import plan as planned

    listed: list[ListedItem] = [
        {
            "item": preset.item,
            "kind": preset.kind,
            "runs": len(planned(preset).runs),
            "title": preset.title,
            "source": preset.source,
            "rows": [row.name for row in preset.rows],
            "columns": [column.name for column in preset.columns],
            "published": len(preset.numbers),
            "shares": list(preset.shares),
            "chosen": list(preset.chosen),
        }
        for preset in every_preset()
    ]
    if as_json:
        print_json(listed)
        return
    table = Table(box=box.SIMPLE_HEAD, caption="runs: separate trainings; numbers: published values", show_edge=False)
    for name in ("item", "kind", "runs", "numbers", "title"):
        table.add_column(name, justify="right" if name in ("runs", "numbers") else "left")
    for one in listed:
        table.add_row(one["item"], one["kind"], str(one["runs"]), str(one["published"]), one["title"])
    screen().print(table)


def _clock(seconds: float | None) -> str:
    """Seconds in the unit in which they are easily read."""
    if seconds is None:
        return "unknown"
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 90 else f"{seconds:.0f} s"


@dataclass(frozen=True)
class _Line:
    """A run of a dry run; what is not known is None."""

    row: str
    column: str
    method: str
    seed: int
    rounds: int
    bytes: int | None
    seconds: float | None
    scenario: Mapping[str, object]


def dry_run(plan: Plan, trial: bool, as_json: bool) -> None:
    """Each run with its bytes, and its time where it was measured."""
    from headway.papers import cost_estimate
    from headway.runs.progress import Bar

    measured = cost_estimate.time_by_trial(Bar(stderr_console(), quiet=True)) if trial else None
    lines = _lines(plan, measured or cost_estimate.unknown_time)
    if as_json:
        print_json(_as_data(plan, lines))
    else:
        _print_dry_run(plan, lines, trial)


def _lines(plan: Plan, seconds: Seconds) -> list[_Line]:
    """The runs of a plan, each at the first cell that needs it."""
    from headway.papers import cost_estimate

    owners = {run: cell for cell in reversed(plan.cells) for run in cell.runs}
    return [
        _Line(
            row=owners[run].row.name,
            column=owners[run].column.name,
            method=run.method,
            seed=run.scenario.seed,
            rounds=run.scenario.rounds,
            bytes=cost_estimate.run_bytes(run),
            seconds=seconds(run),
            scenario=run.scenario.as_dict(),
        )
        for run in plan.runs
    ]


def _as_data(plan: Plan, lines: Sequence[_Line]) -> dict[str, object]:
    """A dry run as plain data, with the numbers that are printed for its rows and columns."""
    preset = plan.preset
    rows, columns = {one.name for one in plan.rows}, {one.name for one in plan.columns}
    numbers = [
        {"row": row, "column": column, "measure": measure, "value": number.value, "bound": number.bound}
        for (row, column, measure), number in preset.numbers.items()
        if row in rows and column in columns
    ]
    return {
        "item": preset.item,
        "kind": preset.kind,
        "scale": plan.scale,
        "source": preset.source,
        "chosen": list(preset.chosen),
        "runs": list(map(vars, lines)),
        "published": numbers,
    }


Number = TypeVar("Number", int, float)


def _total(values: Sequence[Number | None]) -> Number | None:
    """The sum, or None where a part is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _traffic(bytes: int | None) -> str:
    from headway.papers.table import size

    return "unknown" if bytes is None else size(bytes)


def _print_dry_run(plan: Plan, lines: Sequence[_Line], trial: bool) -> None:
    from headway.papers.plan import TINY
    from headway.papers.table import title

    table = Table(box=box.SIMPLE_HEAD, title=title(plan), title_justify="left", title_style="bold", show_edge=False)
    for name in ("column", "method", "seed", "rounds", "traffic", "time"):
        table.add_column(name, justify="left" if name in ("column", "method") else "right")
    for line in lines:
        texts = (line.column, line.method, str(line.seed), str(line.rounds))
        table.add_row(*texts, _traffic(line.bytes), _clock(line.seconds))
    console = screen()
    console.print(table)
    traffic, time = _total([line.bytes for line in lines]), _total([line.seconds for line in lines])
    how = "three rounds of FedAvg on this machine, times each method's passes" if trial else "--trial measures it here"
    console.print(f"{len(lines)} runs, traffic {_traffic(traffic)}, time {_clock(time)} ({how})")
    if plan.scale == "tiny":
        console.print(TINY)
    for choice in plan.preset.chosen:
        console.print(f"chosen: {choice}", markup=False)
