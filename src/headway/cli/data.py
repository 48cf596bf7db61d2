"""headway data list, get, partitions, samplings, describe."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from headway.cli.screen import JSON, print_json, screen, stderr_console

if TYPE_CHECKING:
    import numpy as np

    from headway.data.sources import Source
    from headway.data.statistics import Mixes, Sizes
    from headway.scenario import Scenario

app = typer.Typer(help="Data sets: what there is, downloads, and what a split looks like.", no_args_is_help=True)

DATA_DIR = typer.Option(
    "--data-dir", help="folder of the data sets (else $HEADWAY_DATA, else a user cache)", show_default=False
)
SPELLED = typer.Argument(help="cifar10, synthetic:1,1, npz:own.npz, …; 'headway data list' has all", show_default=False)


# ── list ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command("list")
def list_(data_dir: Annotated[str | None, DATA_DIR] = None, json: Annotated[bool, JSON] = False) -> None:
    """List the data sets: which are in the data folder, which can be downloaded."""
    from headway.data.sources import named_folder

    folder = named_folder(data_dir)
    entries = listed(folder)
    print_json(entries) if json else screen().print(_table(entries, folder))


class ListedData(TypedDict):
    """A data set as plain data."""

    name: str
    argument: str
    """How its argument is written; empty where it has none."""
    summary: str
    present: bool | None
    """None where it lies elsewhere than in the data folder."""
    download: bool
    download_bytes: int
    by_hand: str | None
    """How it is had, where it cannot be downloaded."""


def listed(folder: Path) -> list[ListedData]:
    """Every data set."""
    from headway.data.published import BY_HAND, PUBLISHED
    from headway.data.sources import SOURCES, present

    return [
        {
            "name": name,
            "argument": entry.argument,
            "summary": entry.summary,
            "present": present(name, folder) if entry.layouts else None,
            "download": name in PUBLISHED,
            "download_bytes": sum(file.size for file in PUBLISHED.get(name, ())),
            "by_hand": BY_HAND.get(name),
        }
        for name, entry in SOURCES.items()
    ]


def _table(entries: list[ListedData], folder: Path) -> Table:
    absent = "" if folder.is_dir() else " (not there yet)"
    table = Table(box=box.SIMPLE_HEAD, caption=f"data folder: {folder}{absent}", caption_justify="left")
    for heading in ("name", "what it is", "in the folder", "download"):
        table.add_column(heading, no_wrap=heading != "what it is", justify="right" if heading == "download" else "left")
    words = {True: "yes", False: "no", None: "not needed"}
    for entry in entries:
        spelled = f"; {entry['name']}:{entry['argument']}" if entry["argument"] else ""
        size = f"{entry['download_bytes'] / 1e6:.0f} MB" if entry["download"] else "–"
        way = "by hand" if entry["by_hand"] else size
        table.add_row(entry["name"], Text(entry["summary"] + spelled), words[entry["present"]], way)
    return table


# ── get ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="mnist, cifar10, …; 'headway data list' has all", show_default=False)],
    data_dir: Annotated[str | None, DATA_DIR] = None,
) -> None:
    """Download a data set from its publisher into the data folder; a broken download is resumed."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from headway.data import download
    from headway.data.sources import named_folder

    folder = named_folder(data_dir)
    console = stderr_console()
    columns = (TextColumn("{task.description}"), BarColumn(28), DownloadColumn(), TransferSpeedColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, TimeRemainingColumn(compact=True), console=console, disable=not console.is_terminal) as bar:

        def show(file: str, here: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=here, total=total)

        files = download.get(name, folder, show)
    places = sorted({str(file.parent) for file in files})
    typer.echo(f"{name} is in {', '.join(places)}")


# ── partitions, samplings ────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def partitions(json: Annotated[bool, JSON] = False) -> None:
    """List the partitions: how samples can go to clients (--partition)."""
    from headway.data.partition import PARTITIONS

    _print_lines("--partition", {line.spelled(name): line.help for name, line in PARTITIONS.items()}, json)


@app.command()
def samplings(json: Annotated[bool, JSON] = False) -> None:
    """List the samplings: which clients can take part in a round (--sampling)."""
    from headway.data.participation import SAMPLINGS

    _print_lines("--sampling", {f"{name}{line.argument}": line.help for name, line in SAMPLINGS.items()}, json)


def _print_lines(flag: str, lines: dict[str, str], json: bool) -> None:
    if json:
        print_json([{"name": name, "summary": summary} for name, summary in lines.items()])
        return
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(flag, no_wrap=True)
    table.add_column("what it does")
    for name, summary in lines.items():
        table.add_row(Text(name), Text(summary))
    screen().print(table)


# ── describe ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def describe(
    name: Annotated[str, SPELLED],
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition",
            help="how samples go to clients; 'headway data partitions' lists all, dirichlet:0.3 by default",
        ),
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option("--clients", help="number of clients; 60 by default, for natural and file:PATH all there are"),
    ] = None,
    split_seed: Annotated[int | None, typer.Option("--split-seed", help="seed of the split; 0 by default")] = None,
    data_dir: Annotated[str | None, DATA_DIR] = None,
    json: Annotated[bool, JSON] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="draw clients × classes in this file (.png, .svg, .pdf)")
    ] = None,
) -> None:
    """Sizes and classes of a data set, and what its split gives to each client (means over clients)."""
    from headway.data import sources
    from headway.data.held_out import tests_by_owner
    from headway.data.partition import split
    from headway.report import split_picture
    from headway.scenario import Scenario

    if picture is not None:
        split_picture.check_path(picture)
    given = {"data": name, "data_dir": data_dir, "partition": partition, "clients": clients, "split_seed": split_seed}
    chosen = Scenario().with_settings({setting: value for setting, value in given.items() if value is not None})
    if clients is None and chosen.partition.partition(":")[0] in ("natural", "file"):
        chosen = chosen.changed(clients=0)
    source = sources.load(chosen.data, chosen.data_dir)
    labels, users = source.train.labels.numpy(), source.users
    rows = split(chosen.partition, labels, chosen.clients, chosen.split_seed, users, source.groupings)
    tests = tests_by_owner(chosen.partition, rows, users, source.test_users, source.groupings)
    found, counts = described(chosen, source, rows, sum(map(bool, map(len, tests or ()))))
    if picture is not None:
        title = f"{name}, {chosen.partition}, {len(rows):,} clients"
        names = source.class_names if counts.shape[1] == source.classes else ()
        split_picture.draw_split(counts, names, title, picture)
    print_json(found.plain()) if json else _print_description(found, source.citation)
    if picture is not None and not json:
        typer.echo(f"picture: {picture}")


@dataclass(frozen=True)
class Tokens:
    """How many tokens the samples have together."""

    tokens: int
    test_tokens: int


@dataclass(frozen=True)
class Description:
    """A data set and its split in numbers."""

    name: str
    samples: int
    test_samples: int
    tokens: Tokens | None
    """None where targets are not tokens."""
    classes: int | None
    """None where targets are numbers."""
    users: int | None
    partition: str
    split_seed: int
    clients: int
    clients_with_tests: int
    """How many clients the data has test samples for."""
    mixes: Mixes | None
    """None where a sample does not have one class."""
    sizes: Sizes

    def plain(self) -> dict[str, object]:
        """The numbers by name, those of the parts beside the others; what is not known is None."""
        from headway.data.statistics import Mixes

        numbers = dataclasses.asdict(self)
        mixes, sizes, tokens = numbers.pop("mixes"), numbers.pop("sizes"), numbers.pop("tokens")
        return {
            **numbers,
            **(tokens or {}),
            **(mixes or {field.name: None for field in dataclasses.fields(Mixes)}),
            **sizes,
        }


def described(
    scenario: Scenario, source: Source, rows: list[np.ndarray], clients_with_tests: int
) -> tuple[Description, np.ndarray]:
    """A data set with its split, and samples by client and class; without classes, by client alone."""
    import numpy as np

    from headway.data import statistics
    from headway.data.sources.token_blocks import counted

    labels = source.train.labels
    tokens = source.classes > 0 and labels.dim() > 1
    if source.classes and not tokens:
        counts = statistics.class_counts(labels.numpy(), rows, source.classes)
    else:
        counts = np.array([[len(own)] for own in rows])
    found = Description(
        name=scenario.data,
        samples=len(source.train),
        test_samples=len(source.test),
        tokens=Tokens(counted(labels), counted(source.test.labels)) if tokens else None,
        classes=source.classes,
        users=None if source.users is None else len(np.unique(source.users)),
        partition=scenario.partition,
        split_seed=scenario.split_seed,
        clients=len(rows),
        clients_with_tests=clients_with_tests,
        mixes=statistics.class_mixes(counts) if source.classes and not tokens else None,
        sizes=statistics.sizes(rows, len(source.train)),
    )
    return found, counts


def _print_description(found: Description, citation: str) -> None:
    classes = f"{found.classes} classes" if found.classes else "targets that are numbers"
    users = f", {found.users:,} users" if found.users else ""
    console = screen()
    tokens = f"{found.tokens.tokens:,} + {found.tokens.test_tokens:,} tokens, " if found.tokens else ""
    amounts = f"{found.samples:,} + {found.test_samples:,} samples, {tokens}{classes}{users}"
    console.print(f"{found.name}: {amounts}", markup=False)
    if citation:
        console.print(citation, style="dim", markup=False)
    split = f"{found.partition}, {found.clients:,} clients, split seed {found.split_seed}"
    console.print(split, markup=False)
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("samples of a client, least", f"{found.sizes.size_min:,}")
    table.add_row("median", f"{found.sizes.size_median:,g}")
    table.add_row("most", f"{found.sizes.size_max:,}")
    table.add_row("samples left out", f"{found.sizes.left_out:,}")
    if found.clients_with_tests:
        table.add_row("clients with test samples", f"{found.clients_with_tests:,}")
    if found.mixes is not None:
        table.add_row("classes present, mean", f"{found.mixes.classes_present:.2f}")
        table.add_row("largest class share, mean", f"{found.mixes.largest_share:.3f}")
        table.add_row("exp(entropy), mean", f"{found.mixes.exp_entropy:.2f}")
        table.add_row("L1 to uniform, mean", f"{found.mixes.l1_to_uniform:.3f}")
    console.print(table)
