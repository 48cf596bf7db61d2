"""What tuning chose for the methods of a comparison: kept in study.json, said beside every number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headway.errors import DamagedRun
from headway.runs.files import read_checked, write_checked
from headway.scenario_names import Value


@dataclass(frozen=True)
class Tuned:
    """A method as it was asked for, and what its sweep chose with as many rounds as every other method had."""

    asked: str
    method: str
    """The method with the best arguments, as it is spelled: the name of its runs."""
    settings: Mapping[str, Value]
    """The best settings of the scenario; its runs have these."""
    values: str
    """The best candidate in words, such as `lam=0.9 rate_decay=0.995`."""
    candidates: int
    rounds: int
    """Rounds of all candidates and seeds together."""
    score: str
    """The best candidate's score on held-out samples, in words."""
    sweep: str
    """The folder of the sweep in that of the comparison; '' where nothing is kept."""


def note_of(tuned: Sequence[Tuned], asked: int) -> str:
    """What a reader of the comparison must know; '' where nothing was tuned."""
    if not tuned:
        return ""
    rounds = tuned[0].rounds
    of = "" if rounds == asked else f" (of {asked}: the most that all could spend)"
    each = "; ".join(
        f"{one.asked}: {one.values} of {one.candidates} candidates, {one.score}"
        + (f", {one.sweep}" if one.sweep else "")
        for one in tuned
    )
    return (
        f"each method was tuned with {rounds} rounds{of} on samples held out of training, never on the test set: {each}"
    )


def _content(folder: Path) -> Mapping[str, object]:
    path = folder / "study.json"
    found = read_checked(path).get("tuning") if path.is_file() else None
    return found if isinstance(found, dict) else {}


def request_in(folder: Path) -> Mapping[str, object] | None:
    """What a comparison's tuning was asked for; None where it has none."""
    return _content(folder) or None


def is_being_tuned(folder: Path) -> bool:
    """Whether a comparison stands in its tuning, so that its runs cannot begin."""
    content = _content(folder)
    return bool(content) and "chosen" not in content


def tuned_in(folder: Path) -> tuple[Tuned, ...]:
    """What was chosen for the methods of a comparison, in their order."""
    chosen = _content(folder).get("chosen", [])
    try:
        return tuple(Tuned(**one) for one in chosen)  # type: ignore[attr-defined]
    except TypeError:
        raise DamagedRun(f"{folder / 'study.json'} is damaged: it does not say what was tuned") from None


def note_in(folder: Path) -> str:
    """The note of a tuned comparison's folder; '' of others."""
    asked = _content(folder).get("budget")
    return note_of(tuned_in(folder), asked) if isinstance(asked, int) else ""


def write_tuned(folder: Path, tuned: Sequence[Tuned]) -> None:
    """Write what was chosen: from now on the comparison has its runs."""
    path = folder / "study.json"
    content = read_checked(path)
    tuning = {**_content(folder), "chosen": [asdict(one) for one in tuned]}
    write_checked(path, {**content, "methods": [one.method for one in tuned], "tuning": tuning})
