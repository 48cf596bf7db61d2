"""Comparing methods that are tuned alike: a sweep for each, all of the same number of rounds, then the comparison."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from torch import nn

from headway.data.own_samples import Padding
from headway.errors import UserError, shown
from headway.methods.method import Method
from headway.methods.spelling import method as spelled
from headway.methods.spelling import owner, pieces
from headway.runs import study, tuned
from headway.runs.callbacks.hooks import Callbacks, copies
from headway.runs.files import as_path, slug
from headway.runs.folder import scenario as scenario_in
from headway.runs.given import Clients, Metrics, OwnObjects, own_settings, split_settings
from headway.runs.lanes.jobs import Jobs, continued, jobs_of, keep_threads
from headway.runs.lanes.made import Crew
from headway.runs.observer import Observer, Unwatched, as_observer
from headway.runs.reserve import give_back, reserve
from headway.runs.series import Series
from headway.runs.study import Study
from headway.runs.study_folder import check_different, is_study
from headway.runs.trackers.tracking import trackers
from headway.runs.tuned import Tuned, note_of
from headway.scenario import Scenario, scenario_of
from headway.tasks.known import OwnTask
from headway.tuning.grid import Candidate, GridLike, candidates, is_named, listed, named, read_grid, tunable
from headway.tuning.grid import grid as checked_grid
from headway.tuning.halving import Stage, equal_plans, spent
from headway.tuning.request import Request
from headway.tuning.results import Sweep
from headway.tuning.sweep import check_plan, sweep_in
from headway.tuning.table import scored
from headway.tuning.written import write_tables
from headway.typed_settings import Settings

FOLDER = "tuning"
"""Where the sweeps of a comparison are kept, in its folder."""


def compare(
    methods: Sequence[str | Method],
    scenario: str | Path | Scenario = "",
    *,
    tune_budget: int | None = None,
    grid: GridLike | None = None,
    model: str | nn.Module | None = None,
    clients: Clients | None = None,
    test: object = None,
    task: str | OwnTask | None = None,
    metrics: Metrics = (),
    padding: Padding = None,
    out: str | Path | None = None,
    observer: Observer | None = None,
    callbacks: Callbacks = (),
    track: str | Sequence[str] = (),
    jobs: int | str | None = None,
    devices: str | Sequence[str] | None = None,
    **settings: Unpack[Settings],
) -> Study:
    """Run each method with each seed of the scenario; `model`, `clients` and `test` are those of `simulate`.

    A method that diverges is left out, and the study's note names it. A function among `callbacks` is called by all
    runs; an object is copied for each run as it was given, and a result's `callbacks` are those of its run.

    With `tune_budget` each method is tuned before by samples held out of training (`validation`, a tenth of each
    client's by default), and every method gets exactly the same number of rounds for it: the most, up to the budget,
    that all can spend. `grid` is what is tried, as in `sweep`; a name holds for the methods that have it. Without a
    grid each has the papers'. The comparison then trains on all samples and is judged on the test set. In `out` the
    same call goes on where it stopped.

    `jobs` is how many runs are made at the same time, each in its own process, or "auto"; `devices` are where, such as
    "cuda:0-7". The numbers are the same for any number of jobs.

    >>> compare(["fedavg", "fedacg"], rounds=30, seeds=3).summary()
    >>> compare(["fedavg", Method(server=mine, name="mine")], rounds=30).summary()
    >>> compare(["fedavg", "fedacg"], tune_budget=600, grid={"rate": [0.02, 0.05, 0.1]}, rounds=80).tuned
    """
    watching, at_once = as_observer(observer), jobs_of(jobs, devices)
    given, own = split_settings(
        settings, model=model, clients=clients, test=test, task=task, metrics=metrics, padding=padding
    )
    given |= own_settings(own)
    series = Series(watching, track, own, callbacks=callbacks, jobs=at_once)
    if tune_budget is None:
        if grid is not None:
            raise UserError("grid is what tuning tries; give tune_budget too, or leave grid out")
        return study.compare(methods, scenario_of(scenario, given), series, out)
    plan = Plan.checked(methods, scenario, tune_budget, grid, given, own)
    trackers(track, kept=out is not None)  # a mistake is reported before the folder is made
    copies(callbacks)
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            chosen = plan.tuned(Path(folder), series, observer, kept=False)
        return _compared(plan, None, series, chosen)
    place = as_path("out", out)
    if not plan.holds(place):
        reserve(place, plan.compared, [one.method for one in plan.requests], plan.about)
    series.jobs = continued(place, at_once)
    return _tuned_and_compared(plan, place, series, observer)


def resume_tuning(
    folder: Path,
    observer: Observer | None = None,
    track: str | Sequence[str] = (),
    accept_changes: bool = False,
    at_once: Jobs | None = None,
) -> Study:
    """Go on with a comparison that stopped in its tuning, and then compare."""
    about = tuned.request_in(folder)
    assert about is not None, "it is being tuned"
    if about.get("own"):
        raise UserError(
            f"{folder} was made from Python with objects of its own; go on there with the same headway.compare(…)"
        )
    grids = about["grids"]
    assert isinstance(grids, dict), "a checksum is over it"
    scenario = scenario_in(folder).with_settings({"validation": about["validation"]})
    plan = Plan.of(grids, scenario, about["budget"], {}, {})
    lanes = continued(folder, at_once)
    series = Series(observer or Unwatched(), track, accept_changes=accept_changes, jobs=lanes)
    return _tuned_and_compared(plan, folder, series, observer)


def _tuned_and_compared(plan: Plan, folder: Path, series: Series, observer: Observer | None) -> Study:
    keep_threads(folder, series.jobs)
    if tuned.is_being_tuned(folder):
        try:
            tuned.write_tuned(folder, plan.tuned(folder / FOLDER, series, observer))
        except UserError:
            with contextlib.suppress(OSError):
                give_back(folder)
            raise
    return _compared(plan, folder, series, tuned.tuned_in(folder))


def _compared(plan: Plan, folder: Path | None, series: Series, chosen: Sequence[Tuned]) -> Study:
    methods = [spelled(one.method) for one in chosen]
    return study.run_all(methods, plan.compared, folder, series, chosen, note_of(chosen, plan.budget))


@dataclass(frozen=True)
class Plan:
    """The sweeps of a comparison: what each method tries, and in which stages."""

    requests: tuple[Request, ...]
    stages: Mapping[str, Sequence[Stage]]
    """By the method as it was asked for; all spend the same number of rounds."""
    budget: int
    own: OwnObjects

    @classmethod
    def checked(
        cls,
        methods: Sequence[str | Method],
        scenario: str | Path | Scenario,
        budget: object,
        grid: GridLike | None,
        settings: Mapping[str, object],
        own: OwnObjects,
    ) -> Plan:
        """The plan of these arguments, as they were given; a mistake is reported before anything runs."""
        if isinstance(methods, str | Method):
            methods = [methods]
        if not isinstance(methods, list | tuple):
            raise UserError(f"methods is {shown(methods)}; it must be a list of names")
        _check_names(methods)
        names = [str(one).strip() for one in methods]
        grids = {name: _grid_of(name, names, "papers" if grid is None else grid) for name in names}
        return cls.of(grids, scenario, budget, settings, own)

    @classmethod
    def of(
        cls,
        grids: Mapping[str, GridLike],
        scenario: str | Path | Scenario,
        budget: object,
        settings: Mapping[str, object],
        own: OwnObjects,
    ) -> Plan:
        """The plan of what each method tries."""
        if type(budget) is not int or budget < 1:
            raise UserError(f"tune_budget is {shown(budget)}; it must be a whole number of rounds, at least 1")
        requests = tuple(
            Request.checked(name, grid, scenario, budget, settings, sorted(own)) for name, grid in grids.items()
        )
        first = requests[0].scenario
        counts = {one.method: len(_candidates(one)) for one in requests}
        plans = equal_plans(counts, first.seeds, first.rounds, budget)
        for one in requests:
            check_plan(_candidates(one), plans[one.method], one.scenario)
        return cls(requests, plans, budget, own)

    @property
    def compared(self) -> Scenario:
        """The scenario of the comparison: all samples are trained on, and the test set judges."""
        return self.requests[0].scenario.changed(validation=None)

    @property
    def about(self) -> dict[str, object]:
        """What study.json says of the tuning before it begins."""
        grids = {one.method: {name: list(values) for name, values in one.grid.items()} for one in self.requests}
        validation = self.requests[0].scenario.validation
        return {"budget": self.budget, "grids": grids, "validation": validation, "own": sorted(self.own)}

    def holds(self, folder: Path) -> bool:
        """Whether a folder is that of the same comparison, so that it goes on there."""
        if not (folder / "scenario.toml").is_file() or not is_study(folder):
            return False
        about = tuned.request_in(folder)
        same = about is not None and {name: about.get(name) for name in self.about} == self.about
        return same and scenario_in(folder) == self.compared

    def tuned(self, folder: Path, series: Series, observer: Observer | None, kept: bool = True) -> list[Tuned]:
        """What the sweeps choose, in the order of the methods; what is in the folder already is not trained again.

        `observer` hears which candidate is trained.
        """
        found: list[Tuned] = []
        with dataclasses.replace(series, track=(), callbacks=(), crew=Crew()) as alone:
            for place, request in enumerate(self.requests, 1):
                plan = self.stages[request.method]
                own = folder / slug(request.method)
                rounds = spent(plan, request.scenario.seeds)
                if observer is not None:
                    which = f"method {place} of {len(self.requests)}"
                    observer.tell(f"tuning {request.method}, {which}: {rounds} rounds in all")
                made = "headway compare … --tune-budget; its folder has the settings"
                asked = dataclasses.replace(request, made_by=made)
                sweep = sweep_in(asked, _candidates(request), plan, own, alone, observer)
                write_tables(sweep, own)
                found.append(_chosen(sweep, rounds, f"{FOLDER}/{own.name}" if kept else ""))
        return found


def _chosen(sweep: Sweep, rounds: int, folder: str) -> Tuned:
    best = sweep.best
    if best is None:
        causes = "; ".join(dict.fromkeys(str(trial.failure) for trial in sweep.trials))
        raise UserError(
            f"there is no best {sweep.method}: every candidate failed ({causes}); give other values (--grid)"
        )
    score = f"validation {sweep.headline.name} {scored(sweep, best)}{sweep.headline.unit}"
    return Tuned(
        asked=sweep.method,
        method=best.candidate.method,
        settings={name: value for name, value in best.candidate.settings.items() if value is not None},
        values=best.candidate.label,
        candidates=len(sweep.trials),
        rounds=rounds,
        score=score,
        sweep=folder,
    )


def _candidates(request: Request) -> list[Candidate]:
    return candidates(request.method, request.grid, request.scenario)


def _check_names(methods: Sequence[object]) -> None:
    """Refuse methods that cannot be tuned, and two of which one may become the other."""
    own = next((one for one in methods if not isinstance(one, str)), None)
    if own is not None:
        name = own.name if isinstance(own, Method) else shown(own)
        raise UserError(f"'{name}' is no name of the catalogue; tune_budget tunes methods by their names only")
    check_different([str(one).strip() for one in methods])
    kinds: dict[tuple[str, ...], str] = {}
    for one in map(str, methods):
        kind = tuple(piece.partition(":")[0] for piece in pieces(one))
        if kind in kinds:
            raise UserError(
                f"'{kinds[kind]}' and '{one}' are one method, which is tuned once; leave one of them out, or compare "
                "them without tune_budget"
            )
        kinds[kind] = one


def _grid_of(method: str, methods: Sequence[str], requested: GridLike) -> dict[str, Sequence[object]]:
    """What of a grid for several methods is tried with one: names that it has, and that its spelling leaves open."""
    spelled(method)
    found: dict[str, Sequence[object]] = {}
    own: dict[str, Sequence[object]] = {}
    for one in listed(requested):
        if is_named(one):
            found |= {name: values for name, values in named(method, one.strip()).items() if _is_open(method, name)}
            continue
        for name, values in read_grid(one).items():
            if not any(_has(each, name) for each in methods):
                checked_grid(methods[0], {name: values})  # refuses it in the words of a sweep
            if name in own:
                raise UserError(f"the grid of '{name}' is given twice; write all its values with commas")
            own |= {name: values} if _is_open(method, name) else {}
    if not found | own:
        raise UserError(f"the grid has nothing that {method} could try; give a name that it has, such as --grid rate=…")
    return found | own


def _has(method: str, name: str) -> bool:
    return owner(method, name) is not None or name in tunable()


def _is_open(method: str, name: str) -> bool:
    """Whether a name can be tried with a method: it has it, and its spelling does not fix it."""
    found = owner(method, name)
    return name in tunable() if found is None else not found.given
