"""headway reproduce."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from headway.cli.ending import resumable
from headway.cli.screen import JSON, TRACK, aside, listed, print_json, screen
from headway.errors import RunsFailed, UserError, nearest

if TYPE_CHECKING:
    from headway.papers.cost_estimate import Seconds
    from headway.papers.plan import Plan
    from headway.papers.preset import Preset
    from headway.papers.reproduce import Outcomes

FORMATS = ("terminal", "markdown", "latex", "csv")
_FILES = {"markdown": "table.md", "latex": "table.tex", "csv": "table.csv"}


def reproduce(
    context: typer.Context,
    item: Annotated[str | None, typer.Argument(help="PAPER/ITEM, such as fedacg/table-1a", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--list", help="list every table and figure")] = False,
    board: Annotated[
        bool, typer.Option("--board", help="one page of all items, from the runs in results or --from FOLDER")
    ] = False,
    rows: Annotated[
        str | None, typer.Option(help="methods or settings of rows, with commas", show_default=False)
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="data sets or names of columns, with commas", show_default=False)
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="in place of the paper's", show_default=False)] = None,
    seeds: Annotated[int | None, typer.Option(help="in place of the paper's", show_default=False)] = None,
    scale: Annotated[
        str | None,
        typer.Option(help="full (default), or tiny: small model, little data, few rounds", show_default=False),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="whose settings: paper, agm21, acg24 or gradma-code", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto")] = "auto",
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16, fp64 or auto")] = "auto",
    executor: Annotated[str, typer.Option(help="how clients are executed")] = "auto",
    data_dir: Annotated[str | None, typer.Option(help="folder of the data sets", show_default=False)] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            help="rounds between checkpoints; else as few as a twentieth of the time allows, 1 at scale tiny",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would run, and its bytes; run nothing")] = False,
    trial: Annotated[
        bool, typer.Option("--trial", help="with --dry-run: play three rounds of each scenario and estimate the time")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="folder of runs, tables and pictures; runs/reproduce/PAPER/ITEM by default, none with --from",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option("--from", help="make the table from the runs in a folder; repeatable", show_default=False),
    ] = None,
    claim: Annotated[
        Path | None,
        typer.Option(
            help="with --from: add the runs to this folder, without checkpoints, with its table", show_default=False
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="with --claim: take the place of runs that are there with other numbers")
    ] = False,
    format: Annotated[str, typer.Option(help=", ".join(FORMATS))] = "terminal",
    json: Annotated[bool, JSON] = False,
    track: Annotated[list[str] | None, TRACK] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress bar")] = False,
) -> None:
    """Run a table or a figure of a paper, and print it beside the published numbers."""
    from headway.papers.claims import keep
    from headway.papers.items import preset
    from headway.papers.plan import plan as planned
    from headway.papers.saved_runs import find_runs, notes
    from headway.report.figures import shrunk
    from headway.runs.folder import UNCHECKED

    if format not in FORMATS:
        raise UserError(f"format is '{format}'; allowed: {', '.join(FORMATS)}{nearest(format, FORMATS)}")
    if trial and not dry_run:
        raise UserError("--trial estimates the time of a dry run; add --dry-run")
    if claim is not None and not source:
        raise UserError("--claim keeps runs that are there; give their folder with --from")
    if claim is not None and out is not None:
        raise UserError("--claim writes its tables and pictures beside the runs; leave out --out")
    if replace and claim is None:
        raise UserError("--replace is for runs of a claim; add --claim")
    if board:
        if item is not None or len(source or []) > 1:
            raise UserError("--board is of all items, from one folder; leave out the item, and give --from once")
        _board(source[0] if source else Path("results"), out or Path("runs", "board"), json)
        return
    if every:
        _list(json)
        return
    if item is None:
        raise UserError("no item given; headway reproduce --list names all, such as fedacg/table-1a")
    chosen = preset(item)
    sources = source or []
    told = notes(item, *sources, *([claim] if claim is not None else []))
    scale = scale or _scale(told)
    asked = {
        "rounds": rounds,
        "seeds": max((note["seeds"] for note in told if "seeds" in note), default=None) if seeds is None else seeds,
        "data_dir": data_dir,
        "checkpoint_every": checkpoint_every,
    }
    settings: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    settings |= {"device": device, "precision": precision, "executor": executor}
    plan = planned(chosen, rows=listed(rows), data=listed(data), scale=scale, profile=profile, **settings)
    if dry_run:
        _dry_run(plan, trial, json)
        return
    _runnable(chosen)
    if sources:
        outcomes = find_runs(plan, *sources)
        if not all(outcome.checked for outcome in outcomes.values()):
            aside().print(f"headway: {UNCHECKED}", markup=False, highlight=False, soft_wrap=True)
        if claim is not None:
            whole = planned(chosen, scale=scale, profile=profile, **settings)
            outcomes = keep(plan, outcomes, sources, whole, claim, replace)
            out, plan = claim, whole
        plan = plan.only(outcomes)
        drawn = [] if out is None else _write(plan, outcomes, out)
        if claim is not None:
            drawn = [shrunk(path) for path in drawn]
        _print(plan, outcomes, format, json)
        if out is not None and format == "terminal" and not json:
            _tell(f"tables: {out}", drawn)
        return
    folder = out or Path("runs", "reproduce", chosen.paper, chosen.name + ("-tiny" if scale == "tiny" else ""))
    _run(plan, folder, format, json, quiet, track or [], _command(context))


def _scale(notes: list[dict[str, Any]]) -> str:
    """The one scale that folders of runs are at."""
    scales = {str(note.get("scale", "full")) for note in notes} or {"full"}
    if len(scales) > 1:
        raise UserError(f"these folders have runs at scale {' and '.join(sorted(scales))}; choose with --scale")
    return scales.pop()


_ASIDE = {"out", "data_dir", "track", "format", "json", "quiet"}
"""Options that no number depends on; some name folders of this machine."""


def _command(context: typer.Context) -> str:
    """The command as it was given, for who wants to make the same runs."""
    words = ["headway", "reproduce"]
    for one in context.command.params:
        asked = context.get_parameter_source(str(one.name))
        if one.name not in _ASIDE and asked is not None and asked.name == "COMMANDLINE":
            value = context.params[str(one.name)]
            words += [
                *([one.opts[-1]] if one.opts[-1].startswith("-") else []),
                *([] if value is True else [str(value)]),
            ]
    return shlex.join(words)


def _runnable(preset: Preset) -> None:
    if preset.kind == "not-built":
        raise UserError(
            f"{preset.item} ({preset.title}) needs an analysis that is not built yet; --dry-run says its runs"
        )
    if not preset.columns:
        raise UserError(f"{preset.item} is {preset.title}: there is nothing to run")


def _board(source: Path, out: Path, as_json: bool) -> None:
    """The page and its picture; or the same as data, and nothing is written."""
    from headway.papers.board.cells import board, plain
    from headway.papers.board.page import page
    from headway.papers.board.picture import pictures
    from headway.report.page.parts import written
    from headway.runs.files import made

    told = plain(board(source), out)
    if as_json:
        print_json(told)
        return
    path = written(page(told), made(out) / "board.html")
    begun = len({item["item"] for item in told["items"] if item["runs"]})
    typer.echo(f"{begun} item{'s' if begun != 1 else ''} with runs, {len(told['cells'])} numbers\npage:    {path}")
    for picture in pictures(told["cells"], out):
        typer.echo(f"picture: {picture}")


def _list(as_json: bool) -> None:
    from headway.papers.items import every_preset
    from headway.papers.plan import plan as planned

    listed: list[dict[str, Any]] = [
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
    if seconds is None:
        return "unknown"
    return (
        f"{seconds / 3600:.1f} h"
        if seconds >= 5400
        else f"{seconds / 60:.1f} min"
        if seconds >= 90
        else f"{seconds:.0f} s"
    )


def _dry_run(plan: Plan, trial: bool, as_json: bool) -> None:
    """Each run with its bytes, and its time where it was measured."""
    from headway.cli.progress import Bar
    from headway.papers import cost_estimate

    seconds: Seconds = cost_estimate.time_by_trial(Bar(aside(), quiet=True)) if trial else cost_estimate.unknown_time
    lines: list[dict[str, Any]] = []
    owners = {run: cell for cell in reversed(plan.cells) for run in cell.runs}
    for run in plan.runs:
        cell, scenario = owners[run], run.scenario
        lines.append(
            {
                "row": cell.row.name,
                "column": cell.column.name,
                "method": run.method,
                "seed": scenario.seed,
                "rounds": scenario.rounds,
                "bytes": cost_estimate.run_bytes(run),
                "seconds": seconds(run),
                "scenario": scenario.as_dict(),
            }
        )
    if as_json:
        preset = plan.preset
        about = {"item": preset.item, "kind": preset.kind, "scale": plan.scale, "source": preset.source}
        numbers = [
            {"row": row, "column": column, "measure": measure, "value": number.value, "bound": number.bound}
            for (row, column, measure), number in preset.numbers.items()
            if row in {one.name for one in plan.rows} and column in {one.name for one in plan.columns}
        ]
        print_json({**about, "chosen": list(preset.chosen), "runs": lines, "published": numbers})
        return
    _print_dry_run(plan, lines, trial)


def _total(values: list[Any]) -> Any:
    """The sum, or None where a part is unknown."""
    return None if any(value is None for value in values) else sum(values)


def _print_dry_run(plan: Plan, lines: list[dict[str, Any]], trial: bool) -> None:
    from headway.papers.plan import TINY
    from headway.papers.table import size, title

    table = Table(box=box.SIMPLE_HEAD, title=title(plan), title_justify="left", title_style="bold", show_edge=False)
    for name in ("column", "method", "seed", "rounds", "traffic", "time"):
        table.add_column(name, justify="left" if name in ("column", "method") else "right")
    for line in lines:
        texts = (line["column"], line["method"], str(line["seed"]), str(line["rounds"]))
        table.add_row(*texts, "unknown" if line["bytes"] is None else size(line["bytes"]), _clock(line["seconds"]))
    console = screen()
    console.print(table)
    traffic, time = (_total([line[key] for line in lines]) for key in ("bytes", "seconds"))
    how = "three rounds of FedAvg on this machine, times each method's passes" if trial else "--trial measures it here"
    console.print(
        f"{len(lines)} runs, traffic {'unknown' if traffic is None else size(traffic)}, time {_clock(time)} ({how})"
    )
    if plan.scale == "tiny":
        console.print(TINY)
    for choice in plan.preset.chosen:
        console.print(f"chosen: {choice}", markup=False)


def _run(plan: Plan, folder: Path, format: str, as_json: bool, quiet: bool, track: list[str], command: str) -> None:
    from headway.cli.progress import Bar
    from headway.papers.reproduce import reproduce as reproduced

    choosing = not as_json and any(one.scenario.executor == "auto" for one in plan.runs)
    with resumable(folder, again=True):
        with Bar(aside(), quiet, choosing) as bar:
            outcomes = reproduced(plan, folder, bar, track, command)
        drawn = _write(plan, outcomes, folder)
    _print(plan, outcomes, format, as_json)
    if format == "terminal" and not as_json:
        _tell(f"runs and tables: {folder}", drawn)
    failed = [outcome for outcome in outcomes.values() if outcome.failure is not None]
    if failed:
        causes = "; ".join(dict.fromkeys(str(outcome.failure) for outcome in failed))
        message = f"{len(failed)} of {len(plan.runs)} runs failed: {causes}"
        raise UserError(message) if all(outcome.mistaken for outcome in failed) else RunsFailed(message)


def _write(plan: Plan, outcomes: Outcomes, folder: Path) -> list[Path]:
    """Tables and pictures into a folder; the pictures' paths."""
    from headway.papers.figures.draw import write_figures
    from headway.runs.files import made

    for name, file in _FILES.items():
        (made(folder) / file).write_text(_text(plan, outcomes, name), encoding="utf-8")
    return write_figures(plan, outcomes, folder)


def _tell(tables: str, pictures: list[Path]) -> None:
    typer.echo("\n".join([tables, *(f"picture: {path}" for path in pictures)]))


def _text(plan: Plan, outcomes: Outcomes, format: str) -> str:
    from headway.papers import table

    return {"markdown": table.markdown, "latex": table.latex, "csv": table.comma_separated}[format](plan, outcomes)


def _print(plan: Plan, outcomes: Outcomes, format: str, as_json: bool) -> None:
    from headway.papers import table

    if as_json:
        print_json(table.plain(plan, outcomes))
    elif format == "terminal":
        console = screen()
        console.print(table.title(plan), style="bold", markup=False)
        for heading, one in table.terminal(plan, outcomes, console.width):
            console.print(heading, markup=False)
            console.print(one)
            console.print()
        for line in table.below(plan, outcomes):
            console.print(line, markup=False)
    else:
        typer.echo(_text(plan, outcomes, format), nl=False)
