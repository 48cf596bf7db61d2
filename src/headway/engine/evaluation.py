"""The server's model on the test set: θ_t, never the lookahead, or what a server value hands over in its place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from headway.data import columns
from headway.data.federation import ClientTests, Samples
from headway.data.own_data import judged_by
from headway.data.own_samples import Padding
from headway.engine import client_scores
from headway.engine.answers import check_counts
from headway.engine.client_rounds import StateOf
from headway.engine.executor import Executor
from headway.engine.experiment import Experiment
from headway.engine.ranks import ALONE, Ranks
from headway.engine.scoring import Scored, outputs
from headway.engine.scoring import score as score_samples
from headway.engine.server import GlobalState, broadcast, handed_over, received
from headway.engine.split_scoring import gathered, own_chunks
from headway.errors import ServerDiverged, UserError
from headway.measure.over_clients import measured, proxy
from headway.records import OverClients
from headway.tasks.known import task_of
from headway.tasks.metrics import METRICS, Answer
from headway.trees import leaves_of, tree_map

CHUNK = {"cpu": 1000, "cuda": 2500}
"""Samples that are scored at once, at most, by kind of device: on a GPU every chunk adds a fixed cost."""
CLASSES_RECORDED = 100
"""The most classes whose accuracies are recorded one by one: every evaluation has them."""


@dataclass(frozen=True)
class Scores:
    """What the server's model scores after a round."""

    loss: float | None
    """None where no test set is here and no client has one."""
    metrics: dict[str, float]
    """The task's metrics by name; one that these samples do not define is left out."""
    over_clients: OverClients
    """Measured on each client's own test samples; a proxy where clients have none."""
    global_loss: float | None
    """The loss on all clients' data, where it is asked for."""
    received: dict[str, float] = field(default_factory=dict)
    """Loss and metrics of φ, what clients receive in the next round, where they are asked for."""
    by_class: dict[str, float] = field(default_factory=dict)
    """The accuracy on the test samples of each class that has some; empty where a sample has not one class."""

    def numbers(self) -> dict[str, float]:
        """All that was measured of the whole federation, by name."""
        losses = {"global_loss": self.global_loss}
        whole = {} if self.loss is None else {"loss": self.loss}
        known = {name: loss for name, loss in losses.items() if loss is not None}
        return {**whole, **self.metrics, **known, **{f"received_{name}": one for name, one in self.received.items()}}


def _scored(
    experiment: Experiment, state: GlobalState, samples: Samples, executor: Executor | None, ranks: Ranks = ALONE
) -> Scored:
    """What each of some samples on the device contributes to the loss and the metrics, in order, on the host.

    Several ranks score a part each.
    """
    joint = experiment.network.joint
    size = _even(len(samples), CHUNK["cpu" if joint else experiment.device.type])
    own = None if joint else getattr(executor, "score", None)
    if own and len(samples) % size and experiment.scores_jointly:
        own = None  # its last chunk would be filled
    score = own or partial(score_samples, experiment)
    parts, starts = [], range(0, len(samples), size)
    for start in own_chunks(starts, ranks):
        # what is captured takes whole chunks: a last one is filled with samples scored before, which count once
        first = min(start, len(samples) - size) if own else start
        found = score(state.theta, state.buffers, *samples.read(slice(first, first + size)))
        parts.append(tree_map(lambda rows, skip=start - first: rows[skip:], found))
    if not parts:  # fewer chunks than ranks: the form of a row is enough
        few = score_samples(experiment, state.theta, state.buffers, *samples.read(slice(2)))
        parts = [tree_map(lambda rows: rows[:0], few)]
    scored: Scored = tree_map(lambda *rows: torch.cat(rows).cpu(), *parts)
    return scored if ranks.size == 1 or len(starts) == 1 else gathered(ranks, scored)


def _losses(scored: Scored) -> Tensor:
    losses = scored["loss"]
    assert isinstance(losses, Tensor)
    return losses


def _mean_loss(scored: Scored) -> float:
    """The loss a sample, a token or a pixel."""
    losses, units = _losses(scored), scored.get("units")
    if not isinstance(units, Tensor):
        return float(losses.mean())
    return float((losses * units).sum() / units.sum())


def _even(count: int, most: int) -> int:
    """The length of chunks of at most `most`, as few and as equal as can be."""
    return -(-count // -(-count // most))


def _global_loss(
    experiment: Experiment, state: GlobalState, executor: Executor | None, round: int, ranks: Ranks
) -> float:
    """F(θ) = Σ_i p_i F_i(θ) / Σ_i p_i over the clients who have a unit that counts; Σ p_i is 1 where all have."""
    scored = _scored(experiment, state, experiment.samples, executor, ranks)
    losses, units = _losses(scored), scored.get("units")
    weights = experiment.sample_weights
    if isinstance(units, Tensor):
        weights = weights * _relative(units, experiment.federation.clients)
        weights = weights / weights.sum()
    loss = float((losses * weights).sum())
    if not math.isfinite(loss):
        raise _not_finite(experiment, state, losses, experiment.samples, "the clients' data", round)
    return loss


def _relative(units: Tensor, clients: Sequence[np.ndarray]) -> Tensor:
    """The units of each sample by the mean of its client's: F_i is a mean over tokens, not over samples."""
    relative = torch.zeros_like(units)
    for rows in clients:
        own = units[torch.as_tensor(rows)]
        relative[torch.as_tensor(rows)] = own / own.mean() if own.any() else own
    return relative


def _not_finite(
    experiment: Experiment, state: GlobalState, losses: Tensor, samples: Samples, where: str, round: int
) -> UserError:
    """Why losses are not finite numbers: the samples, their targets, or the model. Only then is anything looked at.

    A finite loss says enough: it is not one where a logit is NaN or +∞, or where that of the true class is −∞.
    """
    bad = torch.nonzero(~losses.isfinite()).flatten()
    x, y = samples.read(bad.to(leaves_of(columns.read(samples.y, slice(0, 1)))[0].device))
    for what, values in (("inputs", experiment.federation.inputs(x, experiment.dtype)), ("targets", y)):
        wrong = bad[~_rows_finite(values).cpu()]
        if len(wrong):
            return UserError(
                f"round {round}: in {where} the {what} of {_which(wrong, losses)} are not finite numbers; correct them "
                "or leave these samples out"
            )
    size = _even(len(samples), CHUNK["cpu" if experiment.network.joint else experiment.device.type])
    start = int(bad[0]) // size * size
    answers = outputs(experiment, state.theta, state.buffers, samples.read(slice(start, start + size))[0])
    fault = "loss is" if bool(_rows_finite(answers)[int(bad[0]) - start]) else "model's outputs are"
    return ServerDiverged(
        f"round {round}: in {where} the {fault} not finite for {_which(bad, losses)}; {experiment.advice}"
    )


def _rows_finite(values: Answer) -> Tensor:
    """Whether all numbers of each sample are finite."""
    each = [part.reshape(len(part), -1).isfinite().all(1) for part in leaves_of(values)]
    return torch.stack(each).all(0)


def _which(samples: Tensor, losses: Tensor) -> str:
    return f"{len(samples)} of {len(losses)} samples (the first is number {int(samples[0])})"


def evaluate(
    experiment: Experiment,
    state: GlobalState,
    executor: Executor | None = None,
    round: int = 0,
    state_of: StateOf | None = None,
    ranks: Ranks = ALONE,
) -> Scores:
    """Scores of a model after a round, by the executor's own `score` where it has one.

    What is not a finite number has no score: it is refused, as it is in training. `state_of` tells what a client keeps;
    without it, clients that keep their own statistics are not judged by themselves. Several `ranks` ask together.
    """
    sent = _received(experiment, state, executor, round, ranks) if experiment.scenario.score_received else {}
    state = handed_over(experiment.method, state)
    scored = _scored(experiment, state, experiment.test, executor, ranks)
    loss, metrics = _values(experiment, state, scored, experiment.test, "the test set", round)
    wanted = wants_global_loss(experiment) and not experiment.federation.is_elsewhere
    global_loss = _global_loss(experiment, state, executor, round, ranks) if wanted else None
    tests, by_class = experiment.client_tests, _by_class(experiment, scored)
    if tests is None:
        return Scores(loss, metrics, _proxy(experiment, scored), global_loss, sent, by_class)
    found = _scored_clients(
        experiment, state, tests, state_of, whole=scored, executor=executor, round=round, ranks=ranks
    )
    headline = experiment.task.headline
    each = None if found is None else client_scores.by_client(headline, *found)
    over = {} if each is None else measured(headline.name, each, headline.higher_is_better)
    return Scores(loss, metrics, over, global_loss, sent, by_class)


def _received(
    experiment: Experiment, state: GlobalState, executor: Executor | None, round: int, ranks: Ranks
) -> dict[str, float]:
    """Loss and metrics of φ as clients read it in the message of the next round."""
    message = received(experiment.method, broadcast(experiment, state, round + 1), state.theta)
    state = replace(state, theta=message["model"])
    scored = _scored(experiment, state, experiment.test, executor, ranks)
    loss, metrics = _values(experiment, state, scored, experiment.test, "the test set", round)
    return {"loss": loss, **metrics}


def wants_global_loss(experiment: Experiment) -> bool:
    """Whether the loss on all clients' data is measured."""
    return experiment.scenario.global_loss or experiment.method.keeps_best


def evaluate_on(
    experiment: Experiment,
    state: GlobalState,
    data: object,
    metrics: Sequence[object] = (),
    *,
    padding: Padding = None,
    round: int = 0,
) -> dict[str, float]:
    """The loss and the metrics of a model on data of the user's own, by name; the task's metrics follow those given.

    The same pass as that over the test set, without the executor.
    """
    bound = replace(experiment, task=task_of(experiment.task, metrics))
    kind = "own" if experiment.scenario.task == "own" else experiment.task.name
    samples = judged_by(data, experiment.federation, task=kind, padding=padding).to(experiment.device)
    check_counts(samples, bound.task, "of the data to evaluate")
    with bound.arithmetic():
        state = handed_over(experiment.method, state)
        scored = _scored(bound, state, samples, None)
        loss, values = _values(bound, state, scored, samples, "the data to evaluate", round)
    return {"loss": loss, **values}


def _values(
    experiment: Experiment, state: GlobalState, scored: Scored, samples: Samples, where: str, round: int
) -> tuple[float, dict[str, float]]:
    """The loss, and the metrics that these samples define. A loss that is not a finite number is refused."""
    loss = _mean_loss(scored)
    if not math.isfinite(loss):
        raise _not_finite(experiment, state, _losses(scored), samples, where, round)
    values = {metric.name: metric.of(scored[f"metric/{metric.name}"]) for metric in experiment.task.metrics}
    return loss, {name: value for name, value in values.items() if math.isfinite(value)}


def _scored_clients(
    experiment: Experiment,
    state: GlobalState,
    tests: ClientTests,
    state_of: StateOf | None,
    *,
    whole: Scored | None = None,
    executor: Executor | None = None,
    round: int = 0,
    ranks: Ranks = ALONE,
) -> tuple[Scored, Sequence[np.ndarray]] | None:
    """What the clients' own test samples contribute, and which rows are whose; `whole` is what the test set does.

    One pass over all of them, or none where they are the test set. None where nobody says what clients keep, and they
    have their own statistics.
    """
    if client_scores.has_own_statistics(experiment):
        if state_of is None:
            return None
        most = CHUNK["cpu" if experiment.network.joint else experiment.device.type]
        return client_scores.scored_by_client(experiment, state, state_of, most, round)
    if tests.samples is experiment.test and whole is not None:
        return whole, tests.rows
    scored = _scored(experiment, state, tests.samples, executor, ranks)
    losses = _losses(scored)
    if not bool(losses.isfinite().all()):
        raise _not_finite(experiment, state, losses, tests.samples, "the clients' test samples", round)
    return scored, tests.rows


ClientTable = dict[str, np.ndarray]
"""Columns by name, with a row for each client."""


def client_table(experiment: Experiment, state: GlobalState, state_of: StateOf) -> ClientTable | None:
    """A row for each client with test samples: its number, how many it has, and the task's metrics on them.

    None where no client has any. A metric that a client's samples do not define is NaN.
    """
    tests = experiment.client_tests
    if tests is None:
        return None
    with experiment.arithmetic():
        found = _scored_clients(experiment, handed_over(experiment.method, state), tests, state_of)
    assert found is not None
    scored, rows = found
    sizes = np.array(list(map(len, rows)))
    table: ClientTable = {"client": np.arange(len(rows)), "samples": sizes}
    for metric in experiment.task.metrics:
        table[metric.name] = client_scores.by_client(metric, scored, rows)
    return {name: column[sizes > 0] for name, column in table.items()}


def _answered(experiment: Experiment, scored: Scored) -> tuple[np.ndarray, np.ndarray] | None:
    """Whether each test sample was answered rightly, and its class; None where samples have not one class each."""
    correct = scored.get("metric/accuracy")
    measured = METRICS["accuracy"] in experiment.task.metrics  # a user's own may have this name, too
    if not measured or not experiment.federation.is_labelled or not isinstance(correct, Tensor) or correct.dim() != 1:
        return None
    return correct.numpy(), experiment.federation.test.labels.numpy()


def _class_accuracies(correct: np.ndarray, labels: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """How many test samples each class has, and the accuracy on them, 0 where there are none; of shape (classes,).

    In NumPy, on one thread: for so little, torch would wake one on every core.
    """
    counts = np.bincount(labels, minlength=classes)
    hits = np.bincount(labels, weights=correct, minlength=classes)
    return counts, hits / np.maximum(counts, 1)


def _by_class(experiment: Experiment, scored: Scored) -> dict[str, float]:
    """The accuracy on each class that has test samples; empty where there are too many classes, or none."""
    answered, classes = _answered(experiment, scored), experiment.federation.classes
    if answered is None or classes > CLASSES_RECORDED:
        return {}
    counts, accuracies = _class_accuracies(*answered, classes)
    return {str(label): float(accuracies[label]) for label in np.flatnonzero(counts)}


def _proxy(experiment: Experiment, scored: Scored) -> OverClients:
    """Over clients without test samples: their accuracies by their class mixes."""
    if experiment.federation.is_elsewhere:
        return {}  # what classes a client has is known to itself alone
    answered = _answered(experiment, scored)
    return {} if answered is None else proxy(_by_client(experiment.class_mixes, *answered))


def _by_client(mixes: np.ndarray, correct: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Accuracies of clients: the classes' own, weighted by each client's mix over those that have test samples."""
    counts, by_class = _class_accuracies(correct, labels, mixes.shape[1])
    seen = mixes * (counts > 0)
    judged = seen[seen.sum(1) > 0]
    accuracies: np.ndarray = (judged / judged.sum(1, keepdims=True) * by_class).sum(1)
    return accuracies
