"""A run in numbers, and several seeds of one method in means and deviations."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import cast

from headway.measure.curves import crossing, end_of, level_at
from headway.measure.headline import ACCURACY, common_headline, headline_of, metrics_in, metrics_of
from headway.measure.numbers import MethodNumbers, RunNumbers, number_of
from headway.measure.over_clients import AVERAGED, last_over_clients, of_several
from headway.records import MetricRecord, RoundRecord

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
    end, metrics = end_of(records), metrics_of(records)
    lead, rises = metrics[0]["name"], metrics[0]["higher_is_better"]
    evaluations = sum(f"{lead}_smoothed" in record for record in records)
    smooth = crossing(records, f"{lead}_smoothed", target, rises)
    raw = crossing(records, lead, target, rises)
    numbers: RunNumbers = {
        "rounds": round,
        "measured_on": last.get("measured_on", "test"),
        "headline": headline_of(metrics[0], evaluations, smoothing).key,
        "smoothed_accuracy": end.smoothed,
        "last_accuracy": end.last,
        "best_accuracy": end.best,
        "accuracy": end.smoothed,
        "accuracy_raw": end.last,
        "accuracy_top": end.best,
        "loss": level_at(records, "loss", round),
        "rmse": level_at(records, "rmse", round),
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
    return numbers if metrics == [ACCURACY] else cast(RunNumbers, {**numbers, **_of_metrics(records, metrics)})


def _of_metrics(records: Sequence[RoundRecord], metrics: list[MetricRecord]) -> dict[str, object]:
    """The numbers of metrics, where they are not the accuracy alone: of the headline three, of others the last one."""
    lead, others = metrics[0], [metric["name"] for metric in metrics[1:]]
    end, round = end_of(records, lead["name"], lead["higher_is_better"]), records[-1]["round"]
    found: dict[str, object] = {"metrics": metrics}
    for kind, value in (("smoothed", end.smoothed), ("last", end.last), ("best", end.best)):
        found[f"{kind}_{lead['name']}"] = value
    return found | {name: level_at(records, name, round) for name in others if name != "accuracy"}


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
        "headline": common_headline(summaries).key,
        "rounds": max(summary["rounds"] for summary in summaries),
        **of_several(summaries),
    }
    metrics = metrics_in(summaries[0])
    if metrics != [ACCURACY]:
        combined["metrics"] = metrics
    for key in dict.fromkeys([*_AVERAGED, *_keys(metrics), *_REACHED]):
        values = [number_of(summary, key) for summary in summaries]
        combined[key], combined[f"{key}_std"] = _mean_and_deviation(values)
        if key in _REACHED:
            combined[f"{key}_each"] = values
    combined["seeds_reaching_target"] = sum(summary["rounds_to_target"] is not None for summary in summaries)
    return cast(MethodNumbers, combined)


def _keys(metrics: list[MetricRecord]) -> list[str]:
    """What a summary calls the numbers of metrics."""
    lead, *others = [metric["name"] for metric in metrics]
    return [f"{kind}_{lead}" for kind in ("smoothed", "last", "best")] + [one for one in others if one != "accuracy"]


def _mean_and_deviation(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Both None where a value is missing; a single value has no deviation."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def common_target(methods: Sequence[Sequence[RunNumbers]]) -> float | None:
    """The target where none is given: the smoothed end of the median method (the papers' choice) in its worst seed."""
    (lead, *_), worst = metrics_in(methods[0][0]), []
    for seeds in methods:
        finals = [number_of(summary, f"smoothed_{lead['name']}") for summary in seeds]
        known = [value for value in finals if value is not None]
        if len(known) == len(finals):
            worst.append((min if lead["higher_is_better"] else max)(known))
    median = statistics.median_low if lead["higher_is_better"] else statistics.median_high
    return median(worst) if worst else None
