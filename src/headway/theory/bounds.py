"""`bounds`: what a paper's theorems say of its method on a problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import nn

from headway.data.own_samples import Padding
from headway.engine.experiment import Experiment
from headway.errors import UserError, shown
from headway.runs.given import Clients, Metrics, split_settings
from headway.runs.observer import Observer, Silent, as_observer
from headway.scenario import Scenario, scenario_of
from headway.tasks.known import OwnTask
from headway.theory import fednag_bounds, rate_bounds
from headway.theory.convex import is_logistic
from headway.theory.request import Request
from headway.theory.result import Bounds


def bounds(
    method: str,
    scenario: str | Path | Scenario = "",
    *,
    constants: Mapping[str, float] | None = None,
    taus: Sequence[int] = (1, 4, 16),
    total: int = 64,
    eta: float | None = None,
    points: int = 4,
    trained: int = 6,
    look_at: int = 10,
    model: str | nn.Module | None = None,
    clients: Clients | None = None,
    test: object = None,
    task: str | OwnTask | None = None,
    metrics: Metrics = (),
    padding: Padding = None,
    out: str | Path | None = None,
    observer: Observer | None = None,
    **settings: object,
) -> Bounds:
    """What the theorems of FedNAG, FedACG or GradMA say of a problem: step sizes, rates, bounds beside gaps.

    >>> bounds("fedacg:lam=0.85", "cifar10/dir0.3/100x5%").limits
    >>> bounds("fednag:gamma=0.5", model="linear", weight_decay=0.01, clients=10, taus=[1, 4, 8]).gaps
    >>> bounds("fedacg", constants={"L": 10, "sigma": 1, "sigma_g": 1, "B": 1, "gap": 2.3}, steps=50).limits

    `constants` take the place of what would be found on the data; where all are given, no data is read. On networks
    they are estimated at `points` points, the first parameters and those of a run of `trained` rounds, and curvature
    on `look_at` clients. On logistic regression with an L2 term (`model="linear"`, `weight_decay` above 0) FedNAG and
    FedAvg are run for `total` steps, once for each of `taus`, and their gaps stand beside the bounds; `eta` is their
    step size, else the largest of 1/(β(1+γ)) · 1, ½, ¼, … for which all conditions hold. `out` is a folder.
    """
    if not isinstance(method, str):
        raise UserError("bounds takes a method by its name, such as 'fednag': its theorem is known by that")
    if not isinstance(taus, list | tuple):
        raise UserError(f"taus is {shown(taus)}; it must be a list of whole numbers")
    if constants is not None and not isinstance(constants, Mapping):
        raise UserError(f"constants is {shown(constants)}; it must be a dictionary such as {{'L': 10.0}}")
    named, own = split_settings(
        settings, model=model, clients=clients, test=test, task=task, metrics=metrics, padding=padding
    )
    chosen = scenario_of(scenario, named)
    request = Request(
        method=method.strip(),
        scenario=chosen.changed(method=None, seeds=1),
        own=own,
        observer=Silent() if observer is None else as_observer(observer),
        given=dict(constants or {}),
        taus=tuple(taus),
        total=total,
        eta=eta,
        points=points,
        trained=trained,
        look_at=look_at,
    )
    found = _found(request)
    if out is not None:
        found.write(out)
    return found


def _found(request: Request) -> Bounds:
    experiment = None if request.has_all else _experiment(request)
    if request.entry == "fedacg":
        return rate_bounds.of_fedacg(request, experiment)
    if request.entry == "gradma":
        return rate_bounds.of_gradma(request, experiment)
    if experiment is None:
        return fednag_bounds.of_constants(request)
    if is_logistic(experiment) and experiment.scenario.weight_decay > 0 and not request.given:
        return fednag_bounds.of_convex(request, experiment)
    return fednag_bounds.of_network(request, experiment)


def _experiment(request: Request) -> Experiment:
    experiment = request.experiment()
    rate_bounds.check_samples(experiment)
    return experiment
