"""A run in numbers, and several seeds of one method in means and deviations."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import cast

from headway.measure.curves import accuracies, crossing, level_at
from headway.measure.headline import common_headline, headline_of
from headway.measure.numbers import MethodNumbers, RunNumbers, number_of
from headway.measure.over_clients import AVERAGED, last_over_clients, of_several
from headway.records import RoundRecord

_NO_ROUND: RoundRecord = {
    "round": 0,
    "steps": 0,
    "bytes_down_total": 0,
    "bytes_up_total": 0,
    "seconds_training": 0.0,
    "seconds_evaluation": 0.0,
}
"""Stands for the last round of a run that has none."""


def summarise(records: Sequence[RoundRecord], target: float | None, smoothing: float = 0.9) -> RunNumbers:
    """The numbers of one run."""
    last = records[-1] if records else _NO_ROUND
    round, down, up = last["round"], last.get("bytes_down_total", 0), last.get("bytes_up_total", 0)
    end, rmse = accuracies(records), level_at(records, "rmse", round)
    evaluations, numeric = sum("accuracy" in record for record in records), end.last is None and rmse is not None
    smooth, raw = crossing(records, "accuracy_smoothed", target), crossing(records, "accuracy", target)
    return {
        "rounds": round,
        "measured_on": last.get("measured_on", "test"),
        "headline": headline_of(evaluations, smoothing, numeric).key,
        "smoothed_accuracy": end.smoothed,
        "last_accuracy": end.last,
        "best_accuracy": end.best,
        "accuracy": end.smoothed,
        "accuracy_raw": end.last,
        "accuracy_top": end.best,
        "loss": level_at(records, "loss", round),
        "rmse": rmse,
        "r2": level_at(records, "r2", round),
        **last_over_clients(records),
        "target": target,
        "rounds_to_target": smooth.round if smooth else None,
        "rounds_to_target_raw": raw.round if raw else None,
        "bytes_to_target": smooth.bytes if smooth else None,
        "bytes_down": down,
        "bytes_up": up,
        "bytes_per_round": (down + up) / round if round else 0,
        "steps": sum(record["steps"] for record in records),
        "padding": _padding(records),
        "seconds": sum(record["seconds_training"] + record["seconds_evaluation"] for record in records),
        **_failed(records),
    }


def _failed(records: Sequence[RoundRecord]) -> RunNumbers:
    """How often clients failed and were skipped; nothing where none may be."""
    failed = [record["failed"] for record in records if "failed" in record]
    return {"failed": sum(failed)} if failed else {}


def _padding(records: Sequence[RoundRecord]) -> float | None:
    """Share of all samples computed that only filled a shape; None where the records do not say."""
    counted = [record for record in records if record.get("samples")]
    if not counted:
        return None
    samples = sum(record["samples"] for record in counted)
    return float(1 - samples / sum(record["samples"] / (1 - record["padding"]) for record in counted))


_AVERAGED = (
    "smoothed_accuracy",
    "last_accuracy",
    "best_accuracy",
    "accuracy",
    "accuracy_raw",
    "accuracy_top",
    "loss",
    "rmse",
    "r2",
    *AVERAGED,
    "bytes_down",
    "bytes_up",
    "bytes_per_round",
    "steps",
    "padding",
    "seconds",
)
_REACHED = ("rounds_to_target", "rounds_to_target_raw", "bytes_to_target")


def over_seeds(name: str, summaries: Sequence[RunNumbers]) -> MethodNumbers:
    """Mean and deviation (n−1) over the seeds of one method. A target that some seed did not reach has no mean."""
    combined: dict[str, object] = {
        "name": name,
        "seeds": len(summaries),
        "target": summaries[0]["target"],
        "measured_on": summaries[0]["measured_on"],
        "headline": common_headline(summary["headline"] for summary in summaries).key,
        "rounds": max(summary["rounds"] for summary in summaries),
        **of_several(summaries),
    }
    for key in _AVERAGED + _REACHED:
        values = [number_of(summary, key) for summary in summaries]
        combined[key], combined[f"{key}_std"] = _mean_and_deviation(values)
        if key in _REACHED:
            combined[f"{key}_each"] = values
    combined["seeds_reaching_target"] = sum(summary["rounds_to_target"] is not None for summary in summaries)
    return cast(MethodNumbers, combined)


def _mean_and_deviation(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Both None where a value is missing; a single value has no deviation."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def common_target(methods: Sequence[Sequence[RunNumbers]]) -> float | None:
    """Where none is given: what the median method (the papers' choice) ends with in its least seed, smoothed."""
    least = []
    for seeds in methods:
        finals = [summary["accuracy"] for summary in seeds]
        known = [value for value in finals if value is not None]
        if len(known) == len(finals):
            least.append(min(known))
    return statistics.median_low(least) if least else None
