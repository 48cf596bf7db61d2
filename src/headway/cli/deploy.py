"""headway deploy: init, keys, serve, join, doctor, methods; what runs stands in `deploy_runs`."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from headway.cli import deploy_runs
from headway.cli.deploy_options import CA, PROJECT, SERVER_STATE, STATE, SUPERLINK, VAR
from headway.cli.screen import ENDLESS, JSON, print_json, screen
from headway.errors import RunsFailed, UserError

if TYPE_CHECKING:
    from headway.deploy.commands import Command

app = typer.Typer(
    help="Train at real sites, over a network, on Flower. Begin with: headway deploy init, headway deploy rehearse.",
    no_args_is_help=True,
)

for one in (deploy_runs.rehearse, deploy_runs.run, deploy_runs.resume, deploy_runs.status, deploy_runs.stop):
    app.command()(one)

PRINT = typer.Option("--print", help="print the command, and do not start it")
UNIT = typer.Option("--unit", help="print a systemd unit that runs it")


@app.command()
def init(folder: Annotated[Path, PROJECT]) -> None:
    """Write a new project: app.py, network.py, pyproject.toml, federation.toml, and made-up data to rehearse with."""
    from headway.deploy import project

    for path in project.init(folder):
        typer.echo(f"wrote {path}")
    typer.echo(f"try it on this machine: headway deploy rehearse {shlex.quote(str(folder))} --sites 3")


@app.command()
def keys(
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="operator: the server's name or address, as sites reach it; repeatable"),
    ] = None,
    site: Annotated[str | None, typer.Option("--site", help="site: its name; makes NAME and NAME.pub")] = None,
    admit: Annotated[
        Path | None, typer.Option("--admit", help="operator: the file NAME.pub of a site that may connect")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="folder for what is made")] = Path("keys"),
    superlink: Annotated[str, SUPERLINK] = "127.0.0.1:9092",
    ca: Annotated[Path, CA] = Path("keys/ca.crt"),
    state: Annotated[Path, SERVER_STATE] = VAR,
) -> None:
    """Make the server's certificates, or a site's key pair, or admit a site. Secrets never travel, NAME.pub does."""
    from headway.deploy import keys as files

    if sum(one is not None for one in (host, site, admit)) != 1:
        raise UserError("keys takes one of --host (the server's certificate), --site (a key pair), --admit (NAME.pub)")
    if host is not None:
        made = files.make_server_files(out, host)
        typer.echo(f"for every site: {made.authority}\nstays here:     {made.authority_key}, {made.key}")
    elif site is not None:
        private, public = files.make_site_keys(out, site)
        typer.echo(f"for the operator: {public}\nstays here:       {private}")
    elif admit is not None:
        from headway.deploy.commands import Address
        from headway.deploy.operate import Operator

        number = Operator(Address.read("--superlink", superlink), ca.resolve(), state.resolve()).admit(
            admit, admit.stem
        )
        typer.echo(f"{admit.stem} may connect; Flower's number of it is {number}")


@app.command()
def serve(
    keys: Annotated[Path, typer.Option("--keys", help="folder that headway deploy keys --host made")] = Path("keys"),
    state: Annotated[Path, STATE] = VAR,
    address: Annotated[str, typer.Option(help="where it listens; a proxy stands before it")] = "127.0.0.1:9092",
    show: Annotated[bool, PRINT] = False,
    unit: Annotated[bool, UNIT] = False,
    proxy: Annotated[bool, typer.Option("--proxy", help="print the server block of nginx")] = False,
    host: Annotated[str, typer.Option(help="with --proxy: the server's name, as sites reach it")] = "",
    listen: Annotated[str, typer.Option(help="with --proxy: where the proxy listens")] = "0.0.0.0:443",
    runs: Annotated[
        list[Path] | None,
        typer.Option("--runs", help="with --unit: a folder for runs outside the state folder; repeatable"),
    ] = None,
) -> None:
    """Become Flower's SuperLink, the server's program, with TLS, with authentication of sites, and phoning nobody."""
    from headway.deploy import commands, units
    from headway.deploy.keys import ServerFiles

    files, where = ServerFiles(keys.resolve()), commands.Address.read("--address", address)
    files.check()
    if proxy:
        if not host:
            raise UserError("serve --proxy needs the server's name, as sites reach it: --host fl.example.org")
        typer.echo(units.proxy(files, commands.Address.read("--listen", listen), host, where), nl=False)
        return
    if not (show or unit):
        commands.check_free("--address", where)
    place = state.resolve()
    if unit:
        words = ("serve", "--keys", str(files.folder), "--state", str(place), "--address", str(where))
        _show_unit(words, "Headway's server (Flower SuperLink)", [place, *(one.resolve() for one in runs or [])])
        return
    _become(commands.superlink(files, where, place), place / "server.lock", "a server", show)


@app.command()
def join(
    name: Annotated[str, typer.Argument(help="the site's name, as in headway deploy keys --site", show_default=False)],
    superlink: Annotated[str, SUPERLINK],
    ca: Annotated[Path, CA] = Path("ca.crt"),
    key: Annotated[Path | None, typer.Option("--key", help="the site's secret key; keys/NAME by default")] = None,
    state: Annotated[Path, STATE] = VAR,
    data: Annotated[
        Path | None, typer.Option("--data", help="the site's folder of data, given to data() of app.py")
    ] = None,
    port: Annotated[int, typer.Option(help="port of 127.0.0.1 for the site's own programs", min=1, max=65535)] = 9094,
    show: Annotated[bool, PRINT] = False,
    unit: Annotated[bool, UNIT] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="with --unit: the program may use devices")] = False,
) -> None:
    """Become Flower's SuperNode, a site's program: it connects to the server, and trains when it is asked to."""
    from headway.deploy import commands
    from headway.deploy.keys import check_name, check_secret

    secret = key or Path("keys") / check_name(name)
    if not ca.is_file():
        raise UserError(f"{ca} is missing; the operator hands out ca.crt: --ca FILE")
    check_secret(secret, f"headway deploy keys --site {name}")
    if data is not None and not data.is_dir():
        raise UserError(f"{data} is not a folder; --data is the folder that data() of app.py gets")
    address = commands.Address.read("--superlink", superlink)
    place = None if data is None else data.resolve()
    site = commands.Site(name, secret.resolve(), ca.resolve(), address, state.resolve(), place, port)
    if not (show or unit):
        commands.check_free("--port", commands.Address("127.0.0.1", port))
    command = commands.supernode(site)
    if unit:
        words = ["join", name, "--superlink", str(address), "--ca", str(site.authority), "--key", str(site.key)]
        words += ["--state", str(site.state), "--port", str(port)] + ([] if place is None else ["--data", str(place)])
        _show_unit(words, f"Headway's site {name} (Flower SuperNode)", [site.state], gpu)
        return
    _become(command, site.state / "site.lock", "a site", show)


def _show_unit(words: Sequence[str], what: str, writable: Sequence[Path], gpu: bool = False) -> None:
    """Print a systemd unit that runs this command of headway deploy."""
    from headway.deploy import commands, units

    command = commands.Command((commands.program("headway"), "deploy", *words))
    typer.echo(units.systemd(command, what, writable, gpu), nl=False)


def _become(command: Command, lock: Path, holder: str, show: bool) -> None:
    """Print a command, or become it: Flower's program takes this process's place."""
    from headway.deploy.becoming import become
    from headway.deploy.keys import secret_folder

    if show:
        typer.echo(str(command))
        return
    secret_folder(lock.parent)
    become(command, lock, holder)


@app.command()
def doctor(
    superlink: Annotated[str, SUPERLINK],
    ca: Annotated[Path, CA] = Path("ca.crt"),
    key: Annotated[Path | None, typer.Option("--key", help="the site's secret key", show_default=False)] = None,
    state: Annotated[Path | None, STATE] = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="this is the operator's machine, from which control may be reached")
    ] = False,
) -> None:
    """Look at versions, key, folder, address, TLS, clocks, and whether the proxy hides what it must hide."""
    from headway.deploy.commands import Address
    from headway.deploy.doctor import examine

    bad = 0
    for finding in examine(Address.read("--superlink", superlink), ca, key, state, at_site=not operator):
        typer.echo(str(finding))
        bad += not finding.good
    if bad:
        raise RunsFailed(f"{bad} thing{'s' if bad > 1 else ''} must be put right")


@app.command()
def methods(json: Annotated[bool, JSON] = False) -> None:
    """List every method: whether it can be deployed, and what it needs of the sites."""
    from headway.deploy.deployable import table

    rows = table()
    if json:
        print_json([dataclasses.asdict(row) for row in rows])
        return
    shown = Table(box=box.SIMPLE_HEAD)
    for column in (
        "method",
        "can be deployed",
        "every site in every round",
        "state at the site",
        "server sees each upload",
    ):
        shown.add_column(column)
    for row in rows:
        marks = ("yes" if one else "–" for one in (row.needs_everybody, row.keeps_state, row.sees_each))
        shown.add_row(row.name, "yes" if row.deployable else f"no: {row.why}", *marks)
    screen(ENDLESS).print(shown)
