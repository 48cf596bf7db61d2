"""What a sweep is asked for, checked, and the folder that holds the same request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from headway.engine.building import device_of
from headway.errors import UserError
from headway.runs.environment import Environment, commit, environment
from headway.runs.files import ensure_folder, read_checked, write_checked
from headway.runs.settings import EXECUTION, without
from headway.scenario import LATER, Scenario, scenario_of
from headway.scenario import scenario as scenario_with
from headway.tuning.grid import Grid, GridLike, Value, grid, text
from headway.tuning.results import command_line

VALIDATION = 0.1
"""The share of each client's samples that is held out where none is given."""


class RequestNumbers(TypedDict):
    """What the numbers of a sweep depend on."""

    method: str
    grid: dict[str, list[Value]]
    budget: int | None
    own: list[str]
    scenario: Mapping[str, object]


class About(TypedDict):
    """What sweep.json says of its sweep before any candidate is trained."""

    request: RequestNumbers
    command: str
    commit: str
    environment: Environment


@dataclass(frozen=True)
class Request:
    """Which candidates are tried, on which scenario, with how many rounds."""

    method: str
    grid: Grid
    scenario: Scenario
    budget: int | None
    source: str
    """The scenario's name or file, as a flag takes it; empty where it has none."""
    settings: Mapping[str, object]
    """The settings that are given beside the scenario."""
    own: tuple[str, ...] = ()
    """Which of model, clients and test set are objects of the user's."""
    made_by: str = ""
    """The command that made it, where it is no sweep by itself."""

    @classmethod
    def checked(
        cls,
        method: str,
        requested: GridLike,
        scenario: str | Path | Scenario,
        budget: int | None,
        settings: Mapping[str, object],
        own: Sequence[str] = (),
    ) -> Request:
        """The request of these arguments, as they were given."""
        chosen = scenario_of(scenario, settings)
        if chosen.stop_at_target:
            raise UserError("a sweep gives every candidate the same rounds; leave --stop-at-target out")
        if chosen.patience is not None:
            raise UserError("a sweep gives every candidate the same rounds; leave --patience out")
        if chosen.validation is None:
            chosen = chosen.changed(validation=VALIDATION)
        values = grid(method, requested)
        both = next((name for name in values if name in settings), None)
        if both is not None:
            raise UserError(f"'{both}' is in the grid and set to {text(settings[both])}; leave it out of one of them")
        if "model" in values and "model" in own:
            raise UserError("'model' is in the grid, but a model of your own is given; leave one of them out")
        given = _as_flags(scenario, settings) if isinstance(scenario, Scenario) else dict(settings)
        source = "" if isinstance(scenario, Scenario) else str(scenario)
        return cls(method.strip(), values, chosen.changed(method=None), budget, source, given, tuple(own))

    @property
    def numbers(self) -> RequestNumbers:
        """What the numbers depend on: equal in a folder's sweep.json and here, or it is another sweep."""
        plain = Scenario().as_dict()
        usual = {name for name in LATER if getattr(self.scenario, name) == plain.get(name)}
        scenario = without(self.scenario, EXECUTION | usual)
        values = {name: list(values) for name, values in self.grid.items()}
        own = list(self.own)
        return {"method": self.method, "grid": values, "budget": self.budget, "own": own, "scenario": scenario}

    @property
    def command(self) -> str:
        """The command that makes the same sweep."""
        if self.made_by:
            return self.made_by
        words = ["sweep", self.method]
        for name, values in self.grid.items():
            words += ["--grid", f"{name}={','.join(map(text, values))}"]
        if self.budget is not None:
            words += ["--budget", str(self.budget)]
        return command_line(words, self.source, self.settings)

    def about(self) -> About:
        """What sweep.json says of it."""
        made_on = environment(device_of(self.scenario.device))
        return {"request": self.numbers, "command": self.command, "commit": commit(), "environment": made_on}


def _as_flags(scenario: Scenario, settings: Mapping[str, object]) -> dict[str, object]:
    """The settings of a scenario that are not the default, and those given beside it."""
    plain = {**Scenario().as_dict(), "clients": scenario_with(partition=scenario.partition).clients}
    changed = {name: value for name, value in scenario.as_dict().items() if value != plain.get(name)}
    return {name: value for name, value in {**changed, **settings}.items() if name != "method"}


def reserve(out: Path, about: About) -> None:
    """Begin in an empty folder, or go on in one that holds the same sweep."""
    path = out / "sweep.json"
    if path.is_file():
        other = _difference(about["request"], read_checked(path).get("request"))
        if other is not None:
            raise UserError(f"{out} holds another sweep ({other}); give another folder with --out")
        return
    if out.exists() and (not out.is_dir() or {file.name for file in out.iterdir()} - {"sweep.json.part"}):
        raise UserError(f"{out} is already used (it holds other files); give another folder with --out")
    ensure_folder(out)
    write_checked(path, {"finished": False, **about})


def _difference(wanted: RequestNumbers, found: object) -> str | None:
    """The first thing in which two requests differ; a setting that one of them does not have is at its default."""
    if not isinstance(found, dict) or not isinstance(found.get("scenario"), dict):
        return "its sweep.json is damaged"
    plain = {name: value for name, value in Scenario().as_dict().items() if name in LATER}
    mine: dict[str, object] = {**plain, **wanted, **wanted["scenario"]}
    theirs: dict[str, object] = {**plain, **found, **found["scenario"]}
    for name in sorted((mine.keys() | theirs.keys()) - {"scenario"}):
        if mine.get(name) != theirs.get(name):
            return f"{name} is {theirs.get(name)}, not {mine.get(name)}"
    return None
