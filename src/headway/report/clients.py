"""What a report says of clients: the columns of the table, the words that tell what is measured, and clients.csv."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence

from headway.measure.numbers import MethodNumbers, RunNumbers, number_of
from headway.measure.over_clients import MEASURED, PROXY, QUANTILES, last_over_clients
from headway.runs.study import Study

Write = Callable[[MethodNumbers], str]


def is_share(metric: str | None) -> bool:
    """Whether a metric is one that tables show in percent."""
    return metric is not None and re.fullmatch(r"accuracy|exact_match|top\d+", metric) is not None


def in_table(metric: str | None) -> tuple[float, int]:
    """(factor, digits) with which a metric's numbers are written."""
    return (100, 2) if is_share(metric) else (1, 4)


def are_measured(rows: Sequence[MethodNumbers]) -> bool:
    """Whether some method's clients were judged on samples of their own."""
    return any(row.get("client_mean") is not None for row in rows)


def client_columns(rows: Sequence[MethodNumbers], proxies: bool) -> list[tuple[str, Write]]:
    """Headings and how their cells are written; every heading says whether it is measured or a proxy.

    `proxies`: the proxy's column is there where nothing is measured.
    """
    measured, scale, digits = [], *in_table(measured_metric(rows))
    unit = " %" if scale == 100 else ""
    if are_measured(rows):
        for key, words in (
            ("client_mean", f"client mean{unit}"),
            ("client_std", "client spread"),
            ("client_worst", f"worst tenth{unit}"),
        ):
            measured.append((f"{words} ({MEASURED})", _cell(key, scale, digits)))
    if any(row.get("client_accuracy_std") is not None for row in rows) or (proxies and not measured):
        measured.append((f"client spread ({PROXY})", _cell("client_accuracy_std", 100, 2)))
    return measured


def measured_metric(rows: Sequence[MethodNumbers]) -> str | None:
    """What is measured over clients."""
    return next((row.get("client_metric") for row in rows if row.get("client_mean") is not None), None)


def _cell(key: str, scale: float, digits: int) -> Write:
    def write(row: MethodNumbers) -> str:
        return with_deviation(number_of(row, key), number_of(row, f"{key}_std"), scale, digits)

    return write


def with_deviation(mean: float | None, deviation: float | None, scale: float, digits: int) -> str:
    """`81.20 ± 0.45`; "–" where there is no number."""
    if mean is None:
        return "–"
    text = f"{mean * scale:.{digits}f}"
    return text if deviation is None else f"{text} ± {deviation * scale:.{digits}f}"


def about_clients(rows: Sequence[MethodNumbers]) -> str:
    """Whether what is said of clients was measured, and on what; nothing where nothing is said."""
    words = []
    if are_measured(rows):
        counts = sorted(count for row in rows if (count := row.get("clients_judged")) is not None)
        most = " to ".join(f"{count:,.4g}" for count in dict.fromkeys((counts[0], counts[-1])))
        samples = "validation samples" if rows[0]["measured_on"] == "validation" else "test samples"
        words.append(
            f"over clients: {measured_metric(rows)}, measured on the {samples} of each of {most} clients, "
            "which count the same"
        )
    if any(row.get("client_accuracy_std") is not None for row in rows):
        words.append(
            "client spread is a proxy where clients have no test samples: deviation of the accuracy on the common test "
            "set, weighted by each client's mix of classes"
        )
    return "; ".join(words)


def as_csv(study: Study) -> str:
    """One line for each run: what its last round says of clients, and whether that was measured or is a proxy."""
    shares = [f"at_{100 * place // (QUANTILES - 1)}_percent" for place in range(QUANTILES)]
    names = ["method", "seed", "scores", "metric", "clients_judged", "mean", "std", "worst_tenth", *shares]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for method, seeds in study.runs.items():
        for one in seeds:
            found = last_over_clients(one.records)
            writer.writerow([method, one.scenario.seed, *_of_run(found)])
    return text.getvalue()


def _of_run(found: RunNumbers) -> list[object]:
    """What stands in a line after method and seed; what there is not is left empty."""
    proxy = found["client_scores"] == PROXY
    std, worst = ("client_accuracy_std", "client_accuracy_low") if proxy else ("client_std", "client_worst")
    numbers = [found["clients_judged"], found["client_mean"], number_of(found, std), number_of(found, worst)]
    quantiles: Sequence[float | None] = found["client_quantiles"] or [None] * QUANTILES
    return [found["client_scores"], found["client_metric"], *numbers, *quantiles]
