"""The check of a deployment: the same rounds, simulated from the sites' data in one place, and the gap between both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from headway.data.own_tests import OwnClients
from headway.deploy.apps import ServerApp, built_model
from headway.deploy.data import read_given
from headway.errors import UserError
from headway.runs.checkpoint import read_tensors
from headway.runs.files import as_path
from headway.runs.folder import manifest
from headway.runs.folder import read as read_folder
from headway.runs.given import checked_method
from headway.runs.observer import Observer
from headway.runs.result import Result
from headway.runs.start import simulate
from headway.scenario import Scenario


def replay(
    app: ServerApp,
    clients: OwnClients,
    run: str | Path,
    *,
    out: str | Path | None = None,
    observer: Observer | None = None,
) -> Result:
    """Simulate the rounds of a deployment: who arrived, in which order and with how many steps.

    The method is that of the run, also where `app` names another. `clients` are the data of the sites in the order of
    the roster, each in any form that a site's app takes. Where a deployment has no scores, those of the simulation are
    on the first site's samples and say nothing.
    """
    folder = as_path("run", run)
    found = read_folder(folder)
    plain, played = Scenario(), found.scenario.method
    settings = {
        field.name: value
        for field in fields(Scenario)
        if (value := getattr(found.scenario, field.name)) != getattr(plain, field.name)
    }
    for name in ("method", "data", "partition", "clients", "model", "task", "metrics", "over_selection"):
        settings.pop(name, None)
    model = built_model(app.model, found.scenario.seed)
    data = [read_given(one) for one in (clients.values() if isinstance(clients, Mapping) else clients)]
    judged = app.test is not None or found.scenario.client_test is not None
    return simulate(
        app.method if played in (None, checked_method(app.method).name) else played,
        model=app.model if model is None and isinstance(app.model, str) else model,
        clients=data,
        test=app.test if judged else data[0],
        task=app.task if app.task is not None else found.scenario.task,
        metrics=app.metrics or found.scenario.metrics or (),
        padding=app.padding,
        out=out,
        observer=observer,
        **{**settings, "attendance": str(folder), "executor": "serial", "rounds": len(found.rounds.records)},
    )


def gap(run: str | Path, result: Result) -> float:
    """The largest difference between a number of a deployment's model and the same of a simulation.

    Statistics that stay at the sites are no part of the server's model.
    """
    folder = as_path("run", run)
    found = manifest(folder)
    if found is None:
        raise UserError(f"{folder} has no checkpoint yet")
    deployed = read_tensors(folder / "checkpoint" / found["server"], found["sha256"])
    simulated = result.model.state_dict()
    stay = read_folder(folder).scenario.buffers == "keep-local"
    parts = ("model/",) if stay else ("model/", "buffers/")
    names = {name.partition("/")[2]: leaf for name, leaf in deployed.items() if name.startswith(parts)}
    if not names or not names.keys() <= simulated.keys():
        raise UserError(f"{folder} holds another model than the simulation's")
    return max(float((leaf.double() - simulated[name].double()).abs().max()) for name, leaf in names.items())
