"""What run, compare, resume and report print in the end: a table, or one JSON document for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import typer

from headway.cli.screen import print_json, screen
from headway.errors import RunsFailed
from headway.measure.numbers import MethodNumbers, RunNumbers

if TYPE_CHECKING:
    from headway.runs.result import Result
    from headway.runs.study import Study
    from headway.scenario import Scenario


class RunEntry(RunNumbers):
    """The numbers of one run, and which it is."""

    name: str
    """The method."""
    seed: int
    executor: str
    buffers: str
    folder: str | None
    """Where it is kept; null for a run in memory."""


class Document(TypedDict):
    """What `--json` prints, whether of one run or of many: an entry for each method, and one for each run."""

    methods: list[MethodNumbers]
    runs: list[RunEntry]
    note: str
    """What a reader must know beside the numbers; empty where nothing is."""


def document(study: Study) -> Document:
    """A study as `--json` prints it; a single run is one of one method and one seed."""
    return {
        "methods": study.summary(),
        "runs": [_entry(one) for seeds in study.runs.values() for one in seeds],
        "note": study.note,
    }


def _entry(result: Result) -> RunEntry:
    about = {
        "name": result.method,
        "seed": result.scenario.seed,
        "executor": result.executor,
        "buffers": result.scenario.buffers,
        "folder": None if result.folder is None else str(result.folder),
    }
    return {**result.summary, **about}  # type: ignore[typeddict-item]


def show_run(result: Result, as_json: bool) -> None:
    """The table of one run and where it is, or its document."""
    if as_json:
        from headway.runs.study import study_of

        print_json(document(study_of([result])))
        return
    from headway.measure.summary import over_seeds

    _print_table([over_seeds(result.method, [result.summary])], result.scenario)
    if result.stopped is not None:
        typer.echo(f"stopped after round {len(result.records)}: {result.stopped}")
    _tell_privacy([result])
    typer.echo(f"run: {result.folder}")


def show_study(study: Study, folder: Path, as_json: bool) -> None:
    """Write the report into the folder; print the table, or the document."""
    from headway import report

    written = report.write(study, folder)
    if as_json:
        print_json(document(study))
        return
    _print_table(study.summary(), next(iter(study.runs.values()))[0].scenario)
    if study.note:
        typer.echo(study.note)
    _tell_privacy([run for runs in study.runs.values() for run in runs])
    typer.echo(f"page:    {written.page}\npicture: {written.picture}\ntables:  {written.markdown}, {written.latex}")


def tell_failures(study: Study) -> None:
    """End with an error where some run failed."""
    if count := len(study.failed):
        raise RunsFailed(f"{count} run{'s' if count > 1 else ''} failed; the table is of the others")


def _tell_privacy(results: Sequence[Result]) -> None:
    """What was spent on each method that is private; seeds of one method that ran as long spend the same."""
    told = {
        f"privacy: {one.method} has spent epsilon {one.summary['epsilon']:.4g} at delta {one.summary['delta']:g} in "
        f"{len(one.records)} rounds"
        for one in results
        if "epsilon" in one.summary
    }
    for line in sorted(told):
        typer.echo(line)


def _print_table(rows: Sequence[MethodNumbers], scenario: Scenario) -> None:
    from headway.report import tables

    console = screen()
    console.print(tables.terminal(rows, scenario, console.width))
