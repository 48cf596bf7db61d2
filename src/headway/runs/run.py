"""One run, from its first round to its summary: started, interrupted, resumed, loaded."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn

from headway.engine import simulation
from headway.engine.building import build
from headway.engine.executor import Executor
from headway.engine.experiment import Experiment
from headway.engine.failures import in_words
from headway.engine.pool import STOPPING
from headway.engine.selection import inherited_executor
from headway.engine.simulation import Progress
from headway.engine.states import ClientStates
from headway.errors import ClientError, Diverged, Interrupted, MachineError, ServerDiverged, UserError, shown
from headway.measure.summary import summarise
from headway.methods.method import Method
from headway.methods.spelling import method as spelled
from headway.runs import execution, packed, records, splits
from headway.runs.checkpoint import Checkpoint, Pace
from headway.runs.environment import hardware_and_versions
from headway.runs.files import as_path, made, write_atomically, write_checked
from headway.runs.fingerprints import settle
from headway.runs.folder import ROUNDS, UNCHECKED, RunFolder, seal, sealed, verify
from headway.runs.folder import failure as failure
from headway.runs.folder import finished as finished
from headway.runs.folder import read as read_folder
from headway.runs.folder import scenario as scenario_in
from headway.runs.records import Rounds
from headway.runs.trackers.tracking import Tracker, Tracking, trackers
from headway.scenario import Scenario
from headway.scenario import scenario as scenario_of

if TYPE_CHECKING:
    import pandas


class Observer(Protocol):
    """Somebody who watches a run: a progress bar, a notebook, nobody."""

    def begins(self, experiment: Experiment, done: int, executor: str) -> None: ...
    def round(self, record: dict[str, Any]) -> None: ...
    def tell(self, message: str) -> None: ...


class Unwatched:
    """Nobody watches; the task is a line on standard error, and what must be said is a Python warning."""

    @cached_property
    def said(self) -> set[str]:
        return set()

    def begins(self, experiment: Experiment, done: int, executor: str) -> None:
        if experiment.task not in self.said and sys.stderr is not None:
            self.said.add(experiment.task)
            with contextlib.suppress(OSError, ValueError):  # a line that nobody can read stops no run
                print(f"headway: task: {experiment.task}", file=sys.stderr)

    def round(self, record: dict[str, Any]) -> None:
        pass

    def tell(self, message: str) -> None:
        warnings.warn(message, stacklevel=2)


_HOOKS = {"begins": 3, "round": 1, "tell": 1}
"""What an observer has, and with how many arguments each is called."""


def as_observer(given: Observer | None) -> Observer:
    """Who watches; nobody, where nobody is given."""
    for name, count in _HOOKS.items() if given is not None else ():
        hook = getattr(given, name, None)
        try:
            fits = callable(hook) and inspect.signature(hook).bind(*[None] * count) is not None
        except TypeError:
            fits = False
        except ValueError:  # a hook that is not written in Python says nothing of its arguments
            fits = True
        if not fits:
            raise UserError(
                f"observer is {shown(given)}; it must have the methods begins(experiment, done, executor), "
                "round(record) and tell(message)"
            )
    return Unwatched() if given is None else given


@dataclass(frozen=True)
class Result:
    """A run as it stands: its records, its numbers and its model."""

    method: str
    scenario: Scenario
    records: list[dict[str, Any]] = field(repr=False)
    handed: Callable[[], nn.Module] = field(repr=False)
    executor: str
    folder: Path | None
    checked: bool = field(default=True, repr=False)
    """Whether the records could be checked; those of folders from before there were checksums cannot."""

    @cached_property
    def model(self) -> nn.Module:
        """The network as the run left it, in the run's type: float64 with `--precision fp64`, else float32."""
        return self.handed()

    @property
    def summary(self) -> dict[str, Any]:
        one = self.scenario
        about = {"name": self.method, "seed": one.seed, "executor": self.executor, "buffers": one.buffers}
        return {**about, **summarise(self.records, one.target, one.smoothing)}

    @property
    def rounds(self) -> pandas.DataFrame:
        """One row a round."""
        import pandas

        return pandas.DataFrame(self.records).set_index("round")

    def table(self) -> pandas.DataFrame:
        """The run's numbers, one to a line."""
        import pandas

        return pandas.DataFrame({self.method: self.summary})


class _Asked:
    """Whether a signal asked the run to stop, and which."""

    number: int | None = None


@contextmanager
def _asked_to_stop(observer: Observer) -> Iterator[_Asked]:
    """Ctrl-C, SIGTERM or SIGHUP asks a run to stop: its round ends before it does; a second one stops at once.

    Who ignores a signal, as `nohup` does SIGHUP, goes on doing so.
    """
    asked = _Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if asked.number is not None:
            raise Interrupted(number)
        asked.number = number
        observer.tell("stopping after this round (once more to stop at once)")

    heeded = [number for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _drive(
    experiment: Experiment, folder: Path | None, observer: Observer, track: Mapping[str, Tracker], accept: bool = False
) -> Result:
    """Run from the checkpoint (or from the start) to the end, saving as it goes."""
    checkpoint = Checkpoint(folder / "checkpoint", experiment) if folder else None
    asked, threads = experiment.scenario.executor, None
    if folder and checkpoint:
        checkpoint.fingerprints = unchanged(folder, experiment, observer, accept)
    if checkpoint and checkpoint.exists():
        manifest = checkpoint.read()
        asked, threads = inherited_executor(asked, manifest["executor"], experiment.device), manifest["threads"]
        if threads is None and experiment.scenario.deterministic:
            observer.tell(f"{folder} does not say with how many threads it began; its bits depend on it")
    with execution.threads(experiment.scenario.deterministic, threads) as count:
        if checkpoint is not None:
            checkpoint.threads = count
        executor, label = execution.chosen(
            experiment, asked, observer.tell
        )  # before the lock: workers would inherit it
        try:
            with _lines(folder) as file, Tracking(track, observer.tell) as tracking:
                return _driven(experiment, folder, checkpoint, executor, label, file, observer, tracking, accept)
        finally:
            executor.close()


def _begun(
    folder: Path | None, checkpoint: Checkpoint | None, experiment: Experiment, accept: bool
) -> tuple[Progress, ClientStates, Rounds]:
    """Where a run stands: at its checkpoint, with what came after it removed, or at the start."""
    if folder is None or checkpoint is None:
        return simulation.begin(experiment), ClientStates(experiment.state_limit), Rounds([], True, 0)
    path, exists = folder / ROUNDS, checkpoint.exists()
    if not exists and path.stat().st_size:
        raise UserError(
            f"{checkpoint.manifest} is missing, though rounds were run: put the checkpoint back from a copy, or start "
            f"again: headway run --scenario {folder / 'scenario.toml'} --out NEW"
        )
    checkpoint.split = splits.keep(folder, experiment, accept, checkpoint.read()["split"] if exists else None)
    if not exists:
        return simulation.begin(experiment), ClientStates(experiment.state_limit, folder), Rounds([], True, 0)
    found = read_folder(folder)  # all of it, before anything is changed
    progress, store = checkpoint.reopen()
    records.cut(path, found.rounds)
    if checkpoint.read()["ends"] is None:  # of an earlier version: from here on it has the checksums of this one
        write_atomically(folder / "scenario.toml", sealed(found.scenario))
    return progress, store, found.rounds


def _driven(
    experiment: Experiment,
    folder: Path | None,
    checkpoint: Checkpoint | None,
    executor: Executor,
    label: str,
    file: Any,
    observer: Observer,
    tracking: Tracking,
    accept: bool,
) -> Result:
    scenario = experiment.scenario
    progress, store, begun = _begun(folder, checkpoint, experiment, accept)
    past, chain = begun.records, begun.chain
    if not begun.checked:
        observer.tell(UNCHECKED)
    if folder is not None:
        (folder / "summary.json").unlink(missing_ok=True)  # of a failure before
    observer.begins(experiment, progress.round, label)
    if experiment.doubt is not None:
        observer.tell(experiment.doubt)
    tracking.begins(experiment, folder, executor.name, past)

    def save() -> None:
        if checkpoint:
            with pace.saving():
                os.fsync(file.fileno())  # the rounds before the checkpoint that counts on them
                checkpoint.save(progress, store, executor.name, chain.numbers)

    pace, skipped = Pace(scenario), False
    with _asked_to_stop(observer) as stop:
        save()
        try:
            for record, progress in simulation.simulate(experiment, executor, store, progress):  # noqa: B020
                if scenario.validation is not None:
                    record["measured_on"] = "validation"
                past.append(record)
                chain = chain.then(record)
                if file:
                    records.append(file, {**record, records.CHAIN: chain.whole})
                if pace.due(progress.round):
                    save()  # before anybody is told: with a save in every round, none that was seen is played again
                if "failures" in record and not skipped:
                    skipped = True
                    observer.tell(in_words(record))  # of the first round only
                observer.round(record)
                tracking.round(record)
                if stop.number is not None:
                    break
        except Exception as fault:
            if isinstance(fault, (Diverged, ClientError, MachineError)) and not isinstance(fault, ServerDiverged):
                save()  # a failing client or worker changed nothing: what is there is the last good round
            if folder is not None and not isinstance(fault, OSError | MachineError):  # for what the run is not to blame
                told = " ".join(str(fault).split()) or type(fault).__name__
                write_checked(folder / "summary.json", {"finished": False, "failure": told})
            raise
        save()
    if stop.number is not None and not simulation.finished(experiment, progress):
        raise Interrupted(stop.number)
    module = experiment.network.module(progress.output.theta, progress.output.buffers)
    result = Result(experiment.method.name, scenario, past, lambda: module, executor.name, folder, begun.checked)
    tracking.ends(result.summary)
    if folder:
        accepted = checkpoint.fingerprints.get("accepted") if checkpoint else None
        changes = {"accepted_changes": accepted} if accepted else {}
        made_on = {"environment": hardware_and_versions(experiment.device), "chain": chain.whole}
        write_checked(folder / "summary.json", {"finished": True, **result.summary, **changes, **made_on})
    return result


def unchanged(folder: Path, experiment: Experiment, observer: Observer, accept: bool = False) -> dict[str, Any]:
    """Refuse data, an own model or an own method that the run in a folder did not begin with, unless it is accepted."""
    checkpoint = Checkpoint(folder / "checkpoint", experiment)
    return settle(checkpoint.read() if checkpoint.exists() else None, experiment, folder, accept, observer.tell)


@contextmanager
def _lines(folder: Path | None) -> Iterator[Any]:
    if folder is None:
        yield None
    else:
        with records.appending(folder / ROUNDS) as file:
            yield file


def simulate(
    method: str | Method,
    scenario: str | Path | Scenario = "",
    *,
    model: str | nn.Module | None = None,
    clients: int | Sequence[Any] | None = None,
    test: Any = None,
    out: str | Path | None = None,
    observer: Observer | None = None,
    track: str | Sequence[str] = (),
    **settings: Any,
) -> Result:
    """Run one method on one scenario, with one seed.

    >>> simulate("fedacg", rounds=30).rounds["accuracy"]
    >>> simulate("fedacg", model=my_module, clients=my_datasets, test=my_test_set, rounds=30)

    `model` is a name or a module. `clients` is a number (of clients to share the scenario's data) or one dataset for
    each client. `out` is a folder that keeps the run, so that `resume` and `load_run` find it. `track` names trackers:
    "tensorboard", "tensorboard:DIR", "mlflow", "mlflow:URI".
    """
    watching, observer = trackers(track, kept=out is not None), as_observer(observer)
    place = None if out is None else as_path("out", out)
    settings, objects = sorted_out(settings, model, clients, test)
    chosen = scenario_of(scenario, **settings)
    if chosen.data_dir is not None:
        chosen = chosen.changed(data_dir=str(Path(chosen.data_dir).expanduser().absolute()))
    if chosen.seeds != 1:
        raise UserError(f"seeds is {chosen.seeds}; simulate runs one seed, compare runs several")
    built = checked(method)
    chosen = chosen.changed(method=built.name)
    experiment = build(chosen, built, **objects)
    folder = None if place is None else claim(place, experiment.scenario)
    return _drive(experiment, folder, observer, watching)


def sorted_out(
    settings: dict[str, Any], model: str | nn.Module | None, clients: int | Sequence[Any] | None, test: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(settings, objects): a model that is named and clients that are counted are settings."""
    given = {"model": model, "clients": clients, "test": test}
    named = {name for name, kind in (("model", str), ("clients", Integral)) if isinstance(given[name], kind)}
    objects = {name: value for name, value in given.items() if value is not None and name not in named}
    return {**settings, **{name: given[name] for name in named}}, objects


def in_catalogue(name: str) -> Method | None:
    """The catalogue's method of this name; None where it is somebody's own."""
    try:
        return spelled(name)
    except UserError:
        return None


def checked(method: str | Method) -> Method:
    """A method, or one that is spelled. One's own needs its own name: a folder keeps only that."""
    built = spelled(method)
    known = built if isinstance(method, str) else in_catalogue(built.name)
    if known is not None and known != built:
        raise UserError(
            f"a method of your own has the name of the catalogue's '{built.name}'; give it another: Method(…, name=…)"
        )
    return built


_LEFT_OVER = {"scenario.toml.part", "study.json", "study.json.part"}
"""What a kill in the middle of `claim` leaves; it is written over."""


def claim(folder: Path, scenario: Scenario, study: list[str] | None = None) -> Path:
    """Make the folder of a run, or of a study of several methods; or say that it is taken.

    scenario.toml is written last: with it the folder is in use.
    """
    _check_free(folder)
    made(folder)
    beside = folder / "scenario.toml.part"
    with records.appending(beside):  # of several who found it free, one goes on
        try:
            _check_free(folder)
        except UserError:
            beside.unlink(missing_ok=True)  # made here, after another was done with its own
            raise
        if study is not None:
            write_checked(folder / "study.json", {"methods": study, "scenario": seal(scenario)})
        else:
            (folder / "study.json").unlink(missing_ok=True)
        write_atomically(folder / "scenario.toml", sealed(scenario))
    return folder


def _check_free(folder: Path) -> None:
    """Refuse a folder that is in use."""
    if folder.exists() and (not folder.is_dir() or {file.name for file in folder.iterdir()} - _LEFT_OVER):
        advice = "it holds other files" if folder.is_dir() else "it is a file"
        if (folder / "scenario.toml").is_file():
            done = finished(folder)
            advice = f"headway report {folder} shows it" if done else f"headway resume {folder} goes on with it"
        raise UserError(f"{folder} is already used ({advice}); give another --out")


def unclaim(folder: Path) -> None:
    """Give back a folder in which no run has begun: a mistake leaves nothing that is in the way of its correction."""
    claimed = {"scenario.toml", "study.json"}
    if {file.name for file in folder.iterdir()} <= claimed:
        for name in claimed:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def _opened(folder: Path) -> Scenario:
    if (folder / "study.json").is_file() and (folder / "scenario.toml").is_file():
        raise UserError(f"{folder} is a comparison; name one of its runs, such as {folder}/METHOD/seed-0")
    return scenario_in(folder)


def _world(
    folder: Path, method: Method | None, model: nn.Module | None, clients: Sequence[Any] | None, test: Any
) -> Experiment:
    scenario = _opened(folder)
    if scenario.model == "own" and model is None:
        raise UserError(f"{folder} was run with a model of its own; give it again: headway.resume(…, model=…)")
    if scenario.data == "own" and clients is None:
        raise UserError(f"{folder} was run with data of its own; give it again: headway.resume(…, clients=…, test=…)")
    return build(scenario, _method(folder, scenario, method), model=model, clients=clients, test=test)


def _method(folder: Path, scenario: Scenario, given: Method | None) -> Method:
    """The method of a run: the catalogue's, or one's own, given again; another would be another run."""
    if scenario.method is None:
        raise UserError(f"{folder / 'scenario.toml'} names no method")
    known = in_catalogue(scenario.method)
    given = None if given is None else spelled(given)
    if known is not None and given in (None, known):  # also in another spelling
        return known
    if given is None:
        raise UserError(
            f"{folder} was run with '{scenario.method}', which is no method of the catalogue; if it is one of your "
            "own, give it again: headway.resume(…, method=…)"
        )
    if given.name != scenario.method:
        raise UserError(
            f"{folder} was run with '{scenario.method}', not with '{given.name}'; start a new run for another method"
        )
    return checked(given)


def resume(
    run: str | Path,
    *,
    method: Method | None = None,
    model: nn.Module | None = None,
    clients: Sequence[Any] | None = None,
    test: Any = None,
    observer: Observer | None = None,
    track: str | Sequence[str] = (),
    accept_changes: bool = False,
) -> Result:
    """Go on with a run from its last checkpoint; a finished one is loaded. What lies after the checkpoint is redone.

    Data, model and method must be those that the run began with; `accept_changes` goes on with others, and records it.
    """
    folder = as_path("run", run)
    watching = trackers(track)
    observer = as_observer(observer)
    if (folder / packed.NAME).is_file():
        raise UserError(f"{folder} is kept for others to check, without a checkpoint; start the run again with --out")
    experiment = _world(folder, method, model, clients, test)
    if finished(folder):
        unchanged(folder, experiment, observer, accept_changes)
        return _told(_loaded(experiment, folder), observer)
    return _drive(experiment, folder, observer, watching, accept_changes)


def _told(result: Result, observer: Observer) -> Result:
    """The result, after saying where its records could not be checked."""
    if not result.checked:
        observer.tell(UNCHECKED)
    return result


def lengthen(run: str | Path, rounds: int) -> None:
    """Give a run more rounds than it has; `resume` then goes on from its last checkpoint, finished or not."""
    folder = Path(run)
    scenario = _opened(folder)
    if scenario.rounds < rounds:
        (folder / "summary.json").unlink(missing_ok=True)  # first: a kill between leaves a run that is not finished
        write_atomically(folder / "scenario.toml", sealed(scenario.changed(rounds=rounds)))


def load_run(
    run: str | Path,
    *,
    method: Method | None = None,
    model: nn.Module | None = None,
    clients: Sequence[Any] | None = None,
    test: Any = None,
    observer: Observer | None = None,
) -> Result:
    """A run as its folder has it: its model is that of the last checkpoint."""
    folder = as_path("run", run)
    return _told(_loaded(_world(folder, method, model, clients, test), folder), observer or Unwatched())


def _loaded(experiment: Experiment, folder: Path) -> Result:
    checkpoint = Checkpoint(folder / "checkpoint", experiment)
    if not checkpoint.exists():
        raise UserError(f"{folder} has no checkpoint yet")
    found = read_folder(folder)
    splits.verify(folder, checkpoint.read()["split"])
    progress, _ = checkpoint.load()
    module = experiment.network.module(progress.output.theta, progress.output.buffers)
    return _result(found, lambda: module)


def _result(found: RunFolder, handed: Callable[[], nn.Module]) -> Result:
    """A run as its files tell it."""
    executor = (found.manifest or found.summary).get("executor")
    if not isinstance(executor, str) or (found.manifest is None and "rounds" not in found.summary):
        raise UserError(f"{found.path / 'summary.json'} is damaged: it does not tell rounds and executor")
    method = str(found.scenario.method)
    return Result(method, found.scenario, found.rounds.records, handed, executor, found.path, found.rounds.checked)


def recorded(folder: Path, observer: Observer | None = None, verified: bool = False) -> Result:
    """A run as its files tell it, without its data; its model is loaded when it is asked for.

    `verified`: the checkpoint and the split are read too, so that nothing of the folder is damaged.
    """
    _opened(folder)
    found = verify(folder) if verified else read_folder(folder)
    if found.manifest is None and not found.finished:
        raise UserError(f"{folder} has no checkpoint yet")

    def model() -> nn.Module:
        return _loaded(_world(folder, None, None, None, None), folder).model

    result = _result(found, model)
    return result if observer is None else _told(result, observer)


def seeded(scenario: Scenario) -> list[Scenario]:
    """The scenario for each of its seeds."""
    return [dataclasses.replace(scenario, seed=scenario.seed + number, seeds=1) for number in range(scenario.seeds)]
