"""headway sweep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.ending import resumable
from headway.cli.flags import with_settings
from headway.cli.jobs import DEVICES, JOBS
from headway.cli.ranks import refuse_ranks
from headway.cli.screen import JSON, print_json, screen, stderr_console
from headway.errors import UserError

if TYPE_CHECKING:
    from headway.tuning.results import Sweep

TUNE_BUDGET = typer.Option(
    "--tune-budget", help="rounds with which each method is tuned before, by held-out samples", min=1
)
TUNE_GRID = typer.Option("--grid", help="with --tune-budget: NAME=VALUE,VALUE, or papers (the default); repeatable")


@with_settings
def sweep(
    method: Annotated[str, typer.Argument(help="fedacg, fedacg:half=false or fedprox+acg", show_default=False)],
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", help="NAME=VALUE,VALUE, or papers, fedacg, gradma: what they searched; repeatable"),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="rounds of all candidates together, by successive halving", min=1)
    ] = None,
    scenario: Annotated[
        str, typer.Option("--scenario", help="a TOML file, a run folder, or a name such as fashion/dir0.3/60x10%")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="folder of the runs; one under runs/sweep by default", show_default=False),
    ] = None,
    jobs: Annotated[str | None, JOBS] = None,
    devices: Annotated[str | None, DEVICES] = None,
    json: Annotated[bool, JSON] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress bar")] = False,
    settings: Mapping[str, Any] = {},
) -> None:
    """Try every combination of a grid; choose the best by samples held out of training, never by the test set."""
    refuse_ranks("sweep")
    from headway.runs.progress import Bar
    from headway.scenario import scenario as made
    from headway.tuning import sweep as sweeps

    requested = grid or []
    folder = out or sweeps.default_folder(method, requested, scenario, budget, settings)
    choosing = not json and made(scenario, **settings).executor == "auto"
    with resumable(folder, again=True), Bar(stderr_console(), quiet, choosing) as bar:
        found = sweeps.sweep(
            method,
            requested,
            scenario,
            budget=budget,
            out=folder,
            observer=bar,
            jobs=jobs,
            devices=devices,
            **settings,
        )
    _report(found, folder, json)


def _report(found: Sweep, folder: Path, as_json: bool) -> None:
    from headway.tuning.table import caption, terminal
    from headway.tuning.written import write_tables

    drawn = write_tables(found, folder)
    if as_json:
        print_json(found.as_dict())
    else:
        console = screen()
        console.print(terminal(found))
        console.print(f"\n{caption(found)}", markup=False)
        typer.echo(f"picture: {drawn or 'none'}\ntables:  {folder / 'sweep.md'}, {folder / 'sweep.json'}")
    if found.best is None:
        causes = "; ".join(dict.fromkeys(str(trial.failure) for trial in found.trials))
        raise UserError(f"there is no best: every candidate failed ({causes})")
    if not as_json:
        console.print(f"best: {found.command}", markup=False, soft_wrap=True)
