"""A sweep: every candidate of a grid is trained, and the best is chosen by samples held out of training.

The test set has no part in it: the runs of a sweep never see it, and no number of it is written or shown.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Unpack

from torch import nn

from headway.data.own_samples import Padding
from headway.errors import UserError, shown
from headway.runs.files import as_path, slug, write_checked
from headway.runs.given import Clients, Metrics, OwnObjects, split_settings
from headway.runs.lanes.jobs import Jobs, continued, jobs_of, keep_threads
from headway.runs.observer import Observer, Unwatched, as_observer
from headway.runs.resume import check_lengthens
from headway.runs.series import Series
from headway.scenario import Scenario
from headway.tasks.known import OwnTask
from headway.tuning.grid import Candidate, GridLike, candidates
from headway.tuning.halving import Stage, stages
from headway.tuning.request import Request, reserve
from headway.tuning.results import Sweep
from headway.tuning.runner import Runner
from headway.typed_settings import Settings


def sweep(
    method: str,
    grid: GridLike,
    scenario: str | Path | Scenario = "",
    *,
    budget: int | None = None,
    model: str | nn.Module | None = None,
    clients: Clients | None = None,
    test: object = None,
    task: str | OwnTask | None = None,
    metrics: Metrics = (),
    padding: Padding = None,
    out: str | Path | None = None,
    observer: Observer | None = None,
    jobs: int | str | None = None,
    devices: str | Sequence[str] | None = None,
    **settings: Unpack[Settings],
) -> Sweep:
    """Train every candidate of a grid and choose the best by held-out samples of the clients.

    >>> sweep("fedacg", {"lam": [0.8, 0.85, 0.9], "rate_decay": [0.995, 0.998]}, rounds=30).best
    >>> sweep("fedacg", "papers", "cifar10/dir0.3/100x5%", budget=5000, out="runs/tuned")

    `budget` is the number of rounds of all candidates together (successive halving); else each gets the scenario's.
    `out` keeps the runs: the same call goes on where it stopped. `jobs` and `devices` are as of `compare`: the
    candidates of a stage are trained at the same time.
    """
    at_once = jobs_of(jobs, devices)
    if not isinstance(method, str):
        raise UserError("a sweep takes a method by its name, such as 'fedacg': its arguments are what is tried")
    if observer is not None:
        as_observer(observer)
    named, own = split_settings(
        settings, model=model, clients=clients, test=test, task=task, metrics=metrics, padding=padding
    )
    request = Request.checked(method, grid, scenario, _whole(budget), named, sorted(own))
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            return dataclasses.replace(_run(request, Path(folder), own, observer, at_once), folder=None)
    return _run(request, as_path("out", out), own, observer, at_once)


def _whole(budget: object) -> int | None:
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, Integral)):
        raise UserError(f"budget is {shown(budget)}; it must be a whole number of rounds")
    return None if budget is None else int(budget)


def default_folder(
    method: str, grid: GridLike, scenario: str, budget: int | None, settings: Mapping[str, object]
) -> Path:
    """A folder under runs/ that is the same for the same request, so that the same command goes on."""
    request = Request.checked(method, grid, scenario, budget, settings)
    digest = hashlib.sha256(json.dumps(request.numbers, sort_keys=True).encode()).hexdigest()[:8]
    return Path("runs", "sweep", f"{slug(request.method)[:40]}-{digest}")


def _run(request: Request, out: Path, own: OwnObjects, observer: Observer | None, jobs: Jobs | None) -> Sweep:
    """The sweep in a folder, from its start or from where it stopped."""
    every = candidates(request.method, request.grid, request.scenario)
    plan = stages(len(every), request.scenario.seeds, request.scenario.rounds, request.budget)
    check_plan(every, plan, request.scenario)
    with Series(observer or Unwatched(), own=own, jobs=continued(out, jobs)) as series:
        return sweep_in(request, every, plan, out, series, observer)


def check_plan(every: Sequence[Candidate], plan: Sequence[Stage], scenario: Scenario) -> None:
    """Refuse stages where runs cannot go on to more rounds, as the best of a stage do."""
    for one in every if len(plan) > 1 else ():
        check_lengthens(scenario.with_settings(one.settings))


def sweep_in(
    request: Request,
    every: Sequence[Candidate],
    plan: Sequence[Stage],
    out: Path,
    series: Series,
    observer: Observer | None,
) -> Sweep:
    """The sweep of these candidates in these stages, in a folder, from its start or from where it stopped."""
    about = request.about()
    reserve(out, about)
    keep_threads(out, series.jobs)
    runner = Runner(request.scenario, out, series, observer)
    trials = runner.all_stages(every, plan)
    found = Sweep(
        method=request.method,
        grid=request.grid,
        scenario=request.scenario,
        stages=list(plan),
        trials=trials,
        headline=runner.headline,
        folder=out,
        source=request.source,
        settings=dict(request.settings),
        ran=runner.ran(every),
    )
    write_checked(out / "sweep.json", {"finished": True, **found.as_dict(), **about})
    return found
