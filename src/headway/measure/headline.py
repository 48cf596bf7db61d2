"""Which number a run or a table leads with: the headline metric, smoothed, or the last one where runs are short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.measure.numbers import MethodNumbers, RunNumbers
from headway.records import MetricRecord, RoundRecord
from headway.tasks.metrics import METRICS, in_words, loss, record_of

_MEMORIES = 5
"""A smoothed curve leads after this many times its memory of 1/(1 − keep) evaluations: after 50 with 0.9."""

ACCURACY = record_of(METRICS["accuracy"])
"""How the accuracy of classes is read: the only metric of records that do not say which they have."""
_OF_NUMBERS = [record_of(one) for one in (loss, METRICS["rmse"], METRICS["r2"])]


@dataclass(frozen=True)
class Headline:
    """A number of the summary, and how it is written."""

    metric: str
    """The name of the metric in a round's record."""
    smoothed: bool
    higher_is_better: bool = True
    percent: bool = True

    @property
    def key(self) -> str:
        """Its key in the summary of a run."""
        return f"{'smoothed' if self.smoothed else 'last'}_{self.metric}"

    @property
    def curve(self) -> str:
        """Its name in a round's record."""
        return f"{self.metric}_smoothed" if self.smoothed else self.metric

    @property
    def name(self) -> str:
        """The metric in words."""
        return in_words(self.metric)

    @property
    def words(self) -> str:
        """The name of a column that holds the headline."""
        return f"{'smoothed' if self.smoothed else 'last'} {self.name}{self.unit}"

    @property
    def unit(self) -> str:
        """What stands behind the name of a share."""
        return " %" if self.percent else ""

    @property
    def scale(self) -> float:
        return 100 if self.percent else 1

    @property
    def digits(self) -> int:
        return 2 if self.percent else 4

    @property
    def other(self) -> Headline:
        """The last value in place of the smoothed one, and the other way round."""
        return headline(self.record, not self.smoothed)

    @property
    def record(self) -> MetricRecord:
        return {"name": self.metric, "higher_is_better": self.higher_is_better, "percent": self.percent}

    def target(self, value: float) -> str:
        """A target as it is written."""
        return f"{value * 100:.1f} %" if self.percent else f"{value:.4g}"

    def short(self, value: float) -> str:
        """A value where there is little room."""
        return f"{value:.1%}" if self.percent else f"{value:.4g}"


def headline(metric: MetricRecord, smoothed: bool) -> Headline:
    """The headline that a metric makes, smoothed or as it ended."""
    return Headline(metric["name"], smoothed, metric["higher_is_better"], metric["percent"])


SMOOTHED, LAST = headline(ACCURACY, smoothed=True), headline(ACCURACY, smoothed=False)


def metrics_of(records: Sequence[RoundRecord]) -> list[MetricRecord]:
    """The metrics of a run and how they are read, the headline first.

    A run with others than the accuracy says so in its first round. Earlier versions had the loss where there is none.
    """
    recorded = next((record["metrics"] for record in records if "metrics" in record), None)
    if recorded:
        return recorded
    numeric = any("rmse" in record for record in records) and not any("accuracy" in record for record in records)
    return _OF_NUMBERS if numeric else [ACCURACY]


def metrics_in(numbers: RunNumbers | MethodNumbers) -> list[MetricRecord]:
    """The metrics that a summary has, the headline first."""
    return numbers.get("metrics") or [ACCURACY]


def is_settled(evaluations: float, keep: float) -> bool:
    """Whether a smoothed curve has forgotten how it began.

    After fewer evaluations it is mostly a mean of the first rounds, and far behind a curve that rises.
    """
    return evaluations * (1 - keep) >= _MEMORIES - 1e-9


def headline_of(metric: MetricRecord, evaluations: int, keep: float) -> Headline:
    """The headline of one run whose smoothed curve has this many values."""
    return headline(metric, keep > 0 and is_settled(evaluations, keep))


def common_headline(numbers: Iterable[RunNumbers | MethodNumbers]) -> Headline:
    """What several runs lead with together: smoothed where one is, so that one that ended early does not decide."""
    found = [(one["headline"], metrics_in(one)[0]) for one in numbers]
    metric = found[0][1]
    return headline(metric, any(key == headline(metric, smoothed=True).key for key, _ in found))
