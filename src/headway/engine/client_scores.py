"""The task's headline for each client by itself, on the samples that judge it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from headway.data.held_out import one_after_another
from headway.engine.client_rounds import StateOf
from headway.engine.experiment import Experiment
from headway.engine.scoring import Scored, score
from headway.engine.server import GlobalState
from headway.errors import ServerDiverged
from headway.tasks.metrics import Metric, Rows, mean_of
from headway.trees import tree_map


def by_client(metric: Metric, scored: Scored, clients: Sequence[np.ndarray]) -> np.ndarray:
    """The metric of each client's rows, shape (clients,); NaN for a client whose rows do not define it."""
    rows = scored[f"metric/{metric.name}"]
    if metric.value is mean_of and isinstance(rows, Tensor):
        return _means(rows.double().numpy(), clients)
    return np.array([_value(metric, rows, own) for own in clients])


def _value(metric: Metric, rows: Rows, own: np.ndarray) -> float:
    if not len(own):
        return np.nan
    places = torch.as_tensor(own)
    return metric.of(tree_map(lambda part: part[places], rows))


def _means(rows: np.ndarray, clients: Sequence[np.ndarray]) -> np.ndarray:
    """`mean_of` for all clients at once."""
    pairs = rows if rows.ndim == 2 else np.stack([rows, np.ones(len(rows))], axis=1)
    sums = np.array([pairs[own].sum(0) for own in clients])
    with np.errstate(invalid="ignore"):
        means: np.ndarray = sums[:, 0] / sums[:, 1]
    return means


def has_own_statistics(experiment: Experiment) -> bool:
    """Whether each client is judged with its own buffers, so that one pass does not score them all."""
    network = experiment.network
    return experiment.scenario.buffers == "keep-local" and (network.joint or bool(network.buffers))


def scored_by_client(
    experiment: Experiment, state: GlobalState, state_of: StateOf, most: int, round: int
) -> tuple[Scored, list[np.ndarray]]:
    """What the samples of each client contribute, client after client, and which rows are whose.

    A client that took part is judged with its own statistics; one that never did, as the server's model is: with
    those of the samples at hand.
    """
    tests = experiment.client_tests
    assert tests is not None
    parts: list[Scored] = []
    for client, rows in enumerate(tests.rows):
        kept = state_of(0 if experiment.method.pooled else client) if len(rows) else None
        own = nullcontext() if kept is None else experiment.network.own_statistics()
        buffers = state.buffers if kept is None else kept["buffers"]
        with own:
            for places in np.array_split(rows, -(-len(rows) // most)) if len(rows) else ():
                samples = tests.samples.read(torch.as_tensor(places, device=experiment.device))
                parts.append(score(experiment, state.theta, buffers, *samples))
                _check_finite(experiment, parts[-1], client, round)
    scored: Scored = tree_map(lambda *found: torch.cat(found).cpu(), *parts)
    return scored, one_after_another(list(map(len, tests.rows)))


def _check_finite(experiment: Experiment, scored: Scored, client: int, round: int) -> None:
    losses = scored["loss"]
    assert isinstance(losses, Tensor)
    if not bool(losses.isfinite().all()):
        raise ServerDiverged(
            f"round {round}: on the test samples of client {client} the model's outputs are not finite with the "
            f"statistics that it keeps; {experiment.advice}"
        )
