"""headway analyse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.ranks import refuse_ranks
from headway.cli.screen import JSON, print_json, screen, stderr_console

if TYPE_CHECKING:
    from headway.analysis.inside import Analysis


def analyse(
    run: Annotated[Path, typer.Argument(help="folder of a run or of a comparison, made with --keep-checkpoints")],
    round: Annotated[
        int | None, typer.Option("--round", help="the kept round after which to look; the last one by default")
    ] = None,
    local_models: Annotated[int, typer.Option(help="of how many clients the models are looked at")] = 5,
    samples: Annotated[int, typer.Option(help="held-out samples on which models are compared")] = 512,
    grid: Annotated[int, typer.Option(help="places on each side of the loss surface")] = 21,
    eigenvalues: Annotated[int, typer.Option(help="largest eigenvalues of the loss's Hessian; 0: none")] = 3,
    json: Annotated[bool, JSON] = False,
) -> None:
    """Compare a round's local models: similarity, divergence, loss surface, curvature, accuracy; write report.html."""
    refuse_ranks("analyse")
    from headway.report.inside.write import analyse as analysed
    from headway.report.page.write import write_page
    from headway.runs.progress import Bar
    from headway.runs.study import load_study

    with Bar(stderr_console(), quiet=True) as bar:
        study = load_study([run], observer=bar)
        found = {
            str(one.folder): analysed(
                one.folder,
                round=round,
                local_models=local_models,
                samples=samples,
                grid=grid,
                eigenvalues=eigenvalues,
            )
            for seeds in study.runs.values()
            for one in seeds
            if one.folder is not None
        }
        page = write_page(study, run / "report.html")
    if json:
        print_json({place: {"method": one.method, "round": one.round, **one.summary()} for place, one in found.items()})
        return
    _show(found)
    typer.echo(f"page: {page}")


def _show(found: dict[str, Analysis]) -> None:
    from rich.table import Table

    from headway.analysis.written import place_of

    console = screen()
    rows = [one.summary() for one in found.values()]
    table = Table(box=None)
    table.add_column("of local models")
    for one in found.values():
        table.add_column(f"{one.method}, round {one.round}", justify="right")
    for name in dict.fromkeys(name for row in rows for name in row):
        table.add_row(name, *(f"{row[name]:.4g}" if name in row else "–" for row in rows))
    console.print(table)
    for place, one in found.items():
        for note in one.notes:
            console.print(f"{one.method}: {note}", markup=False)
        typer.echo(f"numbers, pictures: {place_of(Path(place), one.round)}")
