"""Which task a run learns: the one that is named, a user's own, or the one that the data leaves no doubt of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from headway.data.federation import Federation
from headway.errors import UserError
from headway.measure.numbers import MethodNumbers, RunNumbers
from headway.methods.method import Method
from headway.records import RoundRecord
from headway.scenario import Scenario
from headway.tasks.known import OwnTask, task_of
from headway.tasks.metrics import METRICS, Metric, in_words, loss
from headway.tasks.named_metrics import metric_of
from headway.tasks.task import IGNORED, Task

LOOKED_AT = 100
"""How many samples are looked at for labels that are their inputs."""
OWN = "own:"
"""Before the name of a user's own metric, in a scenario."""


def task_for(scenario: Scenario, federation: Federation, own: OwnTask | None, metrics: Sequence[object]) -> Task:
    """The task with its metrics."""
    if own is None and scenario.task == "own":
        raise UserError("the task is one of your own; give it: task=my_loss, a function of (output, target)")
    given = own if own is not None else scenario.task if scenario.task != "auto" else _inferred(federation)
    if isinstance(given, str):
        _check_fits(given, federation)
    if scenario.loss == "squared" and given not in ("classification", "regression"):
        name = given if isinstance(given, str) else "one of your own"
        raise UserError(f"loss is 'squared', which is for classification and regression, but the task is {name}")
    task = task_of(given, metrics or _named(scenario), squared=scenario.loss == "squared")
    for metric in task.metrics:
        _check_name(metric)
    return task


_TAKEN = {*RoundRecord.__annotations__, *RunNumbers.__annotations__, *MethodNumbers.__annotations__} - METRICS.keys()
"""Names in records and summaries, which a metric of the user's own may not take."""


def _check_name(metric: Metric) -> None:
    name = metric.name
    formed = name.startswith(("smoothed_", "last_", "best_")) or name.endswith(("_smoothed", "_std", "_each"))
    if metric != loss and (name in _TAKEN or formed):
        raise UserError(f"a metric is called '{name}', which is a name of Headway's own; call it otherwise")


def named_task(scenario: Scenario, own: OwnTask | None) -> str:
    """What a scenario calls the task: `own` where it is not one of those with a name."""
    return scenario.task if own is None else "own"


def named_metrics(scenario: Scenario, metrics: Sequence[object]) -> str | None:
    """What a scenario calls the metrics; the user's own have `own:` before their names."""
    if not metrics:
        return scenario.metrics
    return ",".join(one if isinstance(one, str) else f"{OWN}{metric_of(one, 'own').name}" for one in metrics)


def _named(scenario: Scenario) -> list[str]:
    names = [name.strip() for name in (scenario.metrics or "").split(",") if name.strip()]
    for name in names:
        if name.startswith(OWN):
            raise UserError(f"the metric '{name.removeprefix(OWN)}' is one of your own; give it: metrics=[…]")
    return names


def _inferred(federation: Federation) -> str:
    """The task where the targets leave no doubt."""
    y = federation.train.y
    if not isinstance(y, Tensor):
        raise UserError("a sample has several targets; give a loss that reads them: task=my_loss")
    if y.is_floating_point():
        return "regression"
    if y.dim() == 1:
        return "classification"
    if federation.train.are_texts:
        return "tokens"
    raise UserError(
        f"a sample has targets of shape {tuple(y.shape[1:])}; say what is learnt: --task tokens, segmentation or "
        "multilabel"
    )


def _check_fits(task: str, federation: Federation) -> None:
    """Refuse targets of another kind than the task's."""
    y = federation.train.y
    assert isinstance(y, Tensor)
    numbers = task in ("regression", "binary", "multilabel")
    if numbers != y.is_floating_point():
        found = "numbers" if y.is_floating_point() else f"{federation.classes} classes"
        raise UserError(f"the task is {task}, but the targets of this data are {found}; take {_fitting(y)}")
    several = task in ("tokens", "segmentation", "multilabel")
    if (several and y.dim() == 1) or (task == "classification" and y.dim() > 1):
        raise UserError(
            f"the task is {task}, but a target of this data has shape {tuple(y.shape[1:])}; take {_fitting(y)}"
        )


def _fitting(y: Tensor) -> str:
    """The tasks that learn targets of this kind."""
    if y.is_floating_point():
        return "regression or binary" if y.dim() == 1 else "regression or multilabel"
    return "classification" if y.dim() == 1 else "tokens, segmentation or multilabel"


def check_shifted(federation: Federation, task: Task) -> None:
    """Refuse tokens whose targets are the inputs themselves, as models of transformers take labels: they shift them."""
    x, y = federation.train.read(slice(LOOKED_AT))
    ids = x.get("input_ids") if isinstance(x, Mapping) else None
    if task.name != "tokens" or ids is None or not isinstance(y, Tensor) or ids.shape != y.shape:
        return
    counted = y != IGNORED
    if bool(counted.any()) and torch.equal(ids[counted], y[counted]):
        raise UserError(
            "the labels are the input_ids themselves, which a model has only to copy; the label of a token is the one "
            "after it: input_ids = t[:-1], labels = t[1:]"
        )


def check_target(scenario: Scenario, method: Method, federation: Federation, task: Task) -> None:
    """Refuse a target that the headline cannot reach, or a method that compares classes where there are none."""
    if scenario.target is not None:
        _check_reachable(scenario.target, task.headline)
    if "classes" in method.needs("model") and not federation.is_labelled:
        kind = "numbers" if not federation.classes else "not one class a sample"
        raise UserError(
            f"{method.name} compares the probabilities of classes, but the targets of this data are {kind}; use a "
            "method that does not, such as fedavg, or whole numbers as labels"
        )


def _check_reachable(target: float, headline: Metric) -> None:
    """Refuse a share outside of 0 to 1; any number may be the target of another metric."""
    if headline.percent and not 0 < target <= 1:
        limit = "above 0.0" if target <= 0 else "at most 1.0"
        raise UserError(f"target is {target:g}; it must be {limit}, as {in_words(headline.name)} is a share")
