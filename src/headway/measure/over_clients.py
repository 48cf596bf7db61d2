"""Numbers over clients: mean, deviation, worst tenth and distribution of what each client's own samples measure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headway.measure.numbers import ClientNumbers, RunNumbers
from headway.records import OverClients, RoundRecord

MEASURED, PROXY = "measured", "proxy"
QUANTILES = 21
"""How many numbers stand for the distribution: at 0 %, 5 %, …, 100 % of the clients."""


def worst_tenth(values: np.ndarray, higher_is_better: bool = True) -> float:
    """The mean of the ⌊N/10⌋ worst of N values, at least of one."""
    ordered = np.sort(values if higher_is_better else -values)
    mean = float(ordered[: max(len(values) // 10, 1)].mean())
    return mean if higher_is_better else -mean


def measured(metric: str, values: np.ndarray, higher_is_better: bool) -> OverClients:
    """The numbers over clients, each of which counts the same; NaN stands for a client that is not judged.

    Empty where nobody is.
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return {}
    return {
        "client_scores": MEASURED,
        "client_metric": metric,
        "clients_judged": len(known),
        "client_mean": float(known.mean()),
        "client_std": float(known.std()),
        "client_worst": worst_tenth(known, higher_is_better),
        "client_quantiles": [float(one) for one in np.quantile(known, np.linspace(0, 1, QUANTILES))],
    }


def proxy(accuracies: np.ndarray) -> OverClients:
    """Numbers over clients without test samples, from accuracies of their classes; empty without any accuracy."""
    if not len(accuracies):
        return {}
    return {
        "client_scores": PROXY,
        "client_accuracy_std": float(accuracies.std()),
        "client_accuracy_low": worst_tenth(accuracies),
    }


def last_over_clients(records: Sequence[RoundRecord]) -> RunNumbers:
    """The numbers over clients of the last round that has some; None for what it does not have.

    Records of earlier versions, which measured none, do not say that theirs are a proxy.
    """
    having = (one for one in reversed(records) if "client_scores" in one or "client_accuracy_std" in one)
    found = next(having, None)
    last: OverClients = {} if found is None else found
    quantiles = last.get("client_quantiles")
    return {
        "client_scores": last.get("client_scores", PROXY) if last else None,
        "client_metric": last.get("client_metric", "accuracy") if last else None,
        "clients_judged": last.get("clients_judged"),
        "client_mean": last.get("client_mean"),
        "client_std": last.get("client_std"),
        "client_worst": last.get("client_worst"),
        "client_quantiles": None if quantiles is None else list(quantiles),
        "client_accuracy_std": last.get("client_accuracy_std"),
        "client_accuracy_low": last.get("client_accuracy_low"),
    }


AVERAGED = ("clients_judged", "client_mean", "client_std", "client_worst", "client_accuracy_std", "client_accuracy_low")
"""Names of numbers that have a mean and a deviation over seeds."""


def of_several(summaries: Sequence[RunNumbers]) -> ClientNumbers:
    """What several seeds have in common beside means: how their numbers came about, and the mean distribution."""
    how, metrics = (
        list(dict.fromkeys(one.get(key) for one in summaries)) for key in ("client_scores", "client_metric")
    )
    each = [one.get("client_quantiles") for one in summaries]
    known = [np.array(one) for one in each if one is not None]
    return {
        "client_scores": " and ".join(str(one) for one in how if one is not None) or None,
        "client_metric": " and ".join(str(one) for one in metrics if one is not None) or None,
        "client_quantiles": np.mean(known, axis=0).tolist() if len(known) == len(each) else None,
    }
