"""headway deploy rehearse, run, resume, status, stop."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.table import Table

from headway.cli.deploy_options import CA, PROJECT, RUN, SERVER_STATE, SUPERLINK, VAR
from headway.cli.ending import Ended
from headway.cli.screen import JSON, TRACK, print_json, screen, stderr_console
from headway.errors import MachineError, RunsFailed, UserError

if TYPE_CHECKING:
    from headway.deploy.operate import Operator, Status
    from headway.deploy.starts import Setting, Start

METHOD = typer.Option("--method", help="another method than that of app.py, such as scaffold", show_default=False)
ROUNDS = typer.Option("--rounds", help="another number of rounds than that of app.py", min=1, show_default=False)
BUFFERS = typer.Option("--buffers", help="statistics of BatchNorm: average, keep-local or refuse", show_default=False)
DEADLINE = typer.Option("--deadline", help="how long a round waits for replies, such as 30m", show_default=False)
OUT = typer.Option("--out", help="folder of the run; a new one under runs/ by default", show_default=False)


def rehearse(
    project: Annotated[Path, PROJECT],
    sites: Annotated[int, typer.Option(help="how many sites are played", min=1)] = 3,
    method: Annotated[str | None, METHOD] = None,
    rounds: Annotated[int | None, ROUNDS] = 4,
    buffers: Annotated[str | None, BUFFERS] = None,
    kill: Annotated[
        str, typer.Option(help="what is killed, and in which round: site:2@3,server@1,link@4", show_default=False)
    ] = "",
    stranger: Annotated[
        bool,
        typer.Option("--stranger", help="strangers try to connect too: with an unknown key, none, no TLS, another CA"),
    ] = False,
    proxy: Annotated[
        bool, typer.Option("--proxy", help="sites connect through nginx, which forwards /v1/fleet/ alone")
    ] = False,
    deadline: Annotated[str, DEADLINE] = "3m",
    out: Annotated[Path | None, OUT] = None,
    keep: Annotated[bool, typer.Option("--keep", help="keep keys, states and logs of what was started")] = False,
    json: Annotated[bool, JSON] = False,
) -> None:
    """Play a whole federation on this machine, with TLS and keys, then the simulator; print the gap between the two."""
    from headway.deploy import faults
    from headway.deploy.project import duration
    from headway.deploy.rehearse import Plan, rehearse

    plan = Plan(
        project,
        sites,
        (out or _folder("rehearsal")).absolute(),
        method=method,
        settings=_settings(rounds, buffers),
        kills=faults.kills(kill, sites, rounds or 1),
        stranger=stranger,
        proxy=proxy,
        keep=keep,
        deadline=duration("--deadline", deadline),
    )
    console = stderr_console()
    began = time.monotonic()

    def tell(line: str) -> None:
        console.print(f"{time.monotonic() - began:5.0f} s  {line}", markup=False, highlight=False, soft_wrap=True)

    found = rehearse(plan, tell)
    if json:
        print_json({**dataclasses.asdict(found), "folder": str(found.folder), "good": found.good})
    else:
        typer.echo(f"gap {found.gap:.3g} (limit {found.limit:g})\nrun: {found.folder}")
    if not found.good:
        raise RunsFailed(
            "somebody was let in who must be refused"
            if found.gap <= found.limit
            else f"the run and its simulation differ by {found.gap:.3g}; at most {found.limit:g} was expected"
        )


def run(
    project: Annotated[Path, PROJECT],
    sites: Annotated[int | None, typer.Option(help="how many sites the first round waits for", min=1)] = None,
    wait: Annotated[str, typer.Option(help="how long it waits for them")] = "10m",
    deadline: Annotated[str | None, DEADLINE] = None,
    quorum: Annotated[int | None, typer.Option(help="a round with fewer replies is void", min=1)] = None,
    limit: Annotated[
        str | None, typer.Option(help="how long a site trains in a round; what it has done by then counts")
    ] = None,
    method: Annotated[str | None, METHOD] = None,
    rounds: Annotated[int | None, ROUNDS] = None,
    buffers: Annotated[str | None, BUFFERS] = None,
    track: Annotated[list[str] | None, TRACK] = None,
    out: Annotated[Path | None, OUT] = None,
    superlink: Annotated[str | None, SUPERLINK] = None,
    ca: Annotated[Path | None, CA] = None,
    state: Annotated[Path, SERVER_STATE] = VAR,
) -> None:
    """Start a run at the sites, and follow it to its end. After Ctrl-C the run goes on."""
    from headway.deploy.commands import Address
    from headway.deploy.deployable import check_quorum
    from headway.deploy.loading import check_method, load
    from headway.deploy.operate import Operator
    from headway.deploy.project import duration, read_federation
    from headway.deploy.starts import Start, new_name
    from headway.deploy.terms import Terms

    given = read_federation(project)
    check_method(load(project).server, method)
    terms = Terms(
        sites=sites or given.sites,
        wait=duration("--wait", wait),
        deadline=given.deadline if deadline is None else duration("--deadline", deadline),
        quorum=quorum or given.quorum,
        seconds=None if limit is None else duration("--limit", limit),
    )
    check_quorum(terms.quorum, terms.sites)
    address, authority = superlink or given.superlink, (ca or Path(given.authority)).absolute()
    operator = Operator(Address.read("--superlink", address), authority, state.absolute())
    start = Start(
        new_name(),
        str(project.absolute()),
        str((out or _folder(project.resolve().name)).absolute()),
        terms,
        method=method,
        settings=_settings(rounds, buffers),
        track=tracked(track or ()),
        superlink=str(operator.superlink),
        authority=str(operator.authority),
    )
    _follow(operator, _begun(operator, start))


def _begun(operator: Operator, start: Start) -> Start:
    """Start a new run, unless its folder is in use."""
    from headway.deploy.starts import Starts

    operator.check()
    starts, folder = Starts(operator.state), Path(start.out)
    with starts.one_at_a_time():
        if folder.exists():
            again = _command("resume", folder, operator)
            raise UserError(f"{folder} is there already; go on with {again}, or give another: --out NEW")
        if (before := starts.latest(folder)) and operator.runs(before):
            raise UserError(
                f"a run that waits for its sites has {folder} already; end it: {_command('stop', folder, operator)}, "
                "or give another folder: --out NEW"
            )
        return operator.submit(start)


def resume(
    run: Annotated[Path, RUN],
    state: Annotated[Path, SERVER_STATE] = VAR,
    rounds: Annotated[int | None, ROUNDS] = None,
    deadline: Annotated[str | None, DEADLINE] = None,
    quorum: Annotated[int | None, typer.Option(help="a round with fewer replies is void", min=1)] = None,
    lost_state: Annotated[
        str | None,
        typer.Option(help="a site whose state is gone: stop, or start-anew as a newcomer", show_default=False),
    ] = None,
    accept_data: Annotated[
        list[str] | None, typer.Option(help="a site whose data has changed, and may; repeatable", show_default=False)
    ] = None,
    track: Annotated[list[str] | None, TRACK] = None,
    new_server: Annotated[
        bool, typer.Option("--new-server", help="the state folder that the run was started from is lost")
    ] = False,
) -> None:
    """Go on with a run from its last checkpoint, after the server or the machine has died, or the run was stopped."""
    from headway.deploy.project import duration
    from headway.deploy.starts import Starts, new_name

    _operator(run, state, new_server)  # refuses before it waits
    with Starts(state.absolute()).one_at_a_time():
        operator, last = _operator(run, state, new_server)
        before = last.terms
        terms = dataclasses.replace(
            before,
            deadline=before.deadline if deadline is None else duration("--deadline", deadline),
            quorum=before.quorum if quorum is None else quorum,
            lost_state=lost_state or before.lost_state,
            accept_data=tuple(accept_data or ()),
        )
        again = dataclasses.replace(
            last,
            name=new_name(),
            resume=True,
            terms=terms,
            settings={**last.settings, **_settings(rounds, None)},
            track=tracked(track) if track else last.track,
        )
        if last.run_id is not None and operator.runs(last):
            raise UserError(
                f"{run} is running; follow it with {_command('status', run)}, or end it: "
                f"{_command('stop', run, operator)}"
            )
        begun = operator.submit(again)
    _follow(operator, begun)


def status(
    run: Annotated[Path, RUN],
    watch: Annotated[bool, typer.Option("--watch", help="go on looking, until the run ends or Ctrl-C")] = False,
    page: Annotated[
        Path | None, typer.Option("--page", help="write it as a page too, which loads itself anew", show_default=False)
    ] = None,
    json: Annotated[bool, JSON] = False,
) -> None:
    """Where a run stands: its rounds, its sites, when each was last heard of, and what went wrong."""
    from headway.deploy.operate import read_status

    if json and (watch or page is not None):
        raise UserError("--json prints the status once; leave out --watch and --page")
    if page is not None and not page.absolute().parent.is_dir():
        raise UserError(f"--page is {page}; the folder {page.parent} is missing: make it, or give another")
    found = read_status(run)
    if json:
        print_json(found)
        return
    if page is not None:
        _write_page(page, found, _ended(run, found))
    if not watch:
        screen().print(_table(found))
        return
    with Live(_table(found), console=screen(), auto_refresh=False) as live:
        while not _ended(run, found):
            time.sleep(1)
            found = read_status(run)
            live.update(_table(found), refresh=True)
            if page is not None:
                _write_page(page, found, _ended(run, found))


def _ended(run: Path, found: Status) -> bool:
    """Whether nothing more will happen in a run's folder by itself."""
    return found.get("stopped", False) or (run / "summary.json").is_file()


def _write_page(page: Path, found: Status, ended: bool) -> None:
    """The table as a page of its own, which a browser loads anew while the run goes on. It loads nothing else."""
    from headway.cli import status_page
    from headway.runs.files import write_atomically

    note = f"as of {time.strftime('%H:%M:%S', time.localtime(found['updated']))}" + ("; the run has ended" * ended)
    write_atomically(page, status_page.page(_title(found), COLUMNS, _rows(found), note, not ended).encode())


def stop(run: Annotated[Path, RUN], state: Annotated[Path, SERVER_STATE] = VAR) -> None:
    """Stop a run. Its folder stays; headway deploy resume goes on with it."""
    from headway.deploy.operate import mark_stopped

    operator, last = _operator(run, state)
    operator.stop(last)
    mark_stopped(run)
    typer.echo(f"stopped; go on with: {_command('resume', run, operator)}")


def _settings(rounds: int | None, buffers: str | None) -> dict[str, Setting]:
    given: dict[str, Setting] = {"rounds": rounds, "buffers": buffers}
    return {name: value for name, value in given.items() if value is not None}


def tracked(track: Sequence[str]) -> tuple[str, ...]:
    """Trackers as the server's app takes them, which works in another folder; what it would refuse is refused here."""
    from headway.runs.trackers.tracking import trackers

    trackers(list(track))
    parts = [(spelled, *spelled.partition(":")[::2]) for spelled in track]
    return tuple(
        f"{name}:{Path(place).expanduser().absolute()}" if name == "tensorboard" and place else spelled
        for spelled, name, place in parts
    )


def _command(verb: str, run: str | Path, operator: Operator | None = None) -> str:
    """A command of headway deploy for a run, as a shell takes it."""
    words = ["headway", "deploy", verb, str(run)]
    if operator is not None and operator.state != VAR:
        words += ["--state", str(operator.state)]
    return shlex.join(words)


def _folder(label: str) -> Path:
    from headway.runs.files import slug

    return Path("runs") / f"{slug(label)}-{time.strftime('%Y%m%d-%H%M%S')}"


def _operator(run: Path, state: Path, new_server: bool = False) -> tuple[Operator, Start]:
    """The server of a run, and the run's last start; at a new server, what the run's folder keeps of it."""
    from headway.deploy.commands import Address
    from headway.deploy.operate import Operator
    from headway.deploy.starts import Starts, kept_with

    starts = Starts(state.absolute())
    last = kept_with(run) if new_server and starts.latest(run) is None else starts.last_of(run)
    operator = Operator(Address.read("superlink", last.superlink), Path(last.authority), state.absolute())
    operator.check()
    return operator, last


def _follow(operator: Operator, start: Start) -> None:
    """Print a run's rounds as they end, and how it ended."""
    typer.echo(f"run: {start.out}")
    try:
        outcome = operator.follow(start, typer.echo)
    except KeyboardInterrupt:
        raise Ended(
            f"the run goes on; look at it: {_command('status', start.out)}; end it: "
            f"{_command('stop', start.out, operator)}",
            130,
        ) from None
    assert outcome is not None, "nothing here ends the following"
    if outcome.code == 2:
        raise UserError(outcome.line)
    if outcome.code:
        raise MachineError(f"{outcome.line}; go on with: {_command('resume', start.out, operator)}")
    if traffic := operator.run_of(start).get("network-traffic"):
        typer.echo(f"on the wire, by Flower's count: {traffic['total-bytes']:,} bytes")


COLUMNS = ("site", "client", "last seen", "last round that counted", "late", "lost", "now")


def _title(found: Status) -> str:
    title = f"round {found['round']} of {found['rounds']}" + (f", {found['void']} void" if found["void"] else "")
    return title + (", stopped" if found.get("stopped") else "")


def _rows(found: Status) -> list[tuple[str, ...]]:
    """What there is to say of each site."""
    waiting, rows = set(found["waiting_for"]), []
    for site in found["sites"]:
        seen = site["last_seen"]
        ago = "never" if seen is None else f"{max(0.0, time.time() - seen):.0f} s ago"
        now = "waited for" if site["name"] in waiting else site["code"]
        numbers = (str(site[name]) for name in ("counted", "late", "lost"))
        rows.append((site["name"], str(site["index"]), ago, *numbers, now))
    return rows


def _table(found: Status) -> Table:
    """The sites of a run, one to a line."""
    table = Table(*COLUMNS, title=_title(found))
    for row in _rows(found):
        table.add_row(*row)
    return table
