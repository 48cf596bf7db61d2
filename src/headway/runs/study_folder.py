"""The folder of a study: which runs it has, and where each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.errors import UserError
from headway.methods.method import Method
from headway.runs.files import read_checked, slug
from headway.runs.planned import PlannedRun
from headway.runs.series import seeded
from headway.runs.tuned import Tuned
from headway.scenario import Scenario


def place_of_run(folder: Path, name: str, seed: int) -> Path:
    """The folder of one run of a study."""
    return folder / slug(name) / f"seed-{seed}"


def check_folders(names: Sequence[str]) -> None:
    """Refuse names whose folders would be the same: the second method would be taken for the first."""
    taken: dict[str, str] = {}
    for name in names:
        own = slug(name)
        if own in ("", ".", ".."):
            raise UserError(f"'{name}' cannot be the name of a folder; give the method another: Method(…, name=…)")
        if own in taken:
            raise UserError(
                f"'{taken[own]}' and '{name}' would be kept in one folder, '{own}'; give one of them another name"
            )
        taken[own] = name


def names_in(folder: Path) -> list[str]:
    names = read_checked(folder / "study.json").get("methods")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise UserError(f"{folder / 'study.json'} is damaged: it does not list methods")
    return names


def is_study(folder: Path) -> bool:
    """Whether a folder is that of a comparison."""
    return (folder / "study.json").is_file()


def check_different(names: Sequence[str]) -> None:
    if not names:
        raise UserError("methods is empty; give at least one, such as 'fedavg'")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"'{twice}' is given twice")


def planned_runs(
    methods: Sequence[Method], scenario: Scenario, folder: Path | None, tuned: Sequence[Tuned] = ()
) -> list[PlannedRun]:
    """The runs of a study, in the order in which they are shown."""
    settings = {one.method: one.settings for one in tuned}
    return [
        PlannedRun(method, one, place_of_run(folder, method.name, one.seed) if folder else None)
        for method in methods
        for one in seeded(scenario.with_settings(settings.get(method.name, {})))
    ]
