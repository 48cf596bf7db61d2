"""An analysis in a file, with a checksum, and read again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np

from headway.analysis.inside import Analysis
from headway.analysis.surface import Path as Way
from headway.analysis.surface import Surface
from headway.errors import DamagedRun
from headway.runs.files import ensure_folder, read_checked, write_checked

FOLDER = "analysis"
NAME = "analysis.json"


def place_of(run: Path, round: int) -> Path:
    """Where the analysis of a run's round is."""
    return run / FOLDER / f"round-{round:07d}"


def write(found: Analysis, folder: Path) -> None:
    """Write an analysis into a folder."""
    ensure_folder(folder)
    write_checked(folder / NAME, {name: _plain(value) for name, value in vars(found).items()})


def _plain(value: object) -> object:
    """Arrays as lists, and numbers that are not finite as None."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Surface | Way):
        return _plain(vars(value))
    return value


def of_run(run: Path) -> list[Analysis]:
    """The analyses in a run's folder, in the order of their rounds."""
    place = run / FOLDER
    files = sorted(place.glob(f"round-*/{NAME}")) if place.is_dir() else []
    return [read(file) for file in files]


def read(file: Path) -> Analysis:
    """An analysis from its file."""
    content = read_checked(file)
    try:
        return _analysis(content)
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise DamagedRun(f"{file} is damaged: it does not hold an analysis ({fault})") from None


def _analysis(content: Mapping[str, object]) -> Analysis:
    def arrays(name: str) -> dict[str, np.ndarray]:
        return {key: _array(value) for key, value in cast(dict[str, object], content[name]).items()}

    def table(name: str) -> np.ndarray | None:
        return None if content[name] is None else _array(content[name])

    def words(name: str) -> list[str]:
        return [str(one) for one in cast(list[object], content[name])]

    def number(name: str) -> int:
        return int(cast(int, content[name]))

    ways = cast(dict[str, dict[str, object]], content["paths"])
    plane = cast(dict[str, object] | None, content["surface"])
    eigenvalues = cast(dict[str, list[float]], content["eigenvalues"])
    losses = cast(dict[str, float | None], content["losses"])
    return Analysis(
        method=str(content["method"]),
        round=number("round"),
        clients=tuple(int(one) for one in cast(list[int], content["clients"])),
        cohort=number("cohort"),
        samples=number("samples"),
        similarity=arrays("similarity"),
        compared=tuple(words("compared")),
        divergence=arrays("divergence"),
        distances=_array(content["distances"]),
        points=tuple(words("points")),
        losses={name: math.nan if value is None else float(value) for name, value in losses.items()},
        surface=None if plane is None else _surface(plane),
        paths={
            name: Way(_array(way["distance"]), _array(way["loss"]), float(cast(float, way["received"])))
            for name, way in ways.items()
        },
        eigenvalues={name: [float(one) for one in values] for name, values in eigenvalues.items()},
        by_class=table("by_class"),
        by_client=table("by_client"),
        notes=words("notes"),
    )


def _array(value: object) -> np.ndarray:
    return np.array(value, dtype=float)


def _surface(plane: Mapping[str, object]) -> Surface:
    points = cast(dict[str, list[float]], plane["points"])
    marked = {name: (*_array(one)[:4],) for name, one in points.items()}
    return Surface(
        _array(plane["a"]),
        _array(plane["b"]),
        _array(plane["loss"]),
        {name: (float(a), float(b), float(away), float(loss)) for name, (a, b, away, loss) in marked.items()},
    )
