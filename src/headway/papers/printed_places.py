"""Finds the printed number of each cell of a preset in the paper's CSV file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from headway.errors import UserError
from headway.papers.preset import Column, Preset, Row
from headway.papers.published import Place, Published, published


def _place(preset: Preset, row: Row, column: Column, measure: str) -> Place:
    """Where the published table has the number of a cell."""
    scenario = preset.scenario(row, column)
    kind, _, value = scenario.partition.partition(":")
    partition = {"natural": "leaf", "iid": "iid"}.get(kind, f"dirichlet-{value}")  # the authors' split is one of these
    clients = column.printed.get("clients", scenario.clients or None)
    share = scenario.participation if scenario.cohort_size is None else scenario.cohort_size / scenario.clients
    share = column.printed.get("participation", share)
    return Place(row.setting or column.setting, column.data, clients, share, partition, row.method, measure)


def _cells(preset: Preset) -> dict[tuple[str, str, str], tuple[Row, Column, str]]:
    """Row, column and measure of every number, by their names."""
    cells = ((row, column, name) for column in preset.columns for row in preset.rows for name in column.measures)
    return {(row.name, column.name, name): (row, column, name) for row, column, name in cells}


def with_printed_numbers(preset: Preset, given: Literal["none"] | dict[str, float] | None) -> Preset:
    """The preset with the paper's numbers: those of its CSV file, or those `given` by method in items.toml.

    Every number of the file must have a cell, and every cell a number. A table without a file must say so by `none`.
    """
    if isinstance(given, dict):
        found = {cell: Published(given[row.method], digits=2) for cell, (row, _, _) in _cells(preset).items()}
        return dataclasses.replace(preset, numbers=found)
    printed = published(preset.paper, preset.name)
    if given is None and preset.kind == "table" and not printed:
        raise UserError(f"{preset.item} has no {preset.name}.csv")
    if not printed:
        return preset
    places = {cell: _place(preset, *parts) for cell, parts in _cells(preset).items()}
    _check_one_to_one(preset.item, list(places.values()), printed)
    return dataclasses.replace(
        preset, numbers={cell: _with_seeds(preset.seeds, printed[at]) for cell, at in places.items()}
    )


def _check_one_to_one(item: str, places: list[Place], printed: Mapping[Place, Published]) -> None:
    """Refuse an item where a cell has no printed number, or a printed number does not have a cell to itself."""
    missing = next((place for place in places if place not in printed), None)
    if missing is not None:
        raise UserError(f"{item}: the paper prints no number for {tuple(missing)}")
    unused = next(iter(printed.keys() - places), None)
    if unused is not None or len(set(places)) < len(places):
        raise UserError(
            f"{item}: the paper's number for {tuple(unused) if unused else 'some cell'} has no cell to itself"
        )


def _with_seeds(seeds: int, number: Published) -> Published:
    """The number with the paper's count of seeds, where it is a mean ± deviation."""
    return number if number.std is None else dataclasses.replace(number, seeds=seeds)
