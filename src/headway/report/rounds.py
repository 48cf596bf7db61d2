"""The records of several seeds, brought together round by round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Records = Sequence[dict[str, Any]]


def common(seeds: Sequence[Records], key: str) -> list[list[dict[str, Any]]]:
    """For each round in which every seed has the value, in order, the record of each seed."""
    by_round = [{record["round"]: record for record in records if key in record} for records in seeds]
    return [[table[number] for table in by_round] for number in sorted(set.intersection(*map(set, by_round)))]
