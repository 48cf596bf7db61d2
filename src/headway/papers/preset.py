"""A preset: one table or figure of a paper as data, read from PAPER/items.toml and checked.

[items.table-1a]   rows (methods), columns (scenarios with what is measured there), `figures` (how it is drawn, curves
                   where nothing is said), and what the text leaves open
[methods]          a row's method with the paper's arguments; another spelling or setting for some data, for a data set
                   with a split, such as "mnist/gradma0.01", or for a column's scenario
[rows]             lists of rows that several items use
[tuned]            settings of every column on a data set with a split, such as "mnist/gradma0.01"
[paper]            source, profile, seeds, settings of every item; `like`: methods and rows of another paper

A row or a column with a `setting` is the line of the published table that has it.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from headway.errors import UserError, nearest
from headway.methods.spelling import method as spelled_method
from headway.papers.measures import named
from headway.papers.published import FOLDER, Place, Published, published
from headway.scenario import Scenario, from_name
from headway.scenario_names import followed

PAPERS = ("fedacg", "fedacg-iclr", "fedagm", "fednag", "gradma")
KINDS = ("table", "figure", "split", "not-built", "no-data")
"""A figure has runs and numbers; a split is a picture of data; not-built: the analysis is missing; no-data: a drawing
or a list of symbols."""


@dataclass(frozen=True)
class Spelling:
    """A method as a paper runs it: its arguments and the settings that were tuned with it."""

    spelled: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    method: str
    setting: str = ""
    spelled: str | None = None
    """In place of the paper's spelling of the method."""

    @property
    def name(self) -> str:
        return f"{self.method} {self.setting}".strip()

    @property
    def answers_to(self) -> set[str]:
        return {self.method, self.name, *filter(None, (self.setting, self.spelled))}

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that the setting gives: β1=0.1 β2=0.5."""
        return {name: float(value) for name, value in re.findall(r"(\w+)=(\d+(?:\.\d+)?)", self.setting)}


@dataclass(frozen=True)
class Column:
    """A scenario, and what is measured in it."""

    scenario: str
    measures: tuple[str, ...]
    label: str = ""
    setting: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    printed: dict[str, Any] = field(default_factory=dict)
    """What the paper's table calls otherwise: the 250 active ones of 500 clients."""
    read: dict[str, str] = field(default_factory=dict)
    """A printed measure, and what it is read as."""

    @property
    def data(self) -> str:
        return self.scenario.split("/")[0]

    @property
    def task(self) -> str:
        """The data with their split."""
        return self.scenario.rpartition("/")[0]

    @property
    def name(self) -> str:
        more = self.label or self.setting
        return f"{self.scenario} {more}" if more else self.scenario

    @property
    def answers_to(self) -> set[str]:
        return {self.data, self.scenario, self.name, *filter(None, (self.label, self.setting))}


@dataclass(frozen=True)
class Preset:
    """A table or a figure."""

    paper: str
    name: str
    kind: str
    title: str
    source: str
    profile: str
    seeds: int
    rows: tuple[Row, ...] = ()
    columns: tuple[Column, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    """Items of the paper whose runs these are."""
    figures: tuple[str, ...] = ()
    """How its runs are drawn, by the names of `FIGURES`."""
    reference: str | None = None
    """The row whose number of rounds the others are printed as multiples of."""
    methods: dict[str, dict[str, Spelling]] = field(default_factory=dict, repr=False)
    """By method, then by a column's scenario, by data with a split, or by data; '' is what holds elsewhere."""
    numbers: dict[tuple[str, str, str], Published] = field(default_factory=dict, repr=False)
    """Published values by (row, column, measure)."""

    @property
    def item(self) -> str:
        return f"{self.paper}/{self.name}"

    def spelling(self, row: Row, column: Column) -> Spelling:
        known = self.methods[row.method]
        names = (column.scenario, column.task, column.data, "")
        chosen = next(known[name] for name in names if name in known)
        return chosen if row.spelled is None else dataclasses.replace(chosen, spelled=row.spelled)

    def scenario(self, row: Row, column: Column) -> Scenario:
        """Name and profile, then the paper's settings, the column's, and those tuned with the method."""
        tuned = self.spelling(row, column).settings
        changes = {**self.settings, **column.settings, **tuned, "seeds": self.seeds}
        return _named(column.scenario, self.profile).changed(**followed(self.profile, changes))

    def under(self, profile: str | None) -> Preset:
        """This item with the settings of another profile."""
        if profile in (None, self.profile):
            return self
        chosen = [line for line in self.chosen if not line.startswith("profile ")]
        return dataclasses.replace(self, profile=profile, chosen=(f"profile {profile}: asked for", *chosen))


_named = cache(from_name)


def _content(paper: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / paper / "items.toml").read_text(encoding="utf-8"))


def _spellings(entry: str | dict[str, Any]) -> dict[str, Spelling]:
    if isinstance(entry, str):
        return {"": Spelling(entry)}
    plain = Spelling(entry["spelled"], entry.get("settings", {}))
    others = {name: value for name, value in entry.items() if name not in ("spelled", "settings")}
    return {"": plain} | {data: Spelling(**value) for data, value in others.items()}


def _row(entry: str | dict[str, Any]) -> Row:
    return Row(entry) if isinstance(entry, str) else Row(**entry)


def _column(entry: str | dict[str, Any], measures: list[str], tuned: dict[str, dict[str, Any]]) -> Column:
    parts: dict[str, Any] = {"scenario": entry} if isinstance(entry, str) else dict(entry)
    targets = [f"rounds_to_{target}" for target in parts.pop("targets", [])]
    settings = tuned.get(parts["scenario"].rpartition("/")[0], {}) | parts.get("settings", {})
    return Column(**parts | {"measures": (*parts.get("measures", measures), *targets), "settings": settings})


def _place(preset: Preset, row: Row, column: Column, measure: str) -> Place:
    """Where the published table has a cell."""
    scenario = preset.scenario(row, column)
    kind, _, value = scenario.partition.partition(":")
    partition = {"natural": "leaf", "iid": "iid"}.get(kind, f"dirichlet-{value}")  # the authors' split is one of these
    clients = column.printed.get("clients", scenario.clients or None)
    share = scenario.participation if scenario.cohort_size is None else scenario.cohort_size / scenario.clients
    share = column.printed.get("participation", share)
    return row.setting or column.setting, column.data, clients, share, partition, row.method, measure


def _with_numbers(preset: Preset, given: Any) -> Preset:
    """The preset with the published values: every number of the paper's table has a cell, every cell a number."""
    cells = [(row, column, name) for column in preset.columns for row in preset.rows for name in column.measures]
    if isinstance(given, dict):
        found = {(row.name, column.name, name): Published(given[row.method], digits=2) for row, column, name in cells}
        return dataclasses.replace(preset, numbers=found)
    printed = published(preset.paper, preset.name)
    if given is None and preset.kind == "table" and not printed:
        raise UserError(f"{preset.item} has no {preset.name}.csv")
    if not printed:
        return preset
    places = {(row.name, column.name, name): _place(preset, row, column, name) for row, column, name in cells}
    missing = next((place for place in places.values() if place not in printed), None)
    if missing is not None:
        raise UserError(f"{preset.item}: the paper prints no number for {missing}")
    unused = next(iter(printed.keys() - places.values()), None)
    if unused is not None or len(set(places.values())) < len(places):
        raise UserError(f"{preset.item}: the paper's number for {unused or 'some cell'} has no cell of its own")
    return dataclasses.replace(preset, numbers={cell: _over(preset.seeds, printed[at]) for cell, at in places.items()})


def _over(seeds: int, number: Published) -> Published:
    """A number with ± is over the seeds that the paper names."""
    return number if number.std is None else dataclasses.replace(number, seeds=seeds)


def _varied(preset: Preset, numbers: int) -> bool:
    """Whether at least two rows differ in so many numbers of the same names."""
    swept = [row.numbers for row in preset.rows if row.numbers]
    return len(swept) > 1 and len(swept[0]) == numbers and all(one.keys() == swept[0].keys() for one in swept)


def _measures(preset: Preset, *beginnings: str) -> bool:
    """Whether every column measures something that begins so, and nothing else."""
    return all(
        column.measures and all(name.startswith(beginnings) for name in column.measures) for column in preset.columns
    )


def _steps(preset: Preset) -> bool:
    return all(preset.scenario(row, column).steps for row in preset.rows for column in preset.columns)


FIGURES: dict[str, tuple[Callable[[Preset], bool], str]] = {
    "curves": (lambda preset: True, ""),
    "iterations": (
        lambda preset: _measures(preset, "global_loss@", "accuracy@") and _steps(preset),
        "a fixed number of steps, and global_loss@R or accuracy@R in every column",
    ),
    "crossings": (
        lambda preset: _measures(preset, "iterations_to_") and _steps(preset),
        "a fixed number of steps, and iterations_to_… in every column",
    ),
    "deviation": (lambda preset: _measures(preset, "sma_variance@"), "sma_variance@W in every column"),
    "sweep": (lambda preset: _varied(preset, 1), "rows whose settings differ in one number"),
    "heat": (lambda preset: _varied(preset, 2), "rows whose settings differ in two numbers"),
    "bars": (lambda preset: True, ""),
}
"""Kinds of pictures, with what an item needs for each."""


def _check_figures(preset: Preset) -> None:
    for name in preset.figures:
        if name not in FIGURES:
            raise UserError(
                f"{preset.item}: there is no figure '{name}'{nearest(name, FIGURES)} ({', '.join(FIGURES)})"
            )
        fits, needed = FIGURES[name]
        if not fits(preset):
            raise UserError(f"{preset.item}: figure '{name}' needs {needed}")


def _check(preset: Preset) -> None:
    """Every method, scenario and measure is one we know."""
    if preset.kind not in KINDS:
        raise UserError(f"{preset.item}: kind is '{preset.kind}'; allowed: {', '.join(KINDS)}")
    if preset.kind in ("table", "figure", "not-built") and not (preset.rows and preset.columns):
        raise UserError(f"{preset.item}: a {preset.kind} needs rows and columns")
    for kind, names in (("row", [row.name for row in preset.rows]), ("column", [one.name for one in preset.columns])):
        if len(set(names)) < len(names):
            raise UserError(f"{preset.item}: two {kind}s have the same name")
    if preset.reference is not None and preset.reference not in {row.name for row in preset.rows}:
        raise UserError(f"{preset.item}: there is no row '{preset.reference}' to be the reference")
    for row in preset.rows:
        if row.method not in preset.methods:
            raise UserError(f"{preset.item}: there is no method '{row.method}'{nearest(row.method, preset.methods)}")
    for column in preset.columns:
        for name in (*column.measures, *column.read.values()):
            named(name)
        for row in preset.rows:
            spelled_method(preset.spelling(row, column).spelled)
            preset.scenario(row, column)
    _check_figures(preset)


def _check_tuned(paper: str, content: dict[str, Any]) -> None:
    """Every data set with a split, and every scenario, that has settings or a spelling is some item's."""
    entries = [column for item in content["items"].values() for column in item.get("columns", [])]
    columns = [_column(entry, [], {}) for entry in entries]
    known = {name for column in columns for name in (column.task, column.scenario)}
    methods = [entry for entry in content["methods"].values() if isinstance(entry, dict)]
    names = [*content.get("tuned", {}), *(name for entry in methods for name in entry if "/" in name)]
    unused = next((name for name in names if name not in known), None)
    if unused is not None:
        raise UserError(f"{paper}: no column is on '{unused}'{nearest(unused, known)}")


@cache
def presets(paper: str) -> dict[str, Preset]:
    """Every item of a paper, by name."""
    content = _content(paper)
    about = content["paper"]
    base = _content(about["like"]) if "like" in about else {"methods": {}, "rows": {}}
    methods = {name: _spellings(entry) for name, entry in {**base["methods"], **content["methods"]}.items()}
    lists = {**base["rows"], **content["rows"]}
    tuned = content.get("tuned", {})
    _check_tuned(paper, content)
    found = {}
    for name, entry in content["items"].items():
        rows = entry.get("rows", [])
        preset = Preset(
            paper=paper,
            name=name,
            kind=entry.get("kind", "table"),
            title=entry["title"],
            source=f"{about['authors']}, {about['title']}, {about['venue']}, {name.replace('-', ' ').capitalize()}",
            profile=about["profile"],
            seeds=about.get("seeds", 1),
            rows=tuple(_row(row) for row in (lists[rows] if isinstance(rows, str) else rows)),
            columns=tuple(_column(column, entry.get("measures", []), tuned) for column in entry.get("columns", [])),
            settings=about.get("settings", {}),
            chosen=(*about["chosen"], *entry.get("chosen", [])) if entry.get("columns") else (),
            shares=tuple(entry.get("shares", [])),
            figures=tuple(entry.get("figures", ["curves"] if entry.get("columns") else [])),
            reference=entry.get("reference"),
            methods=methods,
        )
        _check(preset)
        found[name] = _with_numbers(preset, entry.get("published"))
    return found


def every_preset() -> list[Preset]:
    return [preset for paper in PAPERS for preset in presets(paper).values()]


def preset(item: str) -> Preset:
    """The preset of `fedacg/table-1a`."""
    paper, _, name = item.partition("/")
    if paper not in PAPERS:
        raise UserError(f"there is no paper '{paper}'{nearest(paper, PAPERS)} (known: {', '.join(PAPERS)})")
    known = presets(paper)
    if name not in known:
        raise UserError(f"{paper} has no item '{name}'{nearest(name, known)} (headway reproduce --list names all)")
    return known[name]
