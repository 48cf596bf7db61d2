"""The numbers that a paper prints, from PAPER/TABLE.csv: one line a number; `note` says what had to be inferred."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

FOLDER: Traversable = files("headway.papers")


class Place(NamedTuple):
    """Where a number stands in its table."""

    setting: str
    data: str
    clients: float | None
    participation: float | None
    partition: str
    method: str
    measure: str


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
    """How many are printed after the point."""
    seeds: int = 1
    """How many seeds a number with ± is the mean of."""

    def __str__(self) -> str:
        if self.value is None:
            return "–"
        spread = "" if self.std is None else f" ± {self.std:.{self.digits}f}"
        return f"{self.value:.{self.digits}f}{'+' if self.bound else ''}{spread}"


_RATIO = re.compile(r"ratio to \w+:? (?P<bound>>?)(?P<value>[\d.]+)x")


def printed_ratio(rounds: Published) -> Published | None:
    """The ratio to another method that the paper prints beside a number of rounds; it is in the note."""
    found = _RATIO.search(rounds.note)
    return None if found is None else Published(float(found["value"]), bound=bool(found["bound"]))


def _place(line: dict[str, str]) -> Place:
    """The place that a line of the CSV file gives; an empty field is None."""
    clients, share = line["clients"], line["participation"]
    return Place(
        setting=line["setting"],
        data=line["dataset"],
        clients=int(clients) if clients else None,
        participation=float(share) if share else None,
        partition=line["partition"],
        method=line["method"],
        measure=line["metric"],
    )


def published(paper: str, item: str) -> dict[Place, Published]:
    """Every number of a table or figure; empty where there is no CSV file for it."""
    file = FOLDER / paper / f"{item}.csv"
    if not file.is_file():
        return {}
    found: dict[Place, Published] = {}
    for line in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
        at = _place(line)
        assert at not in found, f"{paper}/{item}.csv has a number twice: {line}"
        found[at] = Published(
            value=float(line["value"]) if line["value"] else None,
            std=float(line["std"]) if line["std"] else None,
            bound=line["note"].startswith(">"),
            note=line["note"],
            digits=len(line["value"].partition(".")[2]),
        )
    return found
