"""Accuracy over rounds: smoothing, accuracy at a round, and what it took to reach a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def smoothed(before: float | None, value: float, keep: float) -> float:
    """s_t = keep · s_{t−1} + (1 − keep) · a_t, and s = a at the first evaluation (EMA(0.9) in FedACG's tables)."""
    return value if before is None else keep * before + (1 - keep) * value


@dataclass(frozen=True)
class Crossing:
    """The first evaluated round at which a curve reached the target."""

    round: int
    bytes_down: int
    bytes_up: int

    @property
    def bytes(self) -> int:
        return self.bytes_down + self.bytes_up


def crossing(records: Sequence[dict[str, float]], curve: str, target: float | None) -> Crossing | None:
    """Where `curve` ("accuracy" or "accuracy_smoothed") first is at least the target; None where it never is."""
    for record in records:
        if target is not None and record.get(curve, float("-inf")) >= target:
            return Crossing(int(record["round"]), int(record["bytes_down_total"]), int(record["bytes_up_total"]))
    return None


def level_at(records: Sequence[dict[str, float]], curve: str, round: int) -> float | None:
    """The curve's last value at or before a round."""
    values = [record[curve] for record in records if record["round"] <= round and curve in record]
    return values[-1] if values else None


def top(records: Sequence[dict[str, float]]) -> float | None:
    """The largest raw accuracy of any evaluation."""
    return max((record["accuracy"] for record in records if "accuracy" in record), default=None)
