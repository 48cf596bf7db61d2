"""What a report says of clients: the columns of the table, the words that tell what is measured, and clients.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from headway.measure.headline import common_headline
from headway.measure.numbers import MethodNumbers, RunNumbers, number_of
from headway.measure.over_clients import MEASURED, PROXY, QUANTILES, last_over_clients
from headway.runs.study import Study

SPREAD = "client spread"
"""How the headings of deviations over clients begin."""
Write = Callable[[MethodNumbers], str]


def are_measured(rows: Sequence[MethodNumbers]) -> bool:
    """Whether some method's clients were judged on their own samples."""
    return any(row.get("client_mean") is not None for row in rows)


def client_columns(rows: Sequence[MethodNumbers]) -> list[tuple[str, Write]]:
    """Headings and how their cells are written; every heading says whether it is measured or a proxy."""
    first, found = common_headline(rows), []
    if are_measured(rows):
        for key, words in (
            ("client_mean", f"client mean{first.unit}"),
            ("client_std", SPREAD),
            ("client_worst", f"worst tenth{first.unit}"),
        ):
            found.append((f"{words} ({MEASURED})", _cell(key, first.scale, first.digits)))
    has_proxy = any(row.get("client_accuracy_std") is not None for row in rows)
    if has_proxy or (first.metric == "accuracy" and not found):
        found.append((f"{SPREAD} ({PROXY})", _cell("client_accuracy_std", 100, 2)))
    return found


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


def how_many(clients: float) -> str:
    """A number of clients; a mean over seeds may have a fraction."""
    return f"{clients:,.0f}" if clients == round(clients) else f"{clients:,.1f}"


def about_clients(rows: Sequence[MethodNumbers]) -> str:
    """Whether numbers over clients were measured, and on what; empty where there are none."""
    words = []
    if are_measured(rows):
        counts = sorted(count for row in rows if (count := row.get("clients_judged")) is not None)
        most = " to ".join(dict.fromkeys(how_many(count) for count in (counts[0], counts[-1])))
        samples = "validation samples" if rows[0]["measured_on"] == "validation" else "test samples"
        words.append(
            f"over clients: {common_headline(rows).name}, measured on the {samples} of each of {most} clients, "
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
    """The cells of a line after method and seed; a number that the run does not have is left empty."""
    proxy = found["client_scores"] == PROXY
    std, worst = ("client_accuracy_std", "client_accuracy_low") if proxy else ("client_std", "client_worst")
    numbers = [found["clients_judged"], found["client_mean"], number_of(found, std), number_of(found, worst)]
    quantiles: Sequence[float | None] = found["client_quantiles"] or [None] * QUANTILES
    return [found["client_scores"], found["client_metric"], *numbers, *quantiles]
