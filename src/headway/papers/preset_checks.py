"""Checks a preset that was read from a paper's items.toml: its names are known, and its figures can be drawn."""

from __future__ import annotations

from collections.abc import Callable

from headway.errors import UserError, nearest
from headway.methods.spelling import method as spelled_method
from headway.papers.measurements import parse_measure
from headway.papers.preset import KINDS, Column, Preset


def _varies(preset: Preset, numbers: int) -> bool:
    """Whether two rows or more have this many numbers in their settings, under the same names."""
    swept = [row.numbers for row in preset.rows if row.numbers]
    return len(swept) > 1 and len(swept[0]) == numbers and all(one.keys() == swept[0].keys() for one in swept)


def _measures(preset: Preset, *beginnings: str) -> bool:
    """Whether every column has measures, and the names of all begin in one of these ways."""
    return all(
        column.measures and all(name.startswith(beginnings) for name in column.measures) for column in preset.columns
    )


def _has_steps(preset: Preset) -> bool:
    """Whether every run has a fixed number of local steps in a round."""
    return all(preset.scenario(row, column).steps for row in preset.rows for column in preset.columns)


def _keeps(preset: Preset) -> bool:
    """Whether every run keeps states from which its local models can be trained again."""
    return all(preset.scenario(row, column).keep_checkpoints for row in preset.rows for column in preset.columns)


FIGURES: dict[str, tuple[Callable[[Preset], bool], str]] = {
    "curves": (lambda preset: True, ""),
    "iterations": (
        lambda preset: _measures(preset, "global_loss@", "accuracy@") and _has_steps(preset),
        "a fixed number of steps, and global_loss@R or accuracy@R in every column",
    ),
    "tokens": (
        lambda preset: _measures(preset, "bits@", "received_bits@", "megabytes@") and _has_steps(preset),
        "a fixed number of steps, and bits@R, received_bits@R or megabytes@R in every column",
    ),
    "crossings": (
        lambda preset: _measures(preset, "iterations_to_") and _has_steps(preset),
        "a fixed number of steps, and iterations_to_… in every column",
    ),
    "deviation": (lambda preset: _measures(preset, "sma_variance@"), "sma_variance@W in every column"),
    "sweep": (lambda preset: _varies(preset, 1), "rows whose settings differ in one number"),
    "heat": (lambda preset: _varies(preset, 2), "rows whose settings differ in two numbers"),
    "bars": (lambda preset: True, ""),
    "local-models": (lambda preset: _keeps(preset), "keep_checkpoints in every column"),
}
"""Each kind of figure, with whether an item can be drawn so, and what it needs for that."""


def _check_figures(preset: Preset) -> None:
    for name in preset.figures:
        if name not in FIGURES:
            raise UserError(
                f"{preset.item}: there is no figure '{name}'{nearest(name, FIGURES)} ({', '.join(FIGURES)})"
            )
        fits, needed = FIGURES[name]
        if not fits(preset):
            raise UserError(f"{preset.item}: figure '{name}' needs {needed}")


def _check_parts(preset: Preset) -> None:
    """Refuse an item that is to be run and lacks rows or columns, or one that has a name twice."""
    if preset.kind in ("table", "figure") and not (preset.rows and preset.columns):
        raise UserError(f"{preset.item}: a {preset.kind} needs rows and columns")
    rows = [row.name for row in preset.rows]
    for kind, names in (("row", rows), ("column", [column.name for column in preset.columns])):
        if len(set(names)) < len(names):
            raise UserError(f"{preset.item}: two {kind}s have the same name")
    if preset.reference is not None and preset.reference not in rows:
        raise UserError(f"{preset.item}: there is no row '{preset.reference}' to be the reference")


def _check_cells(preset: Preset) -> None:
    """Refuse measures, methods and scenarios that cannot be read."""
    for row in preset.rows:
        if row.method not in preset.methods:
            raise UserError(f"{preset.item}: there is no method '{row.method}'{nearest(row.method, preset.methods)}")
    for column in preset.columns:
        for name in (*column.measures, *column.read.values()):
            parse_measure(name)
        for row in preset.rows:
            spelled, _ = preset.run_of(row, column)
            spelled_method(spelled)


def _kinds(column: Column) -> set[str]:
    """The measures of a column without their rounds."""
    return {name.partition("@")[0] for name in column.measures}


def _check_statements(preset: Preset) -> None:
    """Refuse a statement of rows, columns or measures that the item does not have."""
    rows = {row.name for row in preset.rows}
    columns = {column.label or column.name: column for column in preset.columns}
    for told in preset.statements:
        named = ({told.row, *told.than} - rows) | ({*told.columns, *filter(None, [told.than_column])} - columns.keys())
        if named:
            raise UserError(f"{preset.item}: a statement names '{min(named)}', which is no row or column of it")
        for name in {*(told.columns or columns), *filter(None, [told.than_column])}:
            unread = {told.measure, *filter(None, [told.than_measure])} - _kinds(columns[name])
            if unread:
                raise UserError(f"{preset.item}: a statement reads '{min(unread)}', which {name} does not measure")
        if not (told.than or told.than_column or told.than_measure):
            raise UserError(f"{preset.item}: a statement compares '{told.row}' with nothing; say what with than")


def check_preset(preset: Preset) -> None:
    """Refuse a preset with an unknown method, scenario, measure or kind of figure, or with a name twice."""
    if preset.kind not in KINDS:
        raise UserError(f"{preset.item}: kind is '{preset.kind}'; allowed: {', '.join(KINDS)}")
    _check_parts(preset)
    _check_cells(preset)
    _check_figures(preset)
    _check_statements(preset)
