"""What a preset runs: its cells, and the runs that fill them, each once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from headway.errors import UserError, nearest
from headway.papers.measurements import at_scale
from headway.papers.preset import Column, Preset, Row
from headway.runs.series import seeded
from headway.scenario import Scenario

SCALES = ("full", "tiny")
_TINY_ROUNDS = 60
_TINY_LSTM = {"rounds": 20, "batch_size": 4, "eval_samples": 200}
"""At most these, where no small model takes the place of a slow one."""
_TINY_TEXT = {"batch_size": 2, "eval_samples": 50}
_TINY_STEPS = 5
"""Of a GPT: the local steps of a client in the whole run."""
_TINY_MODELS = dict.fromkeys(
    ("resnet18", "resnet18-imagenet", "resnet20", "vgg11", "gradma-lenet", "fednag-cnn", "femnist-cnn", "celeba-cnn"),
    "cnn",
)
TINY = (
    f"scaled down (tiny): small model, at most {_TINY_ROUNDS} rounds, 2 batches of at most 20 samples an epoch, "
    "at most 1,000 test samples, no augmentation (a GPT: 5 steps of 2 samples); "
    "not comparable with the published numbers"
)


@dataclass(frozen=True)
class Run:
    """One training; its scenario has one seed."""

    method: str
    scenario: Scenario


@dataclass(frozen=True)
class Cell:
    """Where a row meets a column: the runs, one for each seed, that all measures there are read from."""

    row: Row
    column: Column
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Plan:
    """The cells of a preset that are run, and at which scale."""

    preset: Preset
    cells: tuple[Cell, ...]
    scale: str

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        return tuple(dict.fromkeys(run for cell in self.cells for run in cell.runs))

    def only(self, done: Collection[Run]) -> Plan:
        """The rows and columns that have some of these runs."""
        there = [cell for cell in self.cells if any(run in done for run in cell.runs)]
        rows, columns = {cell.row for cell in there}, {cell.column.name for cell in there}
        kept = (cell for cell in self.cells if cell.row in rows and cell.column.name in columns)
        return dataclasses.replace(self, cells=tuple(kept))

    @property
    def rows(self) -> list[Row]:
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[Column]:
        return list({cell.column.name: cell.column for cell in self.cells}.values())

    @property
    def column_measures(self) -> list[tuple[Column, str]]:
        """Every column with each of its measures."""
        return [(column, measure) for column in self.columns for measure in column.measures]

    @property
    def measures(self) -> list[str]:
        """The measures of all columns, each once."""
        return list(dict.fromkeys(measure for _, measure in self.column_measures))

    def read_as(self, cell: Cell, measure: str) -> str:
        """What is measured for a printed measure: a scaled run is read at the same share of its rounds."""
        name = cell.column.read.get(measure, measure)
        if self.scale == "full":
            return name
        whole = self.preset.scenario(cell.row, cell.column).rounds
        return at_scale(name, cell.runs[0].scenario.rounds / whole)


def tiny(scenario: Scenario) -> Scenario:
    """The same split, cohort and method with a small model, little data, few rounds and one seed."""
    if scenario.model.startswith("gpt"):
        return _tiny_text(scenario)
    limits = {"rounds": _TINY_ROUNDS, "batch_size": 20, "eval_samples": 1000}
    limits |= _TINY_LSTM if scenario.model == "shakespeare-lstm" else {}
    return scenario.changed(
        model=_TINY_MODELS.get(scenario.model, scenario.model),
        rounds=min(scenario.rounds, limits["rounds"]),
        steps=scenario.steps or 2 * scenario.epochs,
        batch_size=min(scenario.batch_size, limits["batch_size"]),
        eval_samples=limits["eval_samples"],
        eval_every=1,
        checkpoint_every=1,
        augmentation="none",
        seeds=1,
    )


def _tiny_text(scenario: Scenario) -> Scenario:
    """The same split, cohort and method with the small GPT, few steps, each of few samples, and one seed.

    Rounds of 10, 50 and 250 steps have 1, 2 and 5, so that what a table varies is varied still.
    """
    steps = max(round(math.sqrt((scenario.steps or 1) / 10)), 1)
    return scenario.changed(
        model="gpt-char-small",
        steps=steps,
        rounds=min(scenario.rounds, max(_TINY_STEPS // steps, 1)),
        batch_size=min(scenario.batch_size, _TINY_TEXT["batch_size"]),
        eval_samples=_TINY_TEXT["eval_samples"],
        eval_every=1,
        checkpoint_every=1,
        schedule="constant",
        rate_decay=1.0,
        seeds=1,
    )


_Part = TypeVar("_Part", Row, Column)


def _picked(kind: str, requested: Sequence[str] | None, known: Sequence[_Part]) -> list[_Part]:
    """The rows or columns with one of these names, or with all where none are given, in the paper's order."""
    if requested is None:
        return list(known)
    names = sorted({name for one in known for name in one.answers_to})
    for name in requested:
        if name not in names:
            raise UserError(f"there is no {kind} '{name}'{nearest(name, names)} (known: {', '.join(names)})")
    return [one for one in known if one.answers_to & set(requested)]


def plan(
    preset: Preset,
    *,
    rows: Sequence[str] | None = None,
    data: Sequence[str] | None = None,
    scale: str = "full",
    profile: str | None = None,
    **settings: object,
) -> Plan:
    """The cells of these rows and columns, or of all; `settings` (rounds, seeds, device …) come last."""
    if scale not in SCALES:
        raise UserError(f"scale is '{scale}'; allowed: {', '.join(SCALES)}{nearest(scale, SCALES)}")
    preset, cells = preset.under(profile), []
    for column in _picked("column", data, preset.columns):
        for row in _picked("row", rows, preset.rows):
            scenario = preset.scenario(row, column)
            spelled = preset.spelling(row, column).spelled
            scenario = (tiny(scenario) if scale == "tiny" else scenario).with_settings({**settings, "method": spelled})
            cells.append(Cell(row, column, tuple(Run(spelled, one) for one in seeded(scenario))))
    return Plan(preset, tuple(cells), scale)
