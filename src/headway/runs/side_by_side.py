"""Runs that were made one by one as the rows of one table: what may differ between them, and how long they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set

from torch import nn

from headway.errors import UserError, nearest
from headway.runs.fingerprints import TASK, judged_by
from headway.runs.given import catalogue_method
from headway.runs.result import Result
from headway.runs.settings import COMPARABLE, TUNED
from headway.scenario import Scenario, settings_of
from headway.schedules import schedule

Rows = dict[str, list[Result]]
"""The runs of each row of a table, by its label."""


_SAMPLES = frozenset({"data", "data_dir", "partition", "split_seed", "clients", "client_test", "validation", "profile"})
"""Settings that decide which samples there are and who has them."""


def side_by_side(results: Sequence[Result], tuned: Set[str], by: Sequence[str] = ()) -> tuple[Rows, list[str]]:
    """The runs with at least one finished round by row, and what was cut off them; others are refused.

    A row is a method, with the settings of `by` in which the runs differ; `tuned` are settings that may differ between
    methods. Runs of more rounds than the shortest are taken up to its end.
    """
    begun = [result for result in results if result.records]
    if not begun:
        raise UserError("there is no run with a finished round to report")
    _check_by(by)
    begun, notes = _of_one_length(begun, by)
    told = frozenset(by)
    differing = [name for name in by if len({getattr(one.scenario, name) for one in begun}) > 1]
    rows: Rows = {}
    for result in begun:
        _check_comparable(begun[0], result, tuned | told, told)
        seeds = rows.setdefault(_label(result, differing), [])
        if seeds:
            _check_comparable(seeds[0], result, frozenset(), told)
        if twin := next((one for one in seeds if one.scenario.seed == result.scenario.seed), None):
            raise UserError(
                f"{_where(result)}: {result.method} with seed {result.scenario.seed} is in {_where(twin)} too; report "
                "one of the two"
            )
        seeds.append(result)
    return rows, notes


def _check_by(by: Sequence[str]) -> None:
    """Refuse what is not a setting of which runs may have several values."""
    known = [setting.name for setting in dataclasses.fields(Scenario) if setting.name not in settings_of("identity")]
    for name in by:
        if name in settings_of("identity"):
            raise UserError(f"by is '{name}', which may differ anyway; name a setting such as rate or partition")
        if name not in known:
            raise UserError(f"by is '{name}', which is not a setting of a scenario{nearest(name, known)}")


def _label(result: Result, differing: Sequence[str]) -> str:
    """The name of a row: `fedacg, rate=0.1`."""
    return ", ".join([result.method, *(f"{name}={getattr(result.scenario, name)}" for name in differing)])


def _of_one_length(results: list[Result], by: Sequence[str]) -> tuple[list[Result], list[str]]:
    """The runs up to the end of the shortest, and a line for each that was longer.

    A run that has not come to its end does not make others shorter. Where rates follow from the number of rounds, a
    longer run is another one from its first round on, so it stays as it is, and is refused.
    """
    least = min(result.scenario.rounds for result in results)
    if "rounds" in by or any(schedule(one.scenario.schedule).follows_run for one in results):
        return results, []
    longer = [one for one in results if one.scenario.rounds > least]
    notes = [
        f"{one.method}, seed {one.scenario.seed}: the first {least} of {one.scenario.rounds} rounds" for one in longer
    ]
    return [_cut(one, least) if one.scenario.rounds > least else one for one in results], notes


def _cut(result: Result, rounds: int) -> Result:
    """The first rounds of a run: what they recorded. Models and scores of clients are of its end, so there are none."""

    def no_model() -> nn.Module:
        raise UserError(f"{_where(result)} is shown up to round {rounds}; there is no model of that round")

    return dataclasses.replace(
        result,
        scenario=result.scenario.changed(rounds=rounds),
        records=[record for record in result.records if record["round"] <= rounds],
        make_model=no_model,
        make_clients=None,
        make_best=no_model,
        stopped=result.stopped if len(result.records) <= rounds else None,
    )


def _where(result: Result) -> str:
    return str(result.folder or "a run in memory")


def _check_comparable(one: Result, other: Result, tuned: Set[str], by: Set[str]) -> None:
    """Refuse runs that differ in more than method, seed, execution, and what was tuned with the method.

    What `by` names is in the label of a row; with data or split in it, the samples are others.
    """
    mine, theirs = one.scenario.as_dict(), other.scenario.as_dict()
    known = [method for method in map(catalogue_method, (one.method, other.method)) if method is not None]
    suggested = {name for method in known for name in method.suggests}
    for name in sorted((mine.keys() | theirs.keys()) - COMPARABLE.union(tuned, suggested)):
        if mine.get(name) != theirs.get(name):
            advice = f"; --by {name} makes a row of each"
            if name in TUNED and one.method != other.method:
                advice = "; --tuned lets it differ between methods"
            raise UserError(
                f"{_where(one)} and {_where(other)} are not comparable: "
                f"{name} is {mine.get(name)} and {theirs.get(name)}{advice}"
            )
    if all(mine.get(name) == theirs.get(name) for name in by & _SAMPLES):
        _check_judged_alike(one, other)


def _check_judged_alike(one: Result, other: Result) -> None:
    """Refuse runs on other samples, or with another loss or metric of one's own: a scenario has their names only."""
    if one.folder is None or other.folder is None or one.folder == other.folder:
        return
    mine, theirs = judged_by(one.folder), judged_by(other.folder)
    differ = [name for name, found in mine.items() if theirs.get(name, found) != found]
    if differ:
        what = "judged differently" if all(name.startswith(TASK) for name in differ) else "run on different data"
        raise UserError(f"{_where(one)} and {_where(other)} are not comparable: they were {what} ({', '.join(differ)})")
