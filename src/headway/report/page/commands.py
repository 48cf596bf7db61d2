"""The commands that make the runs of a study again."""

from __future__ import annotations

import dataclasses
import shlex

from headway.runs.given import catalogue_method
from headway.runs.result import Result
from headway.runs.settings import TUNED
from headway.runs.study import Study
from headway.scenario import Scenario, settings_of
from headway.scenario import scenario as scenario_of

_NOT_SAID = settings_of("identity") | {"data_dir", "executor"}
"""Written in another way, or of one machine only."""


def _flags(scenario: Scenario) -> list[str]:
    """The settings that are not the default, as flags."""
    plain = Scenario(clients=scenario_of(partition=scenario.partition).clients)  # some partitions say how many
    words: list[str] = []
    for setting in dataclasses.fields(Scenario):
        value, name = getattr(scenario, setting.name), setting.name.replace("_", "-")
        if setting.name in _NOT_SAID or value is None or value == getattr(plain, setting.name):
            continue
        words += [f"--{'' if value else 'no-'}{name}"] if isinstance(value, bool) else [f"--{name}", str(value)]
    return words


def _group(one: Result) -> tuple[str, ...]:
    """Runs with equal flags and executor are made by one command."""
    return (*_flags(one.scenario), "--executor", one.executor)


def _seeds(seeds: list[int]) -> list[list[str]]:
    """Flags for each unbroken sequence of seeds."""
    found: list[list[str]] = []
    start = 0
    for end in range(1, len(seeds) + 1):
        if end == len(seeds) or seeds[end] != seeds[end - 1] + 1:
            first = ["--seed", str(seeds[start])] if seeds[start] else []
            found.append(first + (["--seeds", str(end - start)] if end - start > 1 else []))
            start = end
    return found


def reason_for_none(study: Study) -> str | None:
    """Why the command line cannot make the runs: they were given Python objects."""
    for name, seeds in study.runs.items():
        scenario = seeds[0].scenario
        given = [what for what in ("data", "model") if getattr(scenario, what) == "own"]
        given += ["method"] if catalogue_method(str(scenario.method)) is None else []
        if given:
            return f"{name} was run from Python with its own {' and '.join(given)}; no command line makes it again"
    return None


def _tuned(study: Study) -> bool:
    """Whether a setting that may be tuned differs between the methods."""
    scenarios = [seeds[0].scenario for seeds in study.runs.values()]
    return any(len({getattr(scenario, name) for scenario in scenarios}) > 1 for name in TUNED)


def _groups(study: Study) -> dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]]:
    """The methods that have the same flags and the same seeds."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for results in study.runs.values():
        by_flags: dict[tuple[str, ...], list[int]] = {}
        for one in results:
            by_flags.setdefault(_group(one), []).append(one.scenario.seed)
        for flags, numbers in by_flags.items():
            for given in _seeds(sorted(numbers)):
                groups.setdefault((flags, tuple(given)), []).append(results[0].method)
    return groups


def commands(study: Study) -> list[str]:
    """One `headway compare` for all methods with equal settings, and a report over them where there are several."""
    groups, made = _groups(study), []
    for number, ((flags, seeds), names) in enumerate(groups.items(), 1):
        out = ["--out", f"runs/again-{number}" if len(groups) > 1 else "runs/again"]
        made.append(shlex.join(["headway", "compare", *names, *flags, *seeds, *out]))
    if len(groups) > 1:
        folders = (f"runs/again-{number}" for number in range(1, len(groups) + 1))
        differ = ["--by", ",".join(study.by)] if study.by else ["--tuned"] if _tuned(study) else []
        made.append(shlex.join(["headway", "report", *folders, *differ, "--out", "report"]))
    return made
