"""The numbers of an analysis as CSV files, one row a number."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from headway.analysis.inside import Analysis

Row = Sequence[object]


Numbers = dict[str, tuple[Row, Iterable[Row]]]
"""Heading and rows of each kind of number, by its name."""


def save_all(found: Analysis, folder: Path) -> list[Path]:
    """A file for each kind of number that was measured."""
    return [_write(folder / f"{name}.csv", head, rows) for name, (head, rows) in numbers(found).items()]


def of_pictures(found: Analysis) -> dict[str, tuple[list[str], list[list[object]]]]:
    """The numbers behind each picture of an analysis, by the picture's name."""
    made = {_PICTURES.get(name, name): written for name, written in numbers(found).items()}
    return {
        name: ([str(text) for text in head], [[_text(cell) for cell in row] for row in rows])
        for name, (head, rows) in made.items()
    }


_PICTURES = {"accuracy_by_class": "classes", "accuracy_by_client": "clients"}
"""Names of pictures that are not those of their numbers."""


def numbers(found: Analysis) -> Numbers:
    """Every kind of number that was measured."""
    names, points = found.names, found.points
    sheets: Numbers = {
        "summary": (("number", "value"), found.summary().items()),
        "similarity": (("layer", "model", "other", "cka"), _matrices(found)),
        "divergence": (
            ("parameter", "model", "divergence"),
            ((layer, *row) for layer, values in found.divergence.items() for row in zip(names, values, strict=True)),
        ),
        "distances": (
            ("model", "other", "distance"),
            ((points[i], points[j], value) for (i, j), value in np.ndenumerate(found.distances)),
        ),
        "path": (
            ("model", "distance", "loss"),
            ((name, *row) for name, way in found.paths.items() for row in zip(way.distance, way.loss, strict=True)),
        ),
    }
    if found.surface is not None:
        plane = found.surface
        sheets["surface"] = (
            ("a", "b", "loss"),
            ((plane.a[j], plane.b[i], value) for (i, j), value in np.ndenumerate(plane.loss)),
        )
        sheets["points"] = (
            ("model", "a", "b", "distance", "loss"),
            ((name, *values) for name, values in plane.points.items()),
        )
    if found.eigenvalues:
        rows = ((name, at, value) for name, values in found.eigenvalues.items() for at, value in enumerate(values, 1))
        sheets["eigenvalues"] = ("model", "number", "eigenvalue"), rows
    for what, table, columns in (
        ("class", found.by_class, range(0 if found.by_class is None else found.by_class.shape[1])),
        ("client", found.by_client, found.clients),
    ):
        if table is not None:
            cells = [(points[i], columns[j], value) for (i, j), value in np.ndenumerate(table)]
            sheets[f"accuracy_by_{what}"] = ("model", what, "accuracy"), cells
    return sheets


def _matrices(found: Analysis) -> Iterable[Row]:
    for layer, matrix in found.similarity.items():
        for (i, j), value in np.ndenumerate(matrix):
            yield layer, found.compared[i], found.compared[j], value


def _write(path: Path, head: Row, rows: Iterable[Row]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows([_text(cell) for cell in row] for row in rows)
    return path


def _text(cell: object) -> object:
    """Numbers to seven digits; empty where there is none."""
    if isinstance(cell, float | np.floating):
        return f"{float(cell):.7g}" if np.isfinite(cell) else ""
    return cell
