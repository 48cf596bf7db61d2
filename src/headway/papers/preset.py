"""A preset: one table or figure of a paper as data, with its rows (methods), columns (scenarios) and printed numbers.

`items` reads presets from the papers' files, `preset_checks` refuses one that does not fit, `plan` makes runs of it.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from functools import cache

from headway.papers.published import Published
from headway.scenario import Scenario, from_name
from headway.scenario_names import followed

KINDS = ("table", "figure", "split", "no-data")
"""A figure has runs and numbers; a split is a picture of data; no-data: a drawing or a list of symbols."""

Settings = dict[str, str | int | float]
"""Settings of a scenario by name, in place of the defaults."""


@cache
def _named(name: str, profile: str) -> Scenario:
    return from_name(name, {"profile": profile})


@dataclass(frozen=True)
class Spelling:
    """A method as a paper runs it: its arguments and the settings that were tuned with it."""

    spelled: str
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A method and, where the table has several lines of it, the setting that distinguishes this one."""

    method: str
    setting: str = ""
    spelled: str | None = None
    """The method with its arguments, in place of the paper's usual spelling of it."""

    @property
    def name(self) -> str:
        return f"{self.method} {self.setting}".strip()

    @property
    def answers_to(self) -> set[str]:
        """The names by which `--rows` can choose it."""
        return {self.method, self.name, *filter(None, (self.setting, self.spelled))}

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers in the setting: `β1=0.1 β2=0.5` gives {β1: 0.1, β2: 0.5}."""
        return {name: float(value) for name, value in re.findall(r"(\w+)=(\d+(?:\.\d+)?)", self.setting)}


def task_of(scenario: str) -> str:
    """The data with their split of a scenario's name: of `mnist/dir0.3/100x5%`, `mnist/dir0.3`."""
    return scenario.rpartition("/")[0]


@dataclass(frozen=True)
class Column:
    """A scenario and its measures."""

    scenario: str
    measures: tuple[str, ...]
    label: str = ""
    setting: str = ""
    settings: Settings = field(default_factory=dict)
    printed: dict[str, float] = field(default_factory=dict)
    """Settings that the paper's table prints with another value: 250 clients where 250 of the 500 are active."""
    read: dict[str, str] = field(default_factory=dict)
    """A measure as the paper prints it, and the one that is read from our runs for it."""

    @property
    def data(self) -> str:
        return self.scenario.split("/")[0]

    @property
    def task(self) -> str:
        """The data with their split, such as `mnist/gradma0.01`."""
        return task_of(self.scenario)

    @property
    def name(self) -> str:
        more = self.label or self.setting
        return f"{self.scenario} {more}" if more else self.scenario

    @property
    def answers_to(self) -> set[str]:
        """The names by which `--data` can choose it."""
        return {self.data, self.scenario, self.name, *filter(None, (self.label, self.setting))}


@dataclass(frozen=True)
class Statement:
    """What a paper says of methods: in each of `columns`, `row` is better than each of `than` by a measure.

    Where no columns are named it is of all; where no rows, `row` is compared with itself, in `than_column` or by
    `than_measure`.
    """

    text: str
    source: str
    measure: str
    """The measure's name without its round, such as `bits`."""
    row: str
    than: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """Columns by their label, or by their name where they have none."""
    than_column: str = ""
    than_measure: str = ""
    """Another measure of the same kind, such as `received_bits`, that the other side is judged by."""
    slack: float = 0.0
    """By which share it may be worse and still be as good."""


@dataclass(frozen=True)
class Preset:
    """A table or a figure of a paper."""

    paper: str
    name: str
    kind: str
    title: str
    source: str
    profile: str
    seeds: int
    rows: tuple[Row, ...] = ()
    columns: tuple[Column, ...] = ()
    settings: Settings = field(default_factory=dict)
    chosen: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    """Items of the same paper that have the same runs."""
    figures: tuple[str, ...] = ()
    """The kinds of figures in which its runs are drawn; `preset_checks.FIGURES` names all."""
    reference: str | None = None
    """The row to whose number of rounds the others are compared, as multiples."""
    statements: tuple[Statement, ...] = ()
    """What papers say of these methods, which the runs show or not."""
    methods: dict[str, dict[str, Spelling]] = field(default_factory=dict, repr=False)
    """Spellings by method; then by a column's scenario, by data with a split, or by data. '' is all else."""
    numbers: dict[tuple[str, str, str], Published] = field(default_factory=dict, repr=False)
    """Published values by (row, column, measure)."""

    @property
    def item(self) -> str:
        return f"{self.paper}/{self.name}"

    def spelling(self, row: Row, column: Column) -> Spelling:
        """How a row's method is run in a column."""
        known = self.methods[row.method]
        names = (column.scenario, column.task, column.data, "")
        chosen = next(known[name] for name in names if name in known)
        return chosen if row.spelled is None else dataclasses.replace(chosen, spelled=row.spelled)

    def scenario(self, row: Row, column: Column) -> Scenario:
        """The scenario of a cell.

        Its name and the profile come first, then the paper's settings, the column's, and those tuned with the method;
        later ones win.
        """
        tuned = self.spelling(row, column).settings
        changes = {**self.settings, **column.settings, **tuned, "seeds": self.seeds}
        return _named(column.scenario, self.profile).with_settings(followed(self.profile, changes))

    def run_of(self, row: Row, column: Column) -> tuple[str, Scenario]:
        """The method as it is spelled and the scenario of a cell: all that its runs depend on."""
        return self.spelling(row, column).spelled, self.scenario(row, column)

    def under(self, profile: str | None) -> Preset:
        """This item with the settings of another profile; of the item's where none is given."""
        if profile in (None, self.profile):
            return self
        chosen = [line for line in self.chosen if not line.startswith("profile ")]
        return dataclasses.replace(self, profile=profile, chosen=(f"profile {profile}: asked for", *chosen))
