"""A claim: the rounds and summaries of an item's runs, without checkpoints, and the origin of each run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.analysis.written import of_run, place_of, write
from headway.errors import UserError
from headway.papers.plan import Plan, Run
from headway.papers.reproduce import NOTE, Outcome, Outcomes, about, difference, noted, origin, places
from headway.papers.saved_runs import find_runs, first_difference
from headway.runs import packed
from headway.runs.files import ensure_folder, slug, write_atomically, write_checked
from headway.runs.folder import read as read_folder
from headway.runs.folder import scenario as scenario_in
from headway.runs.folder import sealed, summary


def keep(
    plan: Plan, outcomes: Outcomes, sources: Sequence[Path], whole: Plan, into: Path, replace: bool = False
) -> Outcomes:
    """Add the runs that were found in folders to the claim in `into`; returns all runs of the `whole` item in it.

    No file of a claim names a folder of this machine. A run that the claim already has gets its further rounds; one
    with other numbers, or with fewer rounds, is refused unless `replace` is given.
    """
    note = noted(into)
    if note.get("scale", plan.scale) != plan.scale:
        raise UserError(f"{into} holds runs at scale {note['scale']}, not {plan.scale}; give another folder")
    kept = {
        one: _place(one, outcomes[one], usual, into) for one, usual in places(plan, into).items() if one in outcomes
    }
    for one, target in kept.items():
        _check(outcomes[one], target, replace)
    origins = dict(note.get("made", {}))
    makers = {target: origin(_folder(outcomes[one]), sources) for one, target in kept.items()}
    origins |= {target.relative_to(into).as_posix(): maker for target, maker in makers.items()}
    for one, target in kept.items():
        _copy(outcomes[one], ensure_folder(target))
    claimed = find_runs(whole, into)
    note = about(whole.only(claimed))
    write_checked(into / NOTE, {**note, "runs": len(origins), "made": dict(sorted(origins.items()))})
    return claimed


def _place(one: Run, outcome: Outcome, usual: Path, into: Path) -> Path:
    """The folder of a run in a claim; `usual` is that of the item's own run.

    A run of another draw or form than the item's gets a folder with these in its name. One that is in the claim
    already stays where it is.
    """
    own = _folder(outcome).resolve()
    if not (outcome.draw or outcome.form):
        return usual
    if own.is_relative_to(into.resolve()):
        return into / own.relative_to(into.resolve())
    scenario = scenario_in(own)
    theirs, mine = (_short_partition(one.partition) for one in (scenario, one.scenario))
    column, row, seed = usual.relative_to(into).parts
    column = column.replace(f"-{mine}-", f"-{theirs}-", 1)
    column += "" if scenario.split_seed == one.scenario.split_seed else f"-split{scenario.split_seed}"
    column += "" if scenario.sampling == one.scenario.sampling else f"-{scenario.sampling}"
    form = f"-{slug(outcome.form)}" if outcome.form else ""
    return into / column / f"{row}{form}" / seed


def _short_partition(partition: str) -> str:
    """A partition as names of scenarios spell it: dirichlet:0.3 is dir0.3."""
    kind, _, value = partition.partition(":")
    return f"{'dir' if kind == 'dirichlet' else kind}{value}"


def _folder(outcome: Outcome) -> Path:
    assert outcome.folder is not None, "what was found lies in a folder"
    return outcome.folder


def _check(outcome: Outcome, target: Path, replace: bool) -> None:
    """Refuse a run that failed, or that the claim has with other settings, other numbers or more rounds."""
    folder = _folder(outcome)
    if outcome.failure is not None:
        raise UserError(f"{folder} failed ({outcome.failure}); a claim is of runs that did not")
    if not (target / "scenario.toml").is_file():
        return
    other = difference(scenario_in(folder), scenario_in(target), ("rounds",))
    if other is not None:
        raise UserError(f"{target} is another run: {other}")
    if replace:
        return
    had = read_folder(target, whole=True).rounds.records
    at = first_difference(outcome.records, had)
    if at is not None:
        raise UserError(f"{target} has other numbers than {folder} from round {at} on; --replace takes the new ones")
    if len(outcome.records) < len(had):
        raise UserError(f"{target} has {len(had)} rounds, {folder} only {len(outcome.records)}; --replace takes those")


def _copy(outcome: Outcome, target: Path) -> None:
    """Copy a run's scenario, its rounds in packed form, and its summary where it is finished."""
    folder = _folder(outcome)
    scenario, ending = scenario_in(folder).changed(data_dir=None), summary(folder)
    content = packed.pack(outcome.records)
    write_atomically(target / packed.NAME, content)
    (target / "rounds.jsonl").unlink(missing_ok=True)
    if ending:
        write_checked(target / "summary.json", {**ending, "packed": packed.digest(content)})
    else:
        (target / "summary.json").unlink(missing_ok=True)
    write_atomically(target / "scenario.toml", sealed(scenario))
    for found in of_run(folder):
        write(found, place_of(target, found.round))
