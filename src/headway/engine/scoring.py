"""A model's outputs and losses in evaluation mode, sample by sample."""

from __future__ import annotations

from headway.data.columns import Tensors
from headway.engine.experiment import Experiment
from headway.engine.network import Buffers
from headway.tasks.metrics import Answer, Rows
from headway.trees import tree_map
from headway.vectors import Vector

Scored = dict[str, Rows]
"""What each sample contributes to the loss (its losses, and how many units these are means over) and to each metric."""


def outputs(experiment: Experiment, w: Vector, buffers: Buffers, x: Tensors) -> Answer:
    """The network's outputs for raw samples."""
    inputs = experiment.federation.inputs(x, experiment.dtype)
    with experiment.forward_precision():
        answer = experiment.network.evaluate(w, buffers, inputs)
    return tree_map(lambda part: part.to(experiment.dtype), answer)  # type: ignore[no-any-return]


def score(experiment: Experiment, w: Vector, buffers: Buffers, x: Tensors, y: Tensors) -> Scored:
    """What each of these samples contributes; losses are in float64."""
    task = experiment.task
    judged = task.judged(outputs(experiment, w, buffers, x), experiment.targets(y))
    scored: Scored = {"loss": judged.losses.double()}
    if judged.units is not None:
        scored["units"] = judged.units.double()
    return scored | {f"metric/{metric.name}": metric.rows_of(judged) for metric in task.metrics}
