"""headway run, compare, resume, export, report, scenario, methods, show, completion.

Those in files of their own: analyse, reproduce, sweep, privacy, theory, data, deploy, bench.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import analyse, bench, completion, data, deploy, grids, listing, privacy, reproduce, sweep, theory
from headway.cli.ending import answered, resumable, this_rank
from headway.cli.flags import with_settings
from headway.cli.jobs import DEVICES, JOBS
from headway.cli.outcome import show_run, show_study, tell_failures
from headway.cli.ranks import (
    MAX_RESTARTS,
    RANK_TIMEOUT,
    RANKS,
    folder_of_ranks,
    is_to_be_launched,
    launched,
    refuse_ranks,
    started_alone,
)
from headway.cli.resumed import refuse_more_rounds, resume_together, resumed_run, resumed_study
from headway.cli.screen import ENDLESS, JSON, TRACK, listed, print_json, screen, stderr_console
from headway.errors import UserError
from headway.malloc import keep_freed_memory

if TYPE_CHECKING:
    from headway.scenario import Scenario

app = typer.Typer(
    help="Accelerated federated learning: run, compare and reproduce.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.add_typer(deploy.app, name="deploy")
app.command()(analyse.analyse)
app.command()(bench.bench)
app.command()(reproduce.reproduce)
app.command()(sweep.sweep)
app.command()(privacy.privacy)
app.command()(theory.theory)

METHOD = typer.Argument(
    help="fedacg, fedacg:lam=0.9,beta=0.001 or fedprox+acg:lam=0.85",
    show_default=False,
    autocompletion=completion.methods,
)
SCENARIO = typer.Option("--scenario", help="a TOML file, a run folder, or a name such as fashion/dir0.3/60x10%")
OUT = typer.Option("--out", help="folder for the results; a new one under runs/ by default", show_default=False)
QUIET = typer.Option("--quiet", help="no progress bar")


def _folder(out: Path | None, label: str) -> Path:
    if out is not None:
        return out
    from headway.runs.files import slug

    return Path("runs") / f"{slug(label)}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


@app.command()
@with_settings
def run(
    method: Annotated[str | None, METHOD] = None,
    scenario: Annotated[str, SCENARIO] = "",
    out: Annotated[Path | None, OUT] = None,
    track: Annotated[list[str] | None, TRACK] = None,
    ranks: Annotated[int | None, RANKS] = None,
    max_restarts: Annotated[int, MAX_RESTARTS] = 0,
    rank_timeout: Annotated[float | None, RANK_TIMEOUT] = None,
    json: Annotated[bool, JSON] = False,
    quiet: Annotated[bool, QUIET] = False,
    settings: Mapping[str, object] = {},
) -> int:
    """Run one method, with one seed or several; on several processes with --ranks, or started by torchrun."""
    from headway.scenario import scenario_of

    chosen = scenario_of(scenario, settings)
    name = method or chosen.method
    if name is None:
        raise UserError("no method given; write headway run fedacg, or set method in the scenario")
    if chosen.seeds > 1:
        refuse_ranks(f"run with {chosen.seeds} seeds", ranks)
        _compare([name], chosen, _folder(out, name), json, quiet, track)
        return 0
    from headway.runs.progress import Bar
    from headway.runs.start import simulate

    folder = _folder(out, name) if out is not None or started_alone() else folder_of_ranks(name)
    if is_to_be_launched(ranks):
        return launched(
            ranks or 1, max_restarts, folder, chosen.deterministic, () if out is not None else ("--out", str(folder))
        )
    show = this_rank() == 0
    choosing = chosen.executor == "auto" and not json
    with Bar(stderr_console(), quiet or not show, choosing=choosing) as bar, resumable(folder):
        result = simulate(
            name, chosen, out=folder, observer=bar, track=track or (), ranks=ranks, rank_timeout=rank_timeout
        )
    if show:
        show_run(result, json)
    return 0


@app.command()
@with_settings
def compare(
    methods: Annotated[list[str], METHOD],
    scenario: Annotated[str, SCENARIO] = "",
    vary: Annotated[list[str] | None, grids.VARY] = None,
    out: Annotated[Path | None, OUT] = None,
    tune_budget: Annotated[int | None, sweep.TUNE_BUDGET] = None,
    grid: Annotated[list[str] | None, sweep.TUNE_GRID] = None,
    track: Annotated[list[str] | None, TRACK] = None,
    jobs: Annotated[str | None, JOBS] = None,
    devices: Annotated[str | None, DEVICES] = None,
    json: Annotated[bool, JSON] = False,
    quiet: Annotated[bool, QUIET] = False,
    settings: Mapping[str, object] = {},
) -> None:
    """Run several methods on the same clients and batches; print the table, write report.html and compare.png."""
    refuse_ranks("compare")
    from headway.scenario import scenario_of

    chosen = scenario_of(scenario, settings)
    if vary:
        if tune_budget is not None or grid:
            raise UserError("--vary and --tune-budget are not for one command; tune in each scenario by itself")
        grids.compare(methods, chosen, vary, _folder(out, "grid"), json, quiet, track or [], (jobs, devices))
    else:
        folder = _folder(out, "compare")
        _compare(methods, chosen, folder, json, quiet, track, tune_budget, grid or None, (jobs, devices))


def _compare(
    methods: list[str],
    scenario: Scenario,
    folder: Path,
    as_json: bool,
    quiet: bool,
    track: list[str] | None,
    tune_budget: int | None = None,
    grid: list[str] | None = None,
    lanes: tuple[str | None, str | None] = (None, None),
) -> None:
    from headway.runs.progress import Bar
    from headway.tuning.compare import compare as compared

    choosing, runs = scenario.executor == "auto" and not as_json, len(methods) * scenario.seeds
    with Bar(stderr_console(), quiet, choosing, runs if tune_budget is None else 1) as bar, resumable(folder):
        study = compared(
            methods,
            scenario,
            tune_budget=tune_budget,
            grid=grid,
            out=folder,
            observer=bar,
            track=track or (),
            jobs=lanes[0],
            devices=lanes[1],
        )
    show_study(study, folder, as_json)
    tell_failures(study)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(help="folder of a run or of a comparison")],
    track: Annotated[list[str] | None, TRACK] = None,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="go on although the data has changed since; it is recorded")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option("--rounds", help="go on to this many rounds, also with a finished run")
    ] = None,
    ranks: Annotated[int | None, RANKS] = None,
    max_restarts: Annotated[int, MAX_RESTARTS] = 0,
    rank_timeout: Annotated[float | None, RANK_TIMEOUT] = None,
    jobs: Annotated[str | None, JOBS] = None,
    devices: Annotated[str | None, DEVICES] = None,
    json: Annotated[bool, JSON] = False,
    quiet: Annotated[bool, QUIET] = False,
) -> int:
    """Go on with a run or a comparison from its last checkpoint; to more rounds with --rounds."""
    from headway.runs.grid import is_grid
    from headway.runs.lanes.jobs import jobs_of
    from headway.runs.study import lengthen_study
    from headway.runs.study_folder import is_study

    console, at_once = stderr_console(), jobs_of(jobs, devices)
    if is_grid(run):
        refuse_ranks("resume of a grid", ranks)
        refuse_more_rounds(rounds, "go on with its comparisons one by one")
        grids.resume(run, json, quiet, track or (), accept_changes, at_once)
        return 0
    if at_once is not None and not is_study(run):
        raise UserError(f"{run} is one run, and jobs and devices are for several; leave them out")
    if not is_study(run) and is_to_be_launched(ranks):
        refuse_more_rounds(rounds)
        from headway.runs.load import scenario_of_run

        return launched(ranks or 1, max_restarts, run, scenario_of_run(run).deterministic)
    if is_study(run):
        refuse_ranks("resume of a comparison", ranks)
        if rounds is not None:
            lengthen_study(run, rounds)
        study = resumed_study(run, console, quiet, track or (), accept_changes, at_once)
        show_study(study, run, json)
        tell_failures(study)
    elif not started_alone() or ranks is not None:
        refuse_more_rounds(rounds)
        resume_together(run, track or (), accept_changes, ranks, rank_timeout, quiet=quiet, json=json)
    else:
        show_run(resumed_run(run, console, quiet, track or (), accept_changes, rounds), json)
    return 0


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="folder of a run")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="the file to write; RUN/model.safetensors, or RUN/best.safetensors, by default"),
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="the model of the best round, of a run with --keep-best")
    ] = False,
) -> None:
    """Write the run's model as a safetensors state dict."""
    from headway.runs.export import export as exported
    from headway.runs.progress import Bar

    target = out or run / ("best.safetensors" if best else "model.safetensors")
    path = exported(run, target, Bar(stderr_console(), quiet=True), best=best)
    typer.echo(f"wrote {path}")


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(help="folders of runs, of comparisons, or of a column of headway reproduce")
    ],
    out: Annotated[Path, typer.Option("--out", help="folder for page, tables and picture")] = Path("report"),
    tuned: Annotated[
        bool, typer.Option("--tuned", help="rate, decays, batch, steps and clipping may differ between methods")
    ] = False,
    by: Annotated[
        list[str] | None, typer.Option("--by", help="settings in which runs differ, such as rate; a row for each value")
    ] = None,
    json: Annotated[bool, JSON] = False,
) -> None:
    """A page (report.html), tables and a picture of finished or unfinished runs, up to the end of the shortest."""
    from headway.runs.grid import is_grid
    from headway.runs.progress import Bar
    from headway.runs.study import load_study

    if len(runs) == 1 and is_grid(runs[0]):
        if by or tuned:
            raise UserError(f"{runs[0]} is a grid, which knows in what its runs differ; leave --by and --tuned out")
        grids.report(runs[0], out, json)
        return
    told = [name.replace("-", "_") for given in by or () for name in listed(given) or ()]
    show_study(load_study(runs, tuned, Bar(stderr_console(), quiet=True), by=told), out, json)


@app.command()
@with_settings
def scenario(
    name: Annotated[str, typer.Argument(help="a name such as cifar10/dir0.3/100x5%, a TOML file or a run folder")] = "",
    settings: Mapping[str, object] = {},
) -> None:
    """Print a scenario as TOML, complete and explained, to edit and to run with --scenario FILE."""
    from headway.data.partition import check_spelling
    from headway.scenario import scenario_of

    chosen = scenario_of(name, settings)
    check_spelling(chosen.partition)
    typer.echo(chosen.as_toml(comments=True), nl=False)


@app.command()
def methods(json: Annotated[bool, JSON] = False) -> None:
    """List every method with what it is for and what it costs."""
    content = listing.listing()
    print_json(content["methods"]) if json else screen(ENDLESS).print(listing.table(content))


@app.command()
def show(
    method: Annotated[str, METHOD],
    markdown: Annotated[bool, typer.Option("--markdown", help="its page, as kept in docs/methods")] = False,
) -> None:
    """One method: equations, slots, arguments with defaults and ranges, costs, source."""
    if markdown:
        from headway.cli.method_page import page

        typer.echo(page(method), nl=False)
        return
    from headway.cli import catalogue

    catalogue.show(method, screen(ENDLESS))


@app.command("completion")
def complete(
    shell: Annotated[
        str,
        typer.Argument(
            help="bash or zsh", show_default=False, autocompletion=lambda incomplete: list(completion.SCRIPTS)
        ),
    ],
) -> None:
    """Print what a shell needs to complete methods, models, data and flags: eval "$(headway completion bash)"."""
    typer.echo(completion.script(shell), nl=False)


def _version(requested: bool) -> None:
    if requested:
        import headway

        typer.echo(f"headway {headway.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The command line. How it ends stands in `ending`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # Greek letters must not stop a pipe that cannot take them
    keep_freed_memory()
    if completion.VARIABLE in os.environ:
        completion.ready_for_shell()
    sys.exit(answered(lambda: app(standalone_mode=False, complete_var=completion.VARIABLE)))
