"""What a user gives from Python: a model, data sets and a method, by name or as objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TypedDict, cast

from torch import nn

from headway.data.own_partition import split
from headway.data.own_samples import Padding
from headway.data.own_tests import OwnClients
from headway.errors import UserError, shown
from headway.methods.method import Method
from headway.methods.spelling import method as spelled
from headway.scenario import Scenario
from headway.tasks.known import OwnTask


class OwnObjects(TypedDict, total=False):
    """A user's own model, data and task; what is not given is as the scenario names it."""

    model: nn.Module
    clients: OwnClients
    test: object
    task: OwnTask
    metrics: Sequence[object]
    padding: Padding


Clients = int | OwnClients
"""A number of clients, or one dataset for each, in order or by name."""


Metrics = str | Sequence[object]
"""Names of metrics, separated by commas, or metrics as names and objects."""


def listed(metrics: object) -> Sequence[object]:
    """Metrics one by one."""
    if isinstance(metrics, str):
        return [name.strip() for name in metrics.split(",") if name.strip()]
    if not isinstance(metrics, tuple | list):
        raise UserError(
            f"metrics is of type {type(metrics).__name__}; give names separated by commas, or a list of names, "
            "functions of (output, target), headway.Metric or metrics of torchmetrics"
        )
    return metrics


_SETTINGS = {"model": str, "clients": Integral, "task": str, "metrics": str}
"""What may be given as a setting of the scenario or as an object: of these types it is a setting."""


def split_settings(settings: Mapping[str, object], **given: object) -> tuple[dict[str, object], OwnObjects]:
    """(settings, objects): a model that is named and clients that are counted are settings of the scenario.

    One dataset is shared among a number of clients by the partition that is given with it.
    """
    if "data" in settings and not isinstance(settings["data"], str):
        settings, given = _shared(settings, given)
    named = {name for name, kind in _SETTINGS.items() if isinstance(given.get(name), kind)}
    objects = own_objects(**{name: value for name, value in given.items() if name not in named})
    return {**settings, **{name: given[name] for name in named}}, objects


def _shared(settings: Mapping[str, object], given: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Settings and objects in which one dataset has become that of each client."""
    left, clients = dict(settings), given.get("clients")
    data, partition, seed = left.pop("data"), left.pop("partition", None), left.pop("split_seed", 0)
    if not isinstance(partition, str) or not isinstance(clients, Integral):
        raise UserError(
            f"data is {shown(data)}; a dataset of your own needs a partition and a number of clients beside it: "
            "data=…, partition='dirichlet:0.3', clients=20"
        )
    if not isinstance(seed, Integral):
        raise UserError(f"split_seed is {shown(seed)}; it must be a whole number")
    padding = cast(Padding, given.get("padding"))
    return left, {**given, "clients": split(data, partition, int(clients), seed=int(seed), padding=padding)}


def given_again(scenario: Scenario, **given: object) -> OwnObjects:
    """A user's own objects for a run that goes on; what is named must be what the run was made with."""
    named, objects = split_settings({}, **given)
    for name, value in named.items():
        was = getattr(scenario, name)
        if value != was:
            raise UserError(
                f"{name} is {shown(value)}, but the run was made with {shown(was)}; leave it out, or start a new run"
            )
    return objects


def own_objects(**given: object) -> OwnObjects:
    """What was given, by name."""
    if given.get("metrics") is not None:
        given["metrics"] = listed(given["metrics"]) or None
    return cast(OwnObjects, {name: value for name, value in given.items() if value is not None})


def own_settings(objects: OwnObjects) -> dict[str, str]:
    """The settings that say that the model or the data are a user's own."""
    model = {"model": "own"} if "model" in objects else {}
    return {**model, **({"data": "own", "partition": "own"} if "clients" in objects else {})}


def catalogue_method(name: str) -> Method | None:
    """The catalogue's method with this name; None for the name of a user's own."""
    try:
        return spelled(name)
    except UserError:
        return None


def checked_method(method: str | Method) -> Method:
    """A method, or the one that is spelled. A user's own needs another name than the catalogue's: folders keep that."""
    built = spelled(method)
    known = built if isinstance(method, str) else catalogue_method(built.name)
    if known is not None and known != built:
        raise UserError(
            f"a method of your own has the name of the catalogue's '{built.name}'; give it another: Method(…, name=…)"
        )
    return built
