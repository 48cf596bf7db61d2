"""Methods × scenarios: a comparison for each combination of settings, in one folder that can be resumed as a whole."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from torch import nn

from headway.data.own_samples import Padding
from headway.data.partition import check_spelling
from headway.errors import Diverged, UserError, nearest, shown
from headway.methods.method import Method
from headway.runs.callbacks.hooks import Callbacks
from headway.runs.files import as_path, read_checked, slug
from headway.runs.folder import scenario as scenario_in
from headway.runs.given import Clients, Metrics, own_settings, split_settings
from headway.runs.lanes.jobs import Jobs, continued, jobs_of, keep_threads
from headway.runs.observer import Observer, as_observer
from headway.runs.planned import PlannedRun
from headway.runs.reserve import give_back, reserve
from headway.runs.series import Series
from headway.runs.study import Begun, Study, begin, begun, compare, load_study, resume_study, unfinished
from headway.runs.study_folder import is_study
from headway.runs.views import Picture, views
from headway.scenario import Scenario, field_type, scenario_of, settings_of
from headway.scenario_names import Value
from headway.tasks.known import OwnTask
from headway.typed_settings import Settings

if TYPE_CHECKING:
    import pandas

Axes = Mapping[str, tuple[Value, ...]]
"""The values of each setting that varies, in the order in which they were given."""
NAME = "grid.json"


@dataclass(frozen=True)
class Cell:
    """One scenario of a grid: its comparison, or why there is none."""

    settings: Mapping[str, Value]
    study: Study | None
    failure: str = ""

    @property
    def label(self) -> str:
        return label(self.settings)


@dataclass(frozen=True)
class Grid:
    """A comparison for each combination of settings, the last setting changing fastest."""

    axes: Axes
    cells: tuple[Cell, ...]
    folder: Path | None

    def __repr__(self) -> str:
        """`Grid(2 methods × 4 scenarios: partition, participation)`."""
        count = max(len(cell.study.runs) for cell in self.cells if cell.study is not None)
        return f"Grid({count} methods × {len(self.cells)} scenarios: {', '.join(self.axes)})"

    def _repr_html_(self) -> str:
        return views().html_of_grid(self)

    def plot(self) -> Picture:
        """A panel of curves for each scenario; a notebook shows it, `save(path)` writes it."""
        return views().plot_grid(self)

    def report(self, folder: str | Path) -> Path:
        """Write a page, tables and pictures into a folder; the path of the page."""
        return views().report(self, folder)

    def table(self) -> pandas.DataFrame:
        """The numbers of every scenario and method, one to a line."""
        import pandas

        every = {cell.label: cell.study.table() for cell in self.cells if cell.study is not None}
        return pandas.concat(every, axis=1, names=["scenario", "method"])

    @property
    def failed(self) -> list[str]:
        """A line for each run that failed, and for each scenario without any run."""
        return [
            f"{cell.label}: {line}"
            for cell in self.cells
            for line in ((cell.failure,) if cell.study is None else cell.study.failed)
        ]


def label(settings: Mapping[str, Value]) -> str:
    """`partition=iid, participation=0.05`."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def axes_of(vary: Mapping[str, Sequence[object]] | Sequence[str]) -> Axes:
    """The settings that vary, from a mapping or from texts such as `partition=iid,dirichlet:0.3`.

    Where values have commas themselves, semicolons stand between them: `data=synthetic:0,0;synthetic:1,1`.
    """
    if isinstance(vary, str) or not isinstance(vary, Mapping | Sequence):
        raise UserError(f"vary is {shown(vary)}; it must be a mapping such as {{'rate': [0.05, 0.1]}}")
    named = [(name, list(values)) for name, values in vary.items()] if isinstance(vary, Mapping) else map(_read, vary)
    found: dict[str, tuple[Value, ...]] = {}
    for name, values in named:
        if name in found:
            raise UserError(f"'{name}' is varied twice; give all its values at once")
        found[name] = _checked(name, values)
    if not found:
        raise UserError("nothing varies; write --vary partition=iid,dirichlet:0.3")
    return found


def _read(text: object) -> tuple[str, list[object]]:
    name, equals, values = str(text).partition("=")
    if not equals or not values:
        raise UserError(f"--vary is {shown(text)}; write NAME=VALUE,VALUE such as participation=0.05,0.2")
    return name.strip().replace("-", "_"), [one.strip() for one in values.split(";" if ";" in values else ",")]


def _checked(name: str, values: Sequence[object]) -> tuple[Value, ...]:
    """The values in the type of the setting, all different."""
    allowed = sorted(settings_of("problem", "training"))
    if name not in allowed:
        raise UserError(
            f"'{name}' cannot be varied{nearest(name, allowed)}; what can is of the problem or of the training: "
            f"{', '.join(allowed)}"
        )
    typed = tuple(_typed(name, value) for value in values)
    twice = next((value for value in typed if typed.count(value) > 1), None)
    if twice is not None or not typed:
        raise UserError(f"the values of '{name}' are {shown(list(values))}; give each once, and at least one")
    return typed


def _typed(name: str, value: object) -> Value:
    """A text of the command line as the setting's value; a scenario checks it."""
    kind, _ = field_type(name)
    if isinstance(value, str) and kind is not str:
        try:
            value = value == "true" if kind is bool and value in ("true", "false") else kind(value)
        except ValueError:
            raise UserError(
                f"{name} is {shown(value)}; it must be {'an integer' if kind is int else 'a number'}"
            ) from None
    found: Value = getattr(Scenario().with_settings({name: value}), name)
    return found


def _combinations(axes: Axes) -> list[dict[str, Value]]:
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _scenarios(base: Scenario, axes: Axes) -> list[Scenario]:
    """The scenario of each cell; one that cannot be is refused before any run begins."""
    found = []
    for settings in _combinations(axes):
        try:
            made = base.with_settings(settings)
            check_spelling(made.partition)
        except UserError as fault:
            raise UserError(f"{label(settings)}: {fault}") from None
        found.append(made)
    return found


def _places(folder: Path, axes: Axes) -> list[Path]:
    return [
        folder / f"{number:02d}-{slug(label(settings))[:80]}"
        for number, settings in enumerate(_combinations(axes), start=1)
    ]


def compare_grid(
    methods: Sequence[str | Method],
    scenario: str | Path | Scenario = "",
    *,
    vary: Mapping[str, Sequence[object]] | Sequence[str],
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
) -> Grid:
    """Compare methods on every combination of some settings; all else is as of `compare`.

    A scenario in which every run diverges does not end the others. With `jobs` the runs of all scenarios are in one
    queue.

    >>> grid = compare_grid(["fedavg", "fedacg"], vary={"partition": ["iid", "dirichlet:0.1"]}, rounds=30)
    >>> report.write_grid(grid, "grid")
    """
    axes, observer, at_once = axes_of(vary), as_observer(observer), jobs_of(jobs, devices)
    named, objects = split_settings(
        settings, model=model, clients=clients, test=test, task=task, metrics=metrics, padding=padding
    )
    own = own_settings(objects)
    if both := [name for name in axes if name in own]:
        raise UserError(f"'{both[0]}' is varied, but {both[0]} is your own object; give one of both")
    base = scenario_of(scenario, named)
    scenarios = _scenarios(base, axes)
    folder = None
    if out is not None:
        about = {
            "axes": {name: list(values) for name, values in axes.items()},
            "methods": [_name(one) for one in methods],
        }
        folder = reserve(as_path("out", out), base.with_settings(own), grid=about)
    places: Sequence[Path | None] = [None] * len(scenarios) if folder is None else _places(folder, axes)
    series = Series(observer, track, objects, callbacks=callbacks, jobs=at_once)
    try:
        studies = (
            begin(methods, chosen.with_settings(own), series, place)
            for chosen, place in zip(scenarios, places, strict=True)
        )
        with series:
            cells = _cells(axes, studies, series, folder)
    except UserError:
        if folder is not None:
            give_back(folder)
        raise
    return _whole(axes, cells, folder)


def _labelled(run: PlannedRun, settings: Mapping[str, Value]) -> PlannedRun:
    """A run with the values that vary in its label."""
    method = run.method if isinstance(run.method, str) else run.method.name
    return dataclasses.replace(run, label=" ".join([method, *map(str, settings.values())]))


def _cells(axes: Axes, studies: Iterable[Begun], series: Series, folder: Path | None) -> list[Cell]:
    """The comparison of each cell. With jobs all runs are made at the same time, so all cells are begun before."""
    if series.jobs is not None and folder is not None:
        keep_threads(folder, series.jobs)
        studies = list(studies)
        for study in studies:
            if study.folder is not None:
                keep_threads(study.folder, series.jobs)
        each = zip(_combinations(axes), studies, strict=True)
        series.make([_labelled(run, one) for one, study in each for run in study.planned])
    cells = []
    for one, study in zip(_combinations(axes), studies, strict=True):
        try:
            cells.append(Cell(one, study.to_the_end(series)))
        except Diverged as fault:
            cells.append(Cell(one, None, str(fault)))
    return cells


def _name(method: str | Method) -> str:
    return method if isinstance(method, str) else method.name


def _whole(axes: Axes, cells: Sequence[Cell], folder: Path | None) -> Grid:
    if all(cell.study is None for cell in cells):
        raise Diverged(f"{cells[0].label}: {cells[0].failure}")
    return Grid(axes, tuple(cells), folder)


# ── folders ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_grid(folder: Path) -> bool:
    """Whether a folder is that of a grid."""
    return os.path.isfile(folder / NAME)  # also of a name that no file can have


def _read_grid(folder: Path) -> tuple[Axes, list[str], Scenario]:
    about = read_checked(folder / NAME)
    try:
        axes = {str(name): tuple(values) for name, values in about["axes"].items()}
        names = [str(name) for name in about["methods"]]
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{folder / NAME} is damaged: it does not have axes and methods") from None
    return axes, names, scenario_in(folder)


def unfinished_of_grid(folder: Path) -> int:
    """How many runs of a grid are not finished."""
    axes, names, base = _read_grid(folder)
    return sum(unfinished(place) if is_study(place) else len(names) * base.seeds for place in _places(folder, axes))


def resume_grid(
    folder: Path,
    observer: Observer | None = None,
    track: str | Sequence[str] = (),
    accept_changes: bool = False,
    at_once: Jobs | None = None,
) -> Grid:
    """Go on with a grid: comparisons that were begun are resumed, missing ones are started."""
    axes, names, base = _read_grid(folder)
    lanes = continued(folder, at_once)
    every = list(zip(_combinations(axes), _scenarios(base, axes), _places(folder, axes), strict=True))
    if lanes is not None:
        series = Series(as_observer(observer), track, accept_changes=accept_changes, jobs=lanes)
        studies = [begun(place) or begin(names, scenario, series, place) for _, scenario, place in every]
        return _whole(axes, _cells(axes, studies, series, folder), folder)
    cells = []
    for settings, scenario, place in every:
        try:
            if is_study(place) and (place / "scenario.toml").is_file():
                study = resume_study(place, observer, track, accept_changes)
            else:
                study = compare(names, scenario, Series(as_observer(observer), track), place)
        except Diverged as fault:
            cells.append(Cell(settings, None, str(fault)))
            continue
        cells.append(Cell(settings, study))
    return _whole(axes, cells, folder)


def load_grid(folder: Path, observer: Observer | None = None) -> Grid:
    """A grid from its folder, as far as it is."""
    axes, _, _ = _read_grid(folder)
    cells = []
    for settings, place in zip(_combinations(axes), _places(folder, axes), strict=True):
        try:
            cells.append(Cell(settings, dataclasses.replace(load_study([place], observer=observer), folder=place)))
        except UserError as fault:
            cells.append(Cell(settings, None, str(fault)))
    if all(cell.study is None for cell in cells):
        raise UserError(f"{folder} has no run with a finished round to report")
    return Grid(axes, tuple(cells), folder)
