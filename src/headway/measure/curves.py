"""A metric over rounds: its smoothing, its value at a round, and what it took to reach a target."""

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


def crossing(
    records: Sequence[RoundRecord], curve: str, target: float | None, higher_is_better: bool = True
) -> Crossing | None:
    """Where `curve` ("accuracy_smoothed", "perplexity") first is at least, or at most, the target; None if never."""
    for record in records:
        if target is not None and curve in record and reaches(value_of(record, curve), target, higher_is_better):
            return Crossing(record["round"], record["bytes_down_total"], record["bytes_up_total"])
    return None


def reaches(value: float, target: float, higher_is_better: bool) -> bool:
    """Whether a value is as good as the target."""
    return value >= target if higher_is_better else value <= target


def level_at(records: Sequence[RoundRecord], curve: str, round: int) -> float | None:
    """The curve's last value at or before a round."""
    values = [value_of(record, curve) for record in records if record["round"] <= round and curve in record]
    return values[-1] if values else None


def top(records: Sequence[RoundRecord], metric: str = "accuracy", higher_is_better: bool = True) -> float | None:
    """The best raw value of any evaluation."""
    values = [value_of(record, metric) for record in records if metric in record]
    return (max if higher_is_better else min)(values, default=None)


@dataclass(frozen=True)
class End:
    """Where a run ended: the best value of a metric in any evaluation, its last one, and its last smoothed one."""

    best: float | None
    last: float | None
    smoothed: float | None


def end_of(records: Sequence[RoundRecord], metric: str = "accuracy", higher_is_better: bool = True) -> End:
    """The best, the last and the last smoothed value of a metric in a run."""
    end = int(records[-1]["round"]) if records else 0
    smoothed = level_at(records, f"{metric}_smoothed", end)
    return End(top(records, metric, higher_is_better), level_at(records, metric, end), smoothed)


def common(seeds: Sequence[Sequence[RoundRecord]], key: str) -> list[list[RoundRecord]]:
    """The records of all seeds in each round in which every seed has the value, in order."""
    by_round = [{record["round"]: record for record in records if key in record} for records in seeds]
    return [[table[round] for table in by_round] for round in sorted(set.intersection(*map(set, by_round)))]
