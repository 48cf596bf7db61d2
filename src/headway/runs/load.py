"""A run from its folder: its records alone, with its model, or bound to its data again to go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import safetensors.torch
from torch import nn

from headway.data.own_samples import Padding
from headway.engine.building import build
from headway.engine.evaluation import ClientTable, client_table
from headway.engine.experiment import Experiment
from headway.errors import UserError
from headway.methods.method import Method
from headway.methods.spelling import method as spelled
from headway.records import RoundRecord
from headway.runs import best_models, roster, splits
from headway.runs.attendance import attendance_of
from headway.runs.callbacks.best import Watched, best_of
from headway.runs.checkpoint import Checkpoint
from headway.runs.files import as_path
from headway.runs.fingerprints import changed_since
from headway.runs.folder import UNCHECKED, RunFolder, verify
from headway.runs.folder import read as read_folder
from headway.runs.folder import scenario as scenario_in
from headway.runs.given import Clients, Metrics, OwnObjects, catalogue_method, checked_method, given_again
from headway.runs.observer import Observer, as_observer
from headway.runs.result import Result
from headway.scenario import Scenario
from headway.tasks.known import OwnTask


def load_run(
    run: str | Path,
    *,
    method: Method | None = None,
    model: str | nn.Module | None = None,
    clients: Clients | None = None,
    test: object = None,
    task: str | OwnTask | None = None,
    metrics: Metrics = (),
    padding: Padding = None,
    observer: Observer | None = None,
) -> Result:
    """A run as its folder has it: its model is that of the last checkpoint."""
    folder = as_path("run", run)
    own = given_again(
        scenario_of_run(folder), model=model, clients=clients, test=test, task=task, metrics=metrics, padding=padding
    )
    experiment = experiment_of(folder, method, own)
    return warned_if_unchecked(loaded(experiment, folder), as_observer(observer))


def recorded(folder: Path, observer: Observer | None = None, verified: bool = False) -> Result:
    """A run as its files tell it, without its data; its model is loaded when it is first used.

    `verified`: the checkpoint and the split are read too, so that nothing of the folder is damaged.
    """
    scenario_of_run(folder)
    found = verify(folder) if verified else read_folder(folder)
    if found.manifest is None and not found.finished:
        raise UserError(f"{folder} has no checkpoint yet")
    result = _result(
        found, lambda: loaded(experiment_of(folder), folder).model, lambda: _best(found, experiment_of(folder))
    )
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
    output = progress.output(experiment)
    module = experiment.network.module(output.theta, output.buffers)
    result = _result(found, lambda: module, lambda: _best(found, experiment))
    kept = checkpoint.read()

    def clients() -> ClientTable | None:
        if changed := changed_since(kept, experiment):
            raise UserError(
                f"what is given is not what {folder} was run with, so that its clients' table would be another run's: "
                f"{', '.join(changed)} changed"
            )
        return client_table(experiment, progress.model, store.get)

    return replace(result, make_clients=clients)


def _clients_of(result: Result) -> ClientTable | None:
    return None if result.make_clients is None else result.make_clients()


def _best(found: RunFolder, experiment: Experiment) -> nn.Module:
    return best_module(experiment, found.path, found.rounds.records)


def best_module(
    experiment: Experiment, folder: Path | None, rounds: Sequence[RoundRecord], content: bytes | None = None
) -> nn.Module:
    """The network of a run's best round: from its folder, or of what was kept in memory.

    A folder whose best model is not that of its rounds is refused.
    """
    if folder is None and content is not None:
        tensors = safetensors.torch.load(content)
    else:
        kept = best_models.best_of(folder)
        assert folder is not None
        tensors = best_models.tensors(folder, kept)
        _check_best(folder, kept, rounds)
    module = experiment.network.module(experiment.network.parameters, experiment.network.buffers)
    module.load_state_dict(tensors)
    return module


def _check_best(folder: Path, kept: best_models.KeptModel, rounds: Sequence[RoundRecord]) -> None:
    best_models.check_of_run(folder, kept, rounds)
    found = best_models.read(folder)
    assert found is not None
    best = best_of(Watched(found.metric, found.higher_is_better, expected=True), rounds)
    if (best.round, best.value) != (kept.round, kept.value):
        raise UserError(
            f"{folder} has the model of round {kept.round} for its best, but by {found.metric} that is round "
            f"{best.round}, which was run without KeepBest; {folder / best_models.FOLDER} holds what was kept"
        )


def _result(found: RunFolder, make_model: Callable[[], nn.Module], make_best: Callable[[], nn.Module]) -> Result:
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
        stopped=found.stopped,
        make_best=make_best,
        make_split=lambda: splits.table_in(found.path),
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
    if (folder / roster.NAME).is_file() and "clients" not in own:
        return build(scenario, _method_of(folder, scenario, method), **own, federation=roster.read(folder).federation)
    if scenario.data == "own" and "clients" not in own:
        raise UserError(f"{folder} was run with its own data; give it again: headway.resume(…, clients=…, test=…)")
    return build(scenario, _method_of(folder, scenario, method), **own, attendance=attendance_of(scenario))


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
