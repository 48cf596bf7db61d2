"""Clients that fail or diverge in a round: which they are, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headway.errors import ClientError, Diverged
from headway.records import FailedClient, RoundRecord


def diverged(reports: np.ndarray, clients: Sequence[int], round: int, advice: str) -> dict[int, Diverged]:
    """Faults of clients whose loss or update is not a finite number, by their row in `reports` (see `aggregate`)."""
    found: dict[int, Diverged] = {}
    for at in np.flatnonzero(~np.isfinite(reports[:, :2]).all(1)).tolist():
        what = "update" if math.isfinite(reports[at, 0]) else "loss"
        found[at] = Diverged(f"round {round}, client {clients[at]}: the {what} is not a finite number; {advice}")
    return found


def in_words(record: RoundRecord) -> str:
    """A round's failures as its record has them, in words."""
    count, first = record["failed"], record["failures"][0]["cause"]
    skipped = "is" if count == 1 else "are"
    return (
        f"round {record['round']}: {count} of {len(record['clients']) + count} clients failed and {skipped} skipped "
        f"({first}); `failed` in rounds.jsonl counts them"
    )


@dataclass
class Failures:
    """The clients of one round that failed, by place in its cohort."""

    cohort: Sequence[int]
    round: int
    faults: dict[int, ClientError | Diverged] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.faults)

    def left(self) -> list[int]:
        """The places of those that did not fail; nobody left is an error."""
        left = [place for place in range(len(self.cohort)) if place not in self.faults]
        if left:
            return left
        first = self.faults[0]
        if len(self) == 1:
            raise first
        kind = Diverged if all(isinstance(fault, Diverged) for fault in self.faults.values()) else ClientError
        raise kind(f"all {len(self)} clients of round {self.round} failed; the first: {first}")

    def as_rows(self) -> list[FailedClient] | None:
        """Who failed and why, in the order of the cohort; None where nobody did."""
        faults = sorted(self.faults.items())
        return [{"client": self.cohort[at], "cause": " ".join(str(fault).split())} for at, fault in faults] or None
