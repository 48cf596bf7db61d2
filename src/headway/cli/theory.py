"""headway theory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.flags import with_settings
from headway.cli.ranks import refuse_ranks
from headway.cli.screen import JSON, listed, print_json, screen, stderr_console
from headway.errors import UserError

if TYPE_CHECKING:
    from headway.theory.result import Bounds


@with_settings
def theory(
    method: Annotated[str, typer.Argument(help="fednag, fedacg or gradma, such as fednag:gamma=0.5")],
    scenario: Annotated[
        str, typer.Option("--scenario", help="a TOML file, a run folder, or a name such as fashion/dir0.3/60x10%")
    ] = "",
    constants: Annotated[
        str | None,
        typer.Option("--constants", help="NAME=VALUE,… in place of what would be found on the data, such as L=10"),
    ] = None,
    taus: Annotated[str, typer.Option("--taus", help="fednag: local steps between two averages, with commas")] = (
        "1,4,16"
    ),
    total: Annotated[int, typer.Option("--total", help="fednag: T, local steps in all, on a convex problem")] = 64,
    eta: Annotated[
        str | None,
        typer.Option(
            "--eta",
            metavar="<float>",
            help="step size of the bounds; the largest for which all holds by default",
            show_default=False,
        ),
    ] = None,
    points: Annotated[int, typer.Option("--points", help="points at which constants of a network are estimated")] = 4,
    trained: Annotated[int, typer.Option("--trained", help="rounds of training between first and last point")] = 6,
    look_at: Annotated[int, typer.Option("--look-at", help="clients whose curvature is estimated")] = 10,
    out: Annotated[Path | None, typer.Option("--out", help="folder for picture, points and numbers")] = None,
    json: Annotated[bool, JSON] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no messages")] = False,
    settings: Mapping[str, object] = {},
) -> None:
    """What a paper's theorems allow and promise on a problem, beside practice; on convex ones beside measured gaps."""
    refuse_ranks("theory")
    from headway.runs.progress import Bar
    from headway.scenario import scenario_of
    from headway.theory.bounds import bounds

    with Bar(stderr_console(), quiet) as bar:
        found = bounds(
            method,
            scenario_of(scenario, settings),
            constants=_constants(constants),
            taus=[_whole("--taus", tau) for tau in listed(taus) or []],
            total=total,
            eta=None if eta is None else _number("--eta", eta),
            points=points,
            trained=trained,
            look_at=look_at,
            out=out,
            observer=None if quiet else bar,
        )
    if json:
        print_json(found.as_dict())
    else:
        _show(found, out)


def _show(found: Bounds, out: Path | None) -> None:
    """The tables and the notes on standard output."""
    from headway.theory.table import tables

    console = screen()
    console.print(f"{found.method} · {found.problem}; constants {found.origin}\n", markup=False)
    for one in tables(found):
        console.print(one)
        console.print()
    for note in found.notes:
        console.print(note, markup=False)
    if out is not None:
        typer.echo(f"picture: {out / 'bounds.png'}, {out / 'bounds.svg'}; points: {out / 'bounds.csv'}")


def _constants(given: str | None) -> dict[str, float] | None:
    """`L=10,sigma=1` → L: 10 and sigma: 1."""
    found: dict[str, float] = {}
    for one in listed(given) or []:
        name, equals, value = one.partition("=")
        if not equals:
            raise UserError(f"--constants has '{one}'; write NAME=VALUE,… such as L=10,sigma=1")
        if name.strip() in found:
            raise UserError(f"--constants has '{name.strip()}' twice")
        found[name.strip()] = _number(f"--constants {name.strip()}", value)
    return found or None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{name} is '{text}'; it must be a number") from None


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{name} has '{text}'; write whole numbers with commas, such as 1,4,16") from None
