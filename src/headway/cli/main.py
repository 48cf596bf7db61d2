"""headway run, compare, resume, export, report, reproduce, sweep, scenario, methods, show, data, bench."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.allocator import keep_freed_memory
from headway.cli import bench, data, reproduce, sweep
from headway.cli.ending import answered, resumable
from headway.cli.flags import with_settings
from headway.cli.screen import ENDLESS, JSON, TRACK, aside, print_json, screen
from headway.errors import RunsFailed, UserError

app = typer.Typer(
    help="Accelerated federated learning: run, compare and reproduce.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.command()(bench.bench)
app.command()(reproduce.reproduce)
app.command()(sweep.sweep)

METHOD = typer.Argument(help="fedacg, fedacg:lam=0.9,beta=0.001 or fedprox+acg:lam=0.85", show_default=False)
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
    json: Annotated[bool, JSON] = False,
    quiet: Annotated[bool, QUIET] = False,
    settings: dict[str, Any] = {},  # noqa: B006 — filled by with_settings, never changed
) -> None:
    """Run one method, with one seed or several."""
    from headway.scenario import scenario as made

    chosen = made(scenario, **settings)
    name = method or chosen.method
    if name is None:
        raise UserError("no method given; write headway run fedacg, or set method in the scenario")
    if chosen.seeds > 1:
        _compare([name], chosen, _folder(out, name), json, quiet, track)
        return
    from headway.cli.progress import Bar
    from headway.runs.run import simulate

    folder = _folder(out, name)
    with Bar(aside(), quiet, choosing=chosen.executor == "auto" and not json) as bar, resumable(folder):
        result = simulate(name, chosen, out=folder, observer=bar, track=track or ())
    _finish_run(result, json)


@app.command()
@with_settings
def compare(
    methods: Annotated[list[str], METHOD],
    scenario: Annotated[str, SCENARIO] = "",
    out: Annotated[Path | None, OUT] = None,
    track: Annotated[list[str] | None, TRACK] = None,
    json: Annotated[bool, JSON] = False,
    quiet: Annotated[bool, QUIET] = False,
    settings: dict[str, Any] = {},  # noqa: B006 — filled by with_settings, never changed
) -> None:
    """Run several methods on the same clients and batches; print the table, write report.html and compare.png."""
    from headway.scenario import scenario as made

    _compare(methods, made(scenario, **settings), _folder(out, "compare"), json, quiet, track)


def _compare(
    methods: list[str], scenario: Any, folder: Path, as_json: bool, quiet: bool, track: list[str] | None
) -> None:
    from headway.cli.progress import Bar
    from headway.runs.study import compare as compared

    with Bar(aside(), quiet, choosing=scenario.executor == "auto" and not as_json) as bar, resumable(folder):
        study = compared(methods, scenario, out=folder, observer=bar, track=track or ())
    _report(study, folder, as_json)
    _tell_failures(study)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(help="folder of a run or of a comparison")],
    track: Annotated[list[str] | None, TRACK] = None,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="go on although the data has changed since; it is recorded")
    ] = False,
    json: Annotated[bool, JSON] = False,
    quiet: Annotated[bool, QUIET] = False,
) -> None:
    """Go on with a run or a comparison from its last checkpoint."""
    from headway.cli.progress import Bar
    from headway.runs import run as runs
    from headway.runs import study as studies

    with Bar(aside(), quiet) as bar, resumable(run):
        if studies.is_study(run):
            if studies.is_finished(run):
                study = studies.load_study([run], observer=bar, verified=True)
                bar.tell(f"{run} is finished; nothing is left to do")
            else:
                study = studies.resume_study(run, bar, track or (), accept_changes)
        elif (run / "scenario.toml").is_file() and runs.finished(run):
            result = runs.recorded(run, bar, verified=True)
            bar.tell(f"{run} is finished; nothing is left to do")
            _finish_run(result, json)
            return
        else:
            result = runs.resume(run, observer=bar, track=track or (), accept_changes=accept_changes)
            _finish_run(result, json)
            return
    _report(study, run, json)
    _tell_failures(study)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="folder of a run")],
    out: Annotated[
        Path | None, typer.Option("--out", help="the file to write; RUN/model.safetensors by default")
    ] = None,
) -> None:
    """Write the run's model as a safetensors state dict."""
    from headway.cli.progress import Bar
    from headway.runs.export import export as exported

    path = exported(run, out or run / "model.safetensors", Bar(aside(), quiet=True))
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
    json: Annotated[bool, JSON] = False,
) -> None:
    """A page (report.html), tables and a picture of runs that are there already."""
    from headway.cli.progress import Bar
    from headway.runs.files import made
    from headway.runs.study import load_study

    study = load_study(runs, tuned, Bar(aside(), quiet=True))
    _report(study, made(out), json)


@app.command()
@with_settings
def scenario(
    name: Annotated[str, typer.Argument(help="a name such as cifar10/dir0.3/100x5%, a TOML file or a run folder")] = "",
    settings: dict[str, Any] = {},  # noqa: B006 — filled by with_settings, never changed
) -> None:
    """Print a scenario as TOML, complete and explained, to edit and to run with --scenario FILE."""
    from headway.scenario import scenario as made

    typer.echo(made(name, **settings).as_toml(comments=True), nl=False)


@app.command()
def methods(json: Annotated[bool, JSON] = False) -> None:
    """List every method with what it costs."""
    from headway.cli import catalogue

    print_json(catalogue.listed()) if json else screen(ENDLESS).print(catalogue.table())


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


def _version(asked: bool) -> None:
    if asked:
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


def _finish_run(result: Any, as_json: bool) -> None:
    if as_json:
        print_json({**result.summary, "folder": str(result.folder)})
        return
    from headway.measure.summary import over_seeds

    _print_table([over_seeds(result.method, [result.summary])], result.scenario)
    typer.echo(f"run: {result.folder}")


def _print_table(rows: list[dict[str, Any]], scenario: Any) -> None:
    from headway.report import tables

    console = screen()
    console.print(tables.terminal(rows, scenario, console.width))


def _report(study: Any, folder: Path, as_json: bool) -> None:
    from headway.report import figures, tables
    from headway.report.page.write import write_page

    rows, scenario = study.summary(), next(iter(study.runs.values()))[0].scenario
    picture = figures.compare_picture(study, folder / "compare.png")
    page = write_page(study, folder / "report.html")
    note = " ".join(study.note.splitlines())
    in_words, in_comment = (f"\n{tables.plain(note)}\n", f"% {note}\n") if note else ("", "")
    (folder / "compare.md").write_text(tables.markdown(rows, scenario) + in_words, encoding="utf-8")
    (folder / "compare.tex").write_text(tables.latex(rows, scenario) + in_comment, encoding="utf-8")
    if as_json:
        print_json(rows)
        return
    _print_table(rows, scenario)
    if study.note:
        typer.echo(study.note)
    typer.echo(f"page:    {page}\npicture: {picture}\ntables:  {folder / 'compare.md'}, {folder / 'compare.tex'}")


def _tell_failures(study: Any) -> None:
    if count := len(study.failed):
        raise RunsFailed(f"{count} run{'s' if count > 1 else ''} failed; the table is of the others")


def main() -> None:
    """The command line. How it ends stands in `ending`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # Greek letters must not stop a pipe that cannot take them
    keep_freed_memory()
    sys.exit(answered(lambda: app(standalone_mode=False)))
