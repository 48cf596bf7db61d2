"""headway reproduce."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import items
from headway.cli.ending import resumable
from headway.cli.flags import with_options
from headway.cli.jobs import DEVICES, JOBS
from headway.cli.ranks import refuse_ranks
from headway.cli.screen import JSON, TRACK, listed, print_json, screen, stderr_console
from headway.errors import RunsFailed, UserError, nearest

if TYPE_CHECKING:
    from headway.papers.plan import Plan
    from headway.papers.preset import Preset
    from headway.papers.reproduce import Outcomes

FORMATS = ("terminal", "markdown", "latex", "csv")


@dataclass(frozen=True)
class Instead:
    """What is shown in place of running an item."""

    every: Annotated[bool, typer.Option("--list", help="list every table and figure")] = False
    board: Annotated[
        bool, typer.Option("--board", help="one page of all items, from the runs in results or --from FOLDER")
    ] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would run, and its bytes; run nothing")] = False
    trial: Annotated[
        bool, typer.Option("--trial", help="with --dry-run: play three rounds of each scenario and estimate the time")
    ] = False


@dataclass(frozen=True)
class Wanted:
    """Which rows and columns of an item, and the settings of their runs."""

    rows: Annotated[str | None, typer.Option(help="methods or settings of rows, with commas", show_default=False)] = (
        None
    )
    data: Annotated[str | None, typer.Option(help="data sets or names of columns, with commas", show_default=False)] = (
        None
    )
    rounds: Annotated[int | None, typer.Option(help="in place of the paper's", show_default=False)] = None
    seeds: Annotated[int | None, typer.Option(help="in place of the paper's", show_default=False)] = None
    scale: Annotated[
        str | None,
        typer.Option(help="full (default), or tiny: small model, little data, few rounds", show_default=False),
    ] = None
    profile: Annotated[
        str | None,
        typer.Option(help="whose settings: paper, agm21, acg24, gradma-code or fl-simulator", show_default=False),
    ] = None
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto")] = "auto"
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16, fp64 or auto")] = "auto"
    executor: Annotated[str, typer.Option(help="how clients are executed")] = "auto"
    data_dir: Annotated[str | None, typer.Option(help="folder of the data sets", show_default=False)] = None
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            help="rounds between checkpoints; else as few as a twentieth of the time allows, 1 at scale tiny",
            show_default=False,
        ),
    ] = None

    keep_checkpoints: Annotated[
        int | None, typer.Option(help="rounds between states that headway analyse needs", show_default=False)
    ] = None

    def settings(self, notes: Sequence[Mapping[str, object]]) -> dict[str, object]:
        """The settings of the runs; folders of runs say how many seeds they have."""
        noted = max((seeds for note in notes if isinstance(seeds := note.get("seeds"), int)), default=None)
        given = {
            "rounds": self.rounds,
            "seeds": noted if self.seeds is None else self.seeds,
            "data_dir": self.data_dir,
            "checkpoint_every": self.checkpoint_every,
            "keep_checkpoints": self.keep_checkpoints,
            "device": self.device,
            "precision": self.precision,
            "executor": self.executor,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Places:
    """Where runs are made, or where they are already."""

    out: Annotated[
        Path | None,
        typer.Option(
            help="folder of runs, tables and pictures; runs/reproduce/PAPER/ITEM by default, none with --from",
            show_default=False,
        ),
    ] = None
    source: Annotated[
        list[Path] | None,
        typer.Option("--from", help="make the table from the runs in a folder; repeatable", show_default=False),
    ] = None
    claim: Annotated[
        Path | None,
        typer.Option(
            help="with --from: add the runs to this folder, without checkpoints, with its table", show_default=False
        ),
    ] = None
    replace: Annotated[
        bool,
        typer.Option("--replace", help="with --claim: take the place of runs in the claim that have other numbers"),
    ] = False

    @property
    def sources(self) -> list[Path]:
        return self.source or []


@dataclass(frozen=True)
class Output:
    """What is printed, which trackers follow, and how many runs are made at the same time."""

    format: Annotated[str, typer.Option(help=", ".join(FORMATS))] = "terminal"
    json: Annotated[bool, JSON] = False
    track: Annotated[list[str] | None, TRACK] = None
    jobs: Annotated[str | None, JOBS] = None
    devices: Annotated[str | None, DEVICES] = None
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress bar")] = False

    @property
    def is_on_screen(self) -> bool:
        """Whether the table is printed for people."""
        return self.format == "terminal" and not self.json


@with_options
def reproduce(
    context: typer.Context,
    instead: Instead,
    wanted: Wanted,
    places: Places,
    output: Output,
    item: Annotated[str | None, typer.Argument(help="PAPER/ITEM, such as fedacg/table-1a", show_default=False)] = None,
) -> None:
    """Run a table or a figure of a paper, and print it beside the published numbers."""
    refuse_ranks("reproduce")
    _check(instead, places, output, item)
    if instead.board:
        items.board(places.sources[0] if places.sources else Path("results"), places.out, output.json)
    elif instead.every:
        items.list_all(output.json)
    elif item is None:
        raise UserError("no item given; headway reproduce --list names all, such as fedacg/table-1a")
    else:
        _reproduce(context, _Request.read(item, wanted, places), instead, places, output)


def _check(instead: Instead, places: Places, output: Output, item: str | None) -> None:
    """Refuse options that do not go together."""
    if output.format not in FORMATS:
        near = nearest(output.format, FORMATS)
        raise UserError(f"format is '{output.format}'; allowed: {', '.join(FORMATS)}{near}")
    claims = places.claim is not None
    refused = {
        "--trial estimates the time of a dry run; add --dry-run": instead.trial and not instead.dry_run,
        "--claim keeps runs that were made before; give their folder with --from": claims and not places.sources,
        "--claim writes its tables and pictures beside the runs; leave out --out": claims and places.out is not None,
        "--replace is for runs of a claim; add --claim": places.replace and not claims,
        "--board is of all items, from one folder; leave out the item, and give --from once": (
            instead.board and (item is not None or len(places.sources) > 1)
        ),
    }
    for message, is_wrong in refused.items():
        if is_wrong:
            raise UserError(message)


@dataclass(frozen=True)
class _Request:
    """An item with the rows, columns and settings that are asked for."""

    preset: Preset
    plan: Plan
    whole: Plan
    """All rows and columns, with the same settings."""

    @classmethod
    def read(cls, item: str, wanted: Wanted, places: Places) -> _Request:
        from headway.papers.items import preset
        from headway.papers.plan import plan as planned
        from headway.papers.saved_runs import notes

        chosen = preset(item)
        found = notes(item, *places.sources, *([places.claim] if places.claim is not None else []))
        settings, scale = wanted.settings(found), wanted.scale or _scale(found)

        def of(rows: list[str] | None, data: list[str] | None) -> Plan:
            return planned(chosen, rows=rows, data=data, scale=scale, profile=wanted.profile, **settings)

        plan = of(listed(wanted.rows), listed(wanted.data))
        return cls(chosen, plan, of(None, None) if places.claim is not None else plan)


def _scale(notes: Sequence[Mapping[str, object]]) -> str:
    """The one scale that folders of runs are at."""
    scales = {str(note.get("scale", "full")) for note in notes} or {"full"}
    if len(scales) > 1:
        raise UserError(f"these folders have runs at scale {' and '.join(sorted(scales))}; choose with --scale")
    return scales.pop()


def _reproduce(context: typer.Context, requested: _Request, instead: Instead, places: Places, output: Output) -> None:
    """Say what would run, make the table from existing runs, or run what is missing."""
    if instead.dry_run:
        items.dry_run(requested.plan, instead.trial, output.json)
        return
    _check_runnable(requested.preset)
    if places.sources:
        _from_folders(requested, places, output)
        return
    tiny = "-tiny" if requested.plan.scale == "tiny" else ""
    folder = places.out or Path("runs", "reproduce", requested.preset.paper, requested.preset.name + tiny)
    _run(requested.plan, folder, output, _command(context))


def _check_runnable(preset: Preset) -> None:
    if not preset.columns:
        raise UserError(f"{preset.item} is {preset.title}: there is nothing to run")


def _from_folders(requested: _Request, places: Places, output: Output) -> None:
    """The table of existing runs, perhaps kept as a claim."""
    from headway.papers.claims import keep
    from headway.papers.saved_runs import find_runs
    from headway.papers.written import write
    from headway.report.figures import shrunk
    from headway.runs.folder import UNCHECKED

    outcomes = find_runs(requested.plan, *places.sources)
    if not all(outcome.checked for outcome in outcomes.values()):
        stderr_console().print(f"headway: {UNCHECKED}", markup=False, highlight=False, soft_wrap=True)
    out, plan = places.out, requested.plan
    if places.claim is not None:
        outcomes = keep(plan, outcomes, places.sources, requested.whole, places.claim, places.replace)
        out, plan = places.claim, requested.whole
    plan = plan.only(outcomes)
    drawn = [] if out is None else write(plan, outcomes, out)
    if places.claim is not None:
        drawn = [shrunk(path) for path in drawn]
    _print(plan, outcomes, output)
    if out is not None and output.is_on_screen:
        _print_files(f"tables: {out}", drawn)


_LEFT_OUT = {"out", "data_dir", "track", "jobs", "devices", "format", "json", "quiet"}
"""Options on which no number depends; some name folders of this machine."""


def _command(context: typer.Context) -> str:
    """The command as it was given, for readers who want to make the same runs."""
    words = ["headway", "reproduce"]
    for one in context.command.params:
        source = context.get_parameter_source(str(one.name))
        if one.name not in _LEFT_OUT and source is not None and source.name == "COMMANDLINE":
            value = context.params[str(one.name)]
            words += [
                *([one.opts[-1]] if one.opts[-1].startswith("-") else []),
                *([] if value is True else [str(value)]),
            ]
    return shlex.join(words)


def _run(plan: Plan, folder: Path, output: Output, command: str) -> None:
    """Run what is missing in the folder, and print the table."""
    from headway.papers.local_models import analyse_runs
    from headway.papers.reproduce import reproduce as reproduced
    from headway.papers.written import write
    from headway.runs.lanes.jobs import jobs_of
    from headway.runs.progress import Bar

    choosing = not output.json and any(one.scenario.executor == "auto" for one in plan.runs)
    with resumable(folder, again=True):
        with Bar(stderr_console(), output.quiet, choosing) as bar:
            jobs = jobs_of(output.jobs, output.devices)
            outcomes = reproduced(plan, folder, bar, output.track or (), command, jobs)
            analyse_runs(plan, outcomes, bar)
        drawn = write(plan, outcomes, folder)
    _print(plan, outcomes, output)
    if output.is_on_screen:
        _print_files(f"runs and tables: {folder}", drawn)
    _tell_failures(outcomes, len(plan.runs))


def _tell_failures(outcomes: Outcomes, runs: int) -> None:
    """End with an error where some of the runs failed."""
    failed = [outcome for outcome in outcomes.values() if outcome.failure is not None]
    if failed:
        causes = "; ".join(dict.fromkeys(str(outcome.failure) for outcome in failed))
        message = f"{len(failed)} of {runs} runs failed: {causes}"
        raise UserError(message) if all(outcome.mistaken for outcome in failed) else RunsFailed(message)


def _print_files(tables: str, pictures: list[Path]) -> None:
    typer.echo("\n".join([tables, *(f"picture: {path}" for path in pictures)]))


def _print(plan: Plan, outcomes: Outcomes, output: Output) -> None:
    """The table on standard output, in the form that is asked for."""
    from headway.papers import table
    from headway.papers.local_models import markdown, wants
    from headway.papers.written import FORMS

    if output.json:
        print_json(table.plain(plan, outcomes))
    elif output.format != "terminal":
        typer.echo(FORMS[output.format].write(plan, outcomes), nl=False)
    else:
        console = screen()
        console.print(table.title(plan), style="bold", markup=False)
        for heading, one in table.terminal(plan, outcomes, console.width):
            console.print(heading, markup=False)
            console.print(one)
            console.print()
        below = markdown(plan, outcomes).splitlines() if wants(plan) else []
        for line in [*table.below(plan, outcomes), *below]:
            console.print(line, markup=False)
