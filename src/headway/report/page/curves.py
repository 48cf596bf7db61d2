"""The curves of a study as plain data for the page's script: means and deviations over seeds, rounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from headway.measure.curves import common
from headway.measure.headline import LAST
from headway.records import RoundRecord, value_of
from headway.runs.result import Result
from headway.runs.study import Study


class Grid(TypedDict):
    """Where points of a curve are: their rounds, and the megabytes sent up to these."""

    round: list[int]
    mb: list[float]


class Curve(TypedDict):
    """Means and deviations over seeds at the points of a grid, which is named by its place in the list of grids."""

    grid: int
    mean: list[float | None]
    std: list[float | None] | None


class MethodCurves(TypedDict):
    """The curves of one method, by what they measure."""

    name: str
    note: str
    curves: dict[str, Curve]


class Measure(TypedDict):
    """What can be drawn: its names, and how its numbers are written."""

    key: str
    short: str
    label: str
    digits: int
    share: bool
    """Whether it is a percentage."""


class Curves(TypedDict):
    """All that page.js reads."""

    target: float | None
    measures: list[Measure]
    grids: list[Grid]
    methods: list[MethodCurves]


POINTS = 1000
"""Of more evaluations than this every second, third, … is drawn, and the last."""

_MEASURES = (
    ("accuracy_smoothed", "smoothed accuracy", "{} accuracy, smoothed, %", 2),
    ("accuracy", "raw accuracy", "{} accuracy, %", 2),
    ("loss", "{} loss", "{} loss", 4),
    ("global_loss", "loss on all clients' data", "loss on all clients' data", 4),
)


def _measures(study: Study) -> tuple[tuple[str, str, str, int], ...]:
    """Of short runs the raw accuracy comes first: the page draws the first one until another is chosen."""
    smoothed, raw, *losses = _MEASURES
    return (raw, smoothed, *losses) if study.headline is LAST else _MEASURES


def _share(key: str) -> bool:
    return key.startswith("accuracy")


def _rounded(values: np.ndarray, key: str) -> list[float | None]:
    """Accuracies in hundredths of a percent, all else to five digits; JSON has no infinity."""
    return [
        None if not math.isfinite(value) else round(100 * value, 2) if _share(key) else float(f"{value:.5g}")
        for value in values.tolist()
    ]


def stride(evaluations: int) -> int:
    return max(math.ceil(evaluations / POINTS), 1)


def _thinned(points: list[list[RoundRecord]]) -> list[list[RoundRecord]]:
    step = stride(len(points))
    return points[::step] + (points[-1:] if (len(points) - 1) % step else [])


def _megabytes(records: Sequence[RoundRecord]) -> float:
    sent = sum(record["bytes_down_total"] + record["bytes_up_total"] for record in records) / len(records)
    return float(f"{sent / 1e6:.6g}")


def _curve(seeds: Sequence[Result], key: str, grids: list[Grid]) -> Curve | None:
    points = _thinned(common([one.records for one in seeds], key))
    if not points:
        return None
    grid: Grid = {
        "round": [records[0]["round"] for records in points],
        "mb": [_megabytes(records) for records in points],
    }
    if grid not in grids:
        grids.append(grid)
    values = np.array([[value_of(record, key) for record in records] for records in points], dtype=float)
    return {
        "grid": grids.index(grid),
        "mean": _rounded(values.mean(1), key),
        "std": _rounded(values.std(1, ddof=1), key) if len(seeds) > 1 else None,
    }


def curves(study: Study, notes: dict[str, str]) -> Curves:
    """What page.js reads: the measures there are, the places they are drawn at, and each method's curves."""
    scenario = next(iter(study.runs.values()))[0].scenario
    judged = "test" if scenario.validation is None else "validation"
    grids: list[Grid] = []
    methods: list[MethodCurves] = [
        {
            "name": name,
            "note": notes.get(name, ""),
            "curves": {key: one for key, *_ in _MEASURES if (one := _curve(seeds, key, grids)) is not None},
        }
        for name, seeds in study.runs.items()
    ]
    there = {key for method in methods for key in method["curves"]}
    return {
        "target": None if study.target is None else 100 * study.target,
        "measures": [
            {
                "key": key,
                "short": short.format(judged),
                "label": label.format(judged),
                "digits": digits,
                "share": _share(key),
            }
            for key, short, label, digits in _measures(study)
            if key in there
        ],
        "grids": grids,
        "methods": methods,
    }
