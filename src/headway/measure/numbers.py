"""The numbers of one run, and of one method over several seeds, by name as JSON files and tables have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict, cast

from headway.records import MetricRecord

Verdict = Literal["best", "distinguishable", "not distinguishable", "needs 3 seeds", "same in every seed"]


class RunNumbers(TypedDict, total=False):
    """The numbers of one run; those that it did not measure are None. Files of earlier versions have fewer."""

    rounds: int
    measured_on: str
    headline: str
    """The key of the number that a table leads with."""
    metrics: list[MetricRecord]
    """Where they are not the accuracy alone: the task's metrics, the headline first.

    Of a headline M there are `smoothed_M`, `last_M` and `best_M`; of each other metric its last value, by its name.
    """
    smoothed_accuracy: float | None
    last_accuracy: float | None
    best_accuracy: float | None
    accuracy: float | None
    """`accuracy`, `accuracy_raw` and `accuracy_top` are older names of the smoothed, last and best accuracy."""
    accuracy_raw: float | None
    accuracy_top: float | None
    loss: float | None
    rmse: float | None
    r2: float | None
    client_scores: str | None
    """`measured`, on each client's own samples, or `proxy`; None where there are no numbers over clients."""
    client_metric: str | None
    clients_judged: int | None
    client_mean: float | None
    """The mean of the headline over clients, as measured; next the deviation, the worst tenth and quantiles."""
    client_std: float | None
    client_worst: float | None
    client_quantiles: list[float] | None
    client_accuracy_std: float | None
    """The deviation of the proxy over clients; next its worst tenth."""
    client_accuracy_low: float | None
    target: float | None
    rounds_to_target: int | None
    """None also where the target was not reached."""
    rounds_to_target_raw: int | None
    bytes_to_target: int | None
    bytes_down: int
    bytes_up: int
    bytes_per_round: float
    steps: int
    padding: float | None
    seconds: float
    failed: int
    """How often clients failed and were skipped, where they may be."""


class BesideBest(TypedDict):
    """What a method's number is against that of the best method; without an interval where no seed is common."""

    best: str
    verdict: Verdict
    pairs: int
    difference: NotRequired[float]
    low: NotRequired[float | None]
    high: NotRequired[float | None]
    p: NotRequired[float | None]
    p_adjusted: NotRequired[float | None]


class ClientNumbers(TypedDict, total=False):
    """The numbers over clients of several seeds: means, and deviations as of `MethodNumbers`."""

    client_scores: str | None
    client_metric: str | None
    clients_judged: float | None
    clients_judged_std: float | None
    client_mean: float | None
    client_mean_std: float | None
    client_std: float | None
    client_std_std: float | None
    client_worst: float | None
    client_worst_std: float | None
    client_quantiles: list[float] | None
    """Means over seeds, each quantile by itself."""
    client_accuracy_std: float | None
    client_accuracy_std_std: float | None
    client_accuracy_low: float | None
    client_accuracy_low_std: float | None


class MethodNumbers(ClientNumbers):
    """One row of a comparison. Beside each mean is the deviation (n − 1): None with one seed.

    A mean is None where some seed does not have the number; then `_each` still has the numbers of all seeds.
    """

    name: str
    seeds: int
    target: float | None
    measured_on: str
    headline: str
    metrics: NotRequired[list[MetricRecord]]
    rounds: int
    smoothed_accuracy: float | None
    smoothed_accuracy_std: float | None
    last_accuracy: float | None
    last_accuracy_std: float | None
    best_accuracy: float | None
    best_accuracy_std: float | None
    accuracy: float | None
    accuracy_std: float | None
    accuracy_raw: float | None
    accuracy_raw_std: float | None
    accuracy_top: float | None
    accuracy_top_std: float | None
    loss: float | None
    loss_std: float | None
    rmse: float | None
    rmse_std: float | None
    r2: float | None
    r2_std: float | None
    bytes_down: float
    bytes_down_std: float | None
    bytes_up: float
    bytes_up_std: float | None
    bytes_per_round: float
    bytes_per_round_std: float | None
    steps: float
    steps_std: float | None
    padding: float | None
    padding_std: float | None
    seconds: float
    seconds_std: float | None
    rounds_to_target: float | None
    rounds_to_target_std: float | None
    rounds_to_target_each: list[int | None]
    rounds_to_target_raw: float | None
    rounds_to_target_raw_std: float | None
    rounds_to_target_raw_each: list[int | None]
    bytes_to_target: float | None
    bytes_to_target_std: float | None
    bytes_to_target_each: list[int | None]
    seeds_reaching_target: int

    ended: NotRequired[str]
    """How a run of a study ended early; '' where all came to their end."""
    stopped: NotRequired[list[str]]
    """The runs that a callback stopped: in which round and why."""
    folders: NotRequired[list[str]]
    against_best: NotRequired[BesideBest | None]
    """The difference of the headline; None for a method that is not compared."""
    rounds_against_best: NotRequired[BesideBest | None]


def number_of(numbers: RunNumbers | MethodNumbers, key: str) -> float | None:
    """A number by a key that is chosen while the program runs."""
    return cast(Mapping[str, float | None], numbers)[key]
