"""What a round reports: the record that the engine makes, that observers and trackers get, and that files hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict, cast


class FailedClient(TypedDict):
    """A client that failed and was skipped."""

    client: int
    cause: str


class MetricRecord(TypedDict):
    """How the numbers of a metric are read."""

    name: str
    higher_is_better: bool
    percent: bool
    """Whether it is a share, which tables show in percent."""


class OverClients(TypedDict, total=False):
    """Numbers over clients. Those that are measured and the proxy have no name in common."""

    client_scores: str
    """`measured`, on each client's own samples, or `proxy`: accuracies of classes, weighted by each client's mix."""
    client_metric: str
    """What is measured: the headline's name."""
    clients_judged: int
    """How many clients have samples that define it; each counts the same."""
    client_mean: float
    client_std: float
    client_worst: float
    """The mean of the worst tenth."""
    client_quantiles: list[float] | tuple[float, ...]
    """The numbers of all clients at 0 %, 5 %, …, 100 %, from the least to the largest."""
    client_accuracy_std: float
    """The deviation of the clients' accuracies, where they are a proxy."""
    client_accuracy_low: float
    """The mean of their lowest tenth."""


class Diagnostics(TypedDict, total=False):
    """How far and how alike the clients of a round went. Δ_i are their updates, Δ = Σω_i Δ_i.

    A number is left out where it is not defined: of one client, of vectors that are zero, where something else is sent
    in place of Δ_i, and where nobody may see it.
    """

    update_norm_mean: float
    """The mean of ‖Δ_i‖ over the clients."""
    update_norm_std: float
    """The deviation of ‖Δ_i‖ over the clients."""
    diversity: float
    """Σω_i ‖Δ_i‖² / ‖Δ‖²: 1 where all updates are the same, more the less they agree."""
    drift: float
    """√(Σω_i ‖θ_i − Σω_j θ_j‖²): how far the local models lie from their weighted mean."""
    cosine_momentum: float
    """The cosine of Δ with the momentum that the server held before the round."""
    clipped_share: float
    """The share of the local steps whose gradient was clipped."""
    update_cosines: list[float]
    """With `diagnose`: the cosine of each Δ_i with Δ, in the order of `clients`."""
    pair_cosine_mean: float
    """With `diagnose`: the mean cosine of two clients' updates."""
    pair_cosine_least: float
    """With `diagnose`: the least cosine of two clients' updates."""
    absent_accuracy_before: float
    """With `diagnose`: the mean accuracy of the received model on the classes that a client does not have."""
    absent_accuracy_after: float
    """The same of the clients' local models, after their training."""
    forgetting_by_class: dict[str, float]
    """With `diagnose`: what the accuracy on a class falls by, in the mean over the clients that do not have it."""


class RoundRecord(OverClients, Diagnostics):
    """One line of rounds.jsonl. A name with `seconds` in it depends on the clock; all other numbers do not.

    A record may have further numbers, the task's metrics and what the method's slots measured, under their own names
    (see `value_of`).
    """

    round: int
    steps: int
    """Local steps whose work reached the server."""
    bytes_down_total: int
    bytes_up_total: int
    seconds_training: float
    seconds_evaluation: float

    clients: NotRequired[list[int] | tuple[int, ...]]
    """The clients whose upload counts."""
    lost: NotRequired[int]
    late: NotRequired[int]
    partial: NotRequired[int]
    failed: NotRequired[int]
    failures: NotRequired[list[FailedClient]]
    client_steps: NotRequired[list[int]]
    """K_i of each of `clients`, where some did a part of their steps only."""
    absent: NotRequired[list[FailedClient]]
    """Of clients at other places: who did not come, and why."""
    void: NotRequired[int]
    """How many times the round had too few uploads, and was asked again."""
    ask: NotRequired[str]
    """The token of the ask whose uploads count: the clients know their states by it."""
    rate: NotRequired[float]
    train_loss: NotRequired[float]
    update_norm: NotRequired[float]
    samples: NotRequired[int]
    padding: NotRequired[float]
    bytes_down: NotRequired[int]
    bytes_up: NotRequired[int]

    metrics: NotRequired[list[MetricRecord]]
    """In the first round only, where it is not the accuracy alone: the task's metrics, the headline first."""
    epsilon: NotRequired[float]
    """Of a private method: ε of all rounds up to this one, at the scenario's δ."""
    measured_on: NotRequired[str]
    """`validation` where samples are held out; else the scores are of the test set."""
    loss: NotRequired[float]
    accuracy: NotRequired[float]
    accuracy_smoothed: NotRequired[float]
    accuracy_by_class: NotRequired[dict[str, float]]
    """The accuracy on the test samples of each class, by its number; of tasks with up to 100 classes."""
    rmse: NotRequired[float]
    r2: NotRequired[float]
    global_loss: NotRequired[float]


def value_of(record: RoundRecord, name: str) -> float:
    """A number that a round has, by its name: also one that a slot measured."""
    return cast(Mapping[str, float], record)[name]
