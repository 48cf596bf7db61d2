"""Accuracy over rounds: smoothing, accuracy at a round, and what it took to reach a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.records import RoundRecord, value_of


@dataclass(frozen=True)
class Smoothed:
    """s_t = keep · s_{t−1} + (1 − keep) · a_t, divided by the weight it has gathered (EMA(0.9) in FedACG's tables).

    The division removes the pull of the start: after one value s = a_1, and after many it changes nothing.
    """

    sum: float = 0.0
    weight: float = 0.0

    def then(self, value: float, keep: float) -> Smoothed:
        return Smoothed(keep * self.sum + (1 - keep) * value, keep * self.weight + (1 - keep))

    @property
    def level(self) -> float:
        return self.sum / self.weight


@dataclass(frozen=True)
class Crossing:
    """The first evaluated round at which a curve reached the target."""

    round: int
    bytes_down: int
    bytes_up: int

    @property
    def bytes(self) -> int:
        return self.bytes_down + self.bytes_up


def crossing(records: Sequence[RoundRecord], curve: str, target: float | None) -> Crossing | None:
    """Where `curve` ("accuracy" or "accuracy_smoothed") first is at least the target; None where it never is."""
    for record in records:
        if target is not None and curve in record and value_of(record, curve) >= target:
            return Crossing(record["round"], record["bytes_down_total"], record["bytes_up_total"])
    return None


def level_at(records: Sequence[RoundRecord], curve: str, round: int) -> float | None:
    """The curve's last value at or before a round."""
    values = [value_of(record, curve) for record in records if record["round"] <= round and curve in record]
    return values[-1] if values else None


def top(records: Sequence[RoundRecord]) -> float | None:
    """The largest raw accuracy of any evaluation."""
    return max((record["accuracy"] for record in records if "accuracy" in record), default=None)


@dataclass(frozen=True)
class Accuracies:
    """Where a run ended: its highest accuracy of any evaluation, its last one, and its last smoothed one."""

    best: float | None
    last: float | None
    smoothed: float | None


def accuracies(records: Sequence[RoundRecord]) -> Accuracies:
    end = int(records[-1]["round"]) if records else 0
    return Accuracies(top(records), level_at(records, "accuracy", end), level_at(records, "accuracy_smoothed", end))


def common(seeds: Sequence[Sequence[RoundRecord]], key: str) -> list[list[RoundRecord]]:
    """For each round in which every seed has the value, in order, the record of each seed."""
    by_round = [{record["round"]: record for record in records if key in record} for records in seeds]
    return [[table[round] for table in by_round] for round in sorted(set.intersection(*map(set, by_round)))]
