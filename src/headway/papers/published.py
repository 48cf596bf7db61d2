"""The numbers a paper prints: PAPER/TABLE.csv, one line a number, with what had to be inferred in `note`."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

FOLDER: Traversable = files("headway.papers")

Place = tuple[str, str, int | None, float | None, str, str, str]
"""(setting, data, clients, participation, partition, method, measure): where a number stands in its table."""


@dataclass(frozen=True)
class Published:
    """A printed number."""

    value: float | None
    """None where the paper prints "-"."""
    std: float | None = None
    bound: bool = False
    """"1000+": the value is a lower bound."""
    note: str = ""
    digits: int = 0
    """After the point, as printed."""
    seeds: int = 1
    """That a number with ± is a mean of."""

    def __str__(self) -> str:
        if self.value is None:
            return "–"
        spread = "" if self.std is None else f" ± {self.std:.{self.digits}f}"
        return f"{self.value:.{self.digits}f}{'+' if self.bound else ''}{spread}"


_RATIO = re.compile(r"ratio to \w+:? (?P<bound>>?)(?P<value>[\d.]+)x")


def ratio(rounds: Published) -> Published | None:
    """The ratio that is printed beside a number of rounds, as its note has it."""
    found = _RATIO.search(rounds.note)
    return None if found is None else Published(float(found["value"]), bound=bool(found["bound"]))


def _number(text: str, kind: type[Any]) -> Any:
    return kind(text) if text else None


def place(line: dict[str, str]) -> Place:
    return (
        line["setting"],
        line["dataset"],
        _number(line["clients"], int),
        _number(line["participation"], float),
        line["partition"],
        line["method"],
        line["metric"],
    )


def published(paper: str, item: str) -> dict[Place, Published]:
    """Every number of a table; nothing where the paper has no numbers."""
    file = FOLDER / paper / f"{item}.csv"
    if not file.is_file():
        return {}
    found: dict[Place, Published] = {}
    for line in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
        note = line["note"]
        digits = len(line["value"].partition(".")[2])
        value = Published(
            _number(line["value"], float), _number(line["std"], float), note.startswith(">"), note, digits
        )
        assert place(line) not in found, f"{paper}/{item}.csv has a number twice: {line}"
        found[place(line)] = value
    return found
