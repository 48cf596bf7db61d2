"""Reads the items of a paper, its tables and figures, from PAPER/items.toml as presets.

[items.table-1a]   rows (methods), columns (scenarios with their measures), `figures` (the kinds of figures; curves by
                   default), and `chosen`: what the text leaves open and how it is settled here
[methods]          the spelling of a row's method with the paper's arguments; other spellings or settings for a data
                   set, for a data set with a split such as "mnist/gradma0.01", or for one column's scenario
[rows]             lists of rows that several items use
[[items.table-1a.statements]]  what papers say of the rows, and the cells that show it or not
[tuned]            settings of every column on a data set with a split, such as "mnist/gradma0.01"
[paper]            source, profile, seeds, settings of every item; `like`: a paper whose methods and rows this one has

A row or a column with a `setting` is the line of the published table that has it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal, Required, TypedDict, cast

from headway.errors import UserError, nearest
from headway.papers.preset import Column, Preset, Row, Settings, Spelling, Statement, task_of
from headway.papers.preset_checks import check_preset
from headway.papers.printed_places import with_printed_numbers
from headway.papers.published import FOLDER

PAPERS = ("fedacg", "fedacg-iclr", "fedagm", "fednag", "gradma", "fl-simulator", "diloco", "compositions")


class SpellingEntry(TypedDict, total=False):
    """A method as it is run on some data."""

    spelled: Required[str]
    settings: Settings


MethodEntry = str | Mapping[str, object]
"""A spelling for all data; or a table of a `SpellingEntry` with further ones under the names of data and scenarios."""


class RowEntry(TypedDict, total=False):
    """A row with more than a method's name."""

    method: Required[str]
    setting: str
    spelled: str


class ColumnEntry(TypedDict, total=False):
    """A column with more than a scenario's name; `targets` are short for measures rounds_to_…"""

    scenario: Required[str]
    measures: list[str]
    targets: list[float]
    label: str
    setting: str
    settings: Settings
    printed: dict[str, float]
    read: dict[str, str]


class StatementEntry(TypedDict, total=False):
    """What a paper says of methods; `preset.Statement` has what each part means."""

    text: Required[str]
    source: Required[str]
    measure: Required[str]
    row: Required[str]
    than: list[str]
    columns: list[str]
    than_column: str
    than_measure: str
    slack: float


class ItemEntry(TypedDict, total=False):
    """A table or a figure; `rows` are given or name a list of `[rows]`."""

    title: Required[str]
    kind: str
    rows: str | list[str | RowEntry]
    columns: list[str | ColumnEntry]
    measures: list[str]
    chosen: list[str]
    shares: list[str]
    figures: list[str]
    reference: str
    published: Literal["none"] | dict[str, float]
    statements: list[StatementEntry]


class PaperEntry(TypedDict, total=False):
    """What holds for all items of a paper."""

    authors: Required[str]
    title: Required[str]
    venue: Required[str]
    profile: Required[str]
    like: str
    seeds: int
    settings: Settings
    chosen: Required[list[str]]


class PaperFile(TypedDict, total=False):
    """The whole of an items.toml."""

    paper: Required[PaperEntry]
    methods: Required[dict[str, MethodEntry]]
    rows: Required[dict[str, list[str | RowEntry]]]
    items: Required[dict[str, ItemEntry]]
    tuned: dict[str, Settings]


def preset(item: str) -> Preset:
    """The preset of an item by its name, such as `fedacg/table-1a`."""
    paper, _, name = item.partition("/")
    if paper not in PAPERS:
        raise UserError(f"there is no paper '{paper}'{nearest(paper, PAPERS)} (known: {', '.join(PAPERS)})")
    known = presets(paper)
    if name not in known:
        raise UserError(f"{paper} has no item '{name}'{nearest(name, known)} (headway reproduce --list names all)")
    return known[name]


def every_preset() -> list[Preset]:
    """Every table and figure of every paper."""
    return [preset for paper in PAPERS for preset in presets(paper).values()]


@cache
def presets(paper: str) -> dict[str, Preset]:
    """Every item of a paper, by name."""
    content = _content(paper)
    methods, lists = content["methods"], content["rows"]
    if "like" in content["paper"]:
        base = _content(content["paper"]["like"])
        methods, lists = {**base["methods"], **methods}, {**base["rows"], **lists}
    spellings = {name: _spellings(entry) for name, entry in methods.items()}
    _check_names(paper, content)
    found = {}
    for name, entry in content["items"].items():
        preset = _preset(paper, name, content, spellings, lists)
        check_preset(preset)
        found[name] = with_printed_numbers(preset, entry.get("published"))
    return found


def _content(paper: str) -> PaperFile:
    return cast(PaperFile, tomllib.loads((FOLDER / paper / "items.toml").read_text(encoding="utf-8")))


def _preset(
    paper: str,
    name: str,
    content: PaperFile,
    spellings: dict[str, dict[str, Spelling]],
    lists: Mapping[str, list[str | RowEntry]],
) -> Preset:
    """One item of a paper; `lists` are the named lists of rows."""
    about, entry = content["paper"], content["items"][name]
    rows, columns = entry.get("rows", []), entry.get("columns", [])
    measures, tuned = entry.get("measures", []), content.get("tuned", {})
    return Preset(
        paper=paper,
        name=name,
        kind=entry.get("kind", "table"),
        title=entry["title"],
        source=f"{about['authors']}, {about['title']}, {about['venue']}, {name.replace('-', ' ').capitalize()}",
        profile=about["profile"],
        seeds=about.get("seeds", 1),
        rows=tuple(_row(row) for row in (lists[rows] if isinstance(rows, str) else rows)),
        columns=tuple(_column(column, measures, tuned) for column in columns),
        settings=about.get("settings", {}),
        chosen=(*about["chosen"], *entry.get("chosen", [])) if columns else (),
        shares=tuple(entry.get("shares", [])),
        figures=tuple(entry.get("figures", ["curves"] if columns else [])),
        reference=entry.get("reference"),
        statements=tuple(_statement(told) for told in entry.get("statements", [])),
        methods=spellings,
    )


def _spellings(entry: MethodEntry) -> dict[str, Spelling]:
    """Spellings of a method by data, data with a split, or scenario; '' is the one for everything else."""
    if isinstance(entry, str):
        return {"": Spelling(entry)}
    plain = {name: value for name, value in entry.items() if name in ("spelled", "settings")}
    others = {name: cast(SpellingEntry, value) for name, value in entry.items() if name not in plain}
    return {name: Spelling(**one) for name, one in {"": cast(SpellingEntry, plain), **others}.items()}


def _statement(entry: StatementEntry) -> Statement:
    return Statement(
        text=entry["text"],
        source=entry["source"],
        measure=entry["measure"],
        row=entry["row"],
        than=tuple(entry.get("than", [])),
        columns=tuple(entry.get("columns", [])),
        than_column=entry.get("than_column", ""),
        than_measure=entry.get("than_measure", ""),
        slack=entry.get("slack", 0.0),
    )


def _row(entry: str | RowEntry) -> Row:
    return Row(entry) if isinstance(entry, str) else Row(**entry)


def _column(entry: str | ColumnEntry, measures: Sequence[str], tuned: Mapping[str, Settings]) -> Column:
    """A column; it has the item's measures unless it names its own, and its settings come after those tuned."""
    parts: ColumnEntry = {"scenario": entry} if isinstance(entry, str) else entry
    unknown = parts.keys() - ColumnEntry.__annotations__
    assert not unknown, f"a column has no {unknown}"
    targets = [f"rounds_to_{target}" for target in parts.get("targets", [])]
    return Column(
        scenario=parts["scenario"],
        measures=(*parts.get("measures", measures), *targets),
        label=parts.get("label", ""),
        setting=parts.get("setting", ""),
        settings=tuned.get(task_of(parts["scenario"]), {}) | parts.get("settings", {}),
        printed=parts.get("printed", {}),
        read=parts.get("read", {}),
    )


def _check_names(paper: str, content: PaperFile) -> None:
    """Refuse settings or spellings for data with a split, or for a scenario, that no column of the paper is on."""
    columns = [column for item in content["items"].values() for column in item.get("columns", [])]
    scenarios = [column if isinstance(column, str) else column["scenario"] for column in columns]
    known = {name for scenario in scenarios for name in (scenario, task_of(scenario))}
    unused = next((name for name in _named_tasks(content) if name not in known), None)
    if unused is not None:
        raise UserError(f"{paper}: no column is on '{unused}'{nearest(unused, known)}")


def _named_tasks(content: PaperFile) -> list[str]:
    """The data with a split, and the scenarios, under whose names a paper has settings or spellings."""
    methods = [entry for entry in content["methods"].values() if not isinstance(entry, str)]
    return [*content.get("tuned", {}), *(name for entry in methods for name in entry if "/" in name)]
