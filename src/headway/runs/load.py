"""A run from its folder: its records alone, with its model, or bound to its data again to go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from headway.data.own_samples import Padding
from headway.data.own_tests import OwnClients
from headway.engine.building import build
from headway.engine.evaluation import ClientTable, client_table
from headway.engine.experiment import Experiment
from headway.errors import UserError
from headway.methods.method import Method
from headway.methods.spelling import method as spelled
from headway.runs import splits
from headway.runs.checkpoint import Checkpoint
from headway.runs.files import as_path
from headway.runs.folder import UNCHECKED, RunFolder, verify
from headway.runs.folder import read as read_folder
from headway.runs.folder import scenario as scenario_in
from headway.runs.given import OwnObjects, catalogue_method, checked_method, own_objects
from headway.runs.observer import Observer, Unwatched
from headway.runs.result import Result
from headway.scenario import Scenario
from headway.tasks.known import OwnTask


def load_run(
    run: str | Path,
    *,
    method: Method | None = None,
    model: nn.Module | None = None,
    clients: OwnClients | None = None,
    test: object = None,
    task: OwnTask | None = None,
    metrics: Sequence[object] = (),
    padding: Padding = None,
    observer: Observer | None = None,
) -> Result:
    """A run as its folder has it: its model is that of the last checkpoint."""
    folder = as_path("run", run)
    experiment = experiment_of(
        folder,
        method,
        own_objects(model=model, clients=clients, test=test, task=task, metrics=metrics, padding=padding),
    )
    return warned_if_unchecked(loaded(experiment, folder), observer or Unwatched())


def recorded(folder: Path, observer: Observer | None = None, verified: bool = False) -> Result:
    """A run as its files tell it, without its data; its model is loaded when it is first used.

    `verified`: the checkpoint and the split are read too, so that nothing of the folder is damaged.
    """
    scenario_of_run(folder)
    found = verify(folder) if verified else read_folder(folder)
    if found.manifest is None and not found.finished:
        raise UserError(f"{folder} has no checkpoint yet")
    result = _result(found, lambda: loaded(experiment_of(folder), folder).model)
    result = replace(result, make_clients=lambda: _clients_of(loaded(experiment_of(folder), folder)))
    return result if observer is None else warned_if_unchecked(result, observer)


def loaded(experiment: Experiment, folder: Path) -> Result:
    """The run in a folder with the model of its checkpoint."""
    checkpoint = Checkpoint(folder / "checkpoint", experiment)
    if not checkpoint.exists():
        raise UserError(f"{folder} has no checkpoint yet")
    found = read_folder(folder)
    splits.verify(folder, checkpoint.read()["split"])
    progress, store = checkpoint.load()
    module = experiment.network.module(progress.output.theta, progress.output.buffers)
    result = _result(found, lambda: module)
    return replace(result, make_clients=lambda: client_table(experiment, progress.model, store.get))


def _clients_of(result: Result) -> ClientTable | None:
    return None if result.make_clients is None else result.make_clients()


def _result(found: RunFolder, make_model: Callable[[], nn.Module]) -> Result:
    """A run as its files tell it."""
    source = found.summary if found.manifest is None else found.manifest
    executor = source.get("executor")
    if not isinstance(executor, str) or (found.manifest is None and "rounds" not in found.summary):
        raise UserError(f"{found.path / 'summary.json'} is damaged: it does not have rounds and executor")
    return Result(
        method=str(found.scenario.method),
        scenario=found.scenario,
        records=found.rounds.records,
        make_model=make_model,
        executor=executor,
        folder=found.path,
        checked=found.rounds.checked,
        cost=source.get("cost"),
    )


def warned_if_unchecked(result: Result, observer: Observer) -> Result:
    """The result, after telling the observer where its records could not be checked."""
    if not result.checked:
        observer.tell(UNCHECKED)
    return result


def scenario_of_run(folder: Path) -> Scenario:
    """The scenario in the folder of a run; a comparison's folder is refused."""
    if (folder / "study.json").is_file() and (folder / "scenario.toml").is_file():
        raise UserError(f"{folder} is a comparison; name one of its runs, such as {folder}/METHOD/seed-0")
    return scenario_in(folder)


def experiment_of(folder: Path, method: Method | None = None, own: OwnObjects | None = None) -> Experiment:
    """The run in a folder, bound to its data again; what is a user's own must be given again."""
    scenario, own = scenario_of_run(folder), own or {}
    if scenario.model == "own" and "model" not in own:
        raise UserError(f"{folder} was run with its own model; give it again: headway.resume(…, model=…)")
    if scenario.data == "own" and "clients" not in own:
        raise UserError(f"{folder} was run with its own data; give it again: headway.resume(…, clients=…, test=…)")
    return build(scenario, _method_of(folder, scenario, method), **own)


def _method_of(folder: Path, scenario: Scenario, given: Method | None) -> Method:
    """The method of a run: the catalogue's, or a user's own, given again; another would be another run."""
    if scenario.method is None:
        raise UserError(f"{folder / 'scenario.toml'} does not name a method")
    known = catalogue_method(scenario.method)
    given = None if given is None else spelled(given)
    if known is not None and given in (None, known):  # also in another spelling
        return known
    if given is None:
        raise UserError(
            f"{folder} was run with '{scenario.method}', which is not a method of the catalogue; if it is one of your "
            "own, give it again: headway.resume(…, method=…)"
        )
    if given.name != scenario.method:
        raise UserError(
            f"{folder} was run with '{scenario.method}', not with '{given.name}'; start a new run for another method"
        )
    return checked_method(given)
