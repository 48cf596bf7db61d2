"""A run folder as it lies on the disk: whatever reads one does it here, and nothing is believed before it is checked.

| file | what it is checked against |
|---|---|
| scenario.toml | a checksum of its settings in its first line, the settings in the manifest and the summary |
| rounds.jsonl | a chained checksum in each line (`records`); the manifest and the summary have that of the last one |
| checkpoint/manifest.json, summary.json, study.json, reproduce.json | a checksum in the file |
| checkpoint/server-N.safetensors, clients.rows, split.npz | checksums in the manifest |
| best/model-N.safetensors | checksums in best/manifest.json, which has one itself |

Settings that only say where and how a run is executed may be edited. Folders from before there were these checksums are
read without them, and `checked` says so.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from headway.errors import DamagedRun, UserError
from headway.runs import best_models, checkpoint, records, splits
from headway.runs.files import CHECK, checksum, read_checked, read_json
from headway.runs.manifest import Manifest, read_manifest
from headway.runs.records import Rounds
from headway.runs.settings import EDITABLE, first_difference
from headway.runs.summary import Summary
from headway.scenario import Scenario, from_toml

ROUNDS = "rounds.jsonl"
UNCHECKED = (
    "some of these runs are from before rounds had checksums: they are read, but a change in them cannot be seen"
)
"""A warning, given once, where folders of an earlier version are read."""
_HEAD = "# check "


@dataclass(frozen=True)
class RunFolder:
    """A run without its data and its model."""

    path: Path
    scenario: Scenario
    rounds: Rounds
    """The rounds up to the checkpoint, or all of them if `read` was called with `whole`."""
    manifest: Manifest | None
    """The manifest of the checkpoint; None where there is no checkpoint."""
    summary: Summary
    """What was written at the end or after a failure; empty where nothing was."""

    @property
    def finished(self) -> bool:
        return bool(self.summary.get("finished"))

    @property
    def stopped(self) -> str | None:
        """Why a callback stopped the run, which is finished then."""
        reason = self.summary.get("stopped")
        if reason is None and self.manifest is not None:
            return self.manifest.get("stopped")
        return None if reason is None else str(reason)

    @property
    def failure(self) -> str | None:
        """Why the run ended before its time, where that is known."""
        return _failure(self.summary)


def manifest(folder: Path) -> Manifest | None:
    path = folder / "checkpoint" / "manifest.json"
    return read_manifest(path) if path.is_file() else None


def summary(folder: Path) -> Summary:
    path = folder / "summary.json"
    return cast(Summary, read_checked(path)) if path.is_file() else {}


def finished(folder: Path) -> bool:
    return bool(summary(folder).get("finished"))


def failure(folder: Path) -> str | None:
    """Why a run ended before its time, where that is known."""
    return _failure(summary(folder))


def _failure(summary: Summary) -> str | None:
    cause = summary.get("failure")
    return None if cause is None else str(cause)


def read(folder: Path, whole: bool = False) -> RunFolder:
    """The run in a folder, up to its checkpoint; `whole`: with the rounds after the checkpoint too."""
    chosen, kept, ended = scenario(folder), manifest(folder), summary(folder)
    if chosen.method is None:
        raise UserError(f"{folder / 'scenario.toml'} names no method")
    path, round = folder / ROUNDS, _last_round(folder, kept, ended)
    rounds = records.load(path, round)
    if kept is not None and kept["rounds"] is not None:
        _check_same(rounds.chain.numbers == kept["rounds"], path, "the checkpoint was made with", round)
    if rounds.packed:
        _check_same(ended.get("packed", rounds.packed) == rounds.packed, path, "summary.json was kept with", round)
    elif ended.get("finished") and "chain" in ended:
        _check_same(rounds.chain.whole == ended["chain"], path, "summary.json was made of", round)
    more = whole and path.is_file() and path.stat().st_size > rounds.size
    return RunFolder(folder, chosen, records.load(path) if more else rounds, kept, ended)


def _last_round(folder: Path, kept: Manifest | None, ended: Summary) -> int | None:
    """The round of the checkpoint, else the last one of a finished run; None where neither is known."""
    if kept is not None:
        return kept["round"]
    round: object = ended.get("rounds") if ended.get("finished") else None
    if round is None or type(round) is int:
        return round
    raise UserError(f"{folder / 'summary.json'} is damaged: it does not tell how many rounds were run")


def _check_same(same: bool, path: Path, what: str, round: int | None) -> None:
    """Refuse rounds that are not those of another file; `what` says in the message which these are."""
    if not same:
        raise DamagedRun(f"{path} is damaged: rounds 1 to {round} are not those that {what}; put it back from a copy")


def verify(folder: Path) -> RunFolder:
    """The run in a folder, with every byte of its checkpoint and its split read and checked."""
    found = read(folder)
    if found.manifest is not None:
        checkpoint.verify(folder / "checkpoint")
        splits.verify(folder, found.manifest["split"])
    best_models.verify(folder)
    return found


# ── scenario.toml ────────────────────────────────────────────────────────────────────────────────────────────────────


def sealed(chosen: Scenario) -> bytes:
    """The scenario.toml of a folder: the settings below a checksum of them."""
    text = chosen.as_toml()
    advice = "of these settings; a changed copy of this file starts another run: headway run --scenario COPY"
    return f"{_HEAD}{_seal(text)} {advice}\n{text}".encode()


def seal(chosen: Scenario) -> str:
    """The checksum in the first line of a scenario.toml; a study keeps it too."""
    return _seal(chosen.as_toml())


def _seal(text: str) -> str:
    return checksum({name: value for name, value in tomllib.loads(text).items() if name not in EDITABLE})[:16]


def scenario(folder: Path) -> Scenario:
    """The settings of a run, or of a study, as they were when it began."""
    path = folder / "scenario.toml"
    if not path.is_file():
        lost = " any more, but other files of a run" if (folder / ROUNDS).is_file() else ""
        raise UserError(f"{folder} is not a run folder: it has no scenario.toml{lost}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise DamagedRun(f"{path} cannot be read as UTF-8 text: {fault}") from None
    found = from_toml(text, str(path))
    kept, ended = manifest(folder), summary(folder)
    _check_settings(path, found, kept, ended)
    _check_seal(path, text, found, kept)
    return found


def _check_seal(path: Path, text: str, found: Scenario, kept: Manifest | None) -> None:
    """Compare the settings with the checksums of them, in the first line and in a study's file."""
    own, written = _seal(text), re.match(rf"{_HEAD}(\w+)", text)
    if written is not None and written[1] != own:
        raise _changed(path, _other_end(found, kept) or "its settings are not those that its first line was made of")
    if written is None and (_ends(kept) or _checked_study(path.parent)):
        raise _changed(path, "the first line, with the checksum of its settings, is gone")
    study = path.with_name("study.json")
    if study.is_file() and read_checked(study).get("scenario", own) != own:
        raise _changed(path, "its settings are not those that study.json was written with")


def _checked_study(folder: Path) -> bool:
    path = folder / "study.json"
    return path.is_file() and CHECK in read_json(path)


def _ends(kept: Manifest | None) -> Mapping[str, object]:
    """The settings of a manifest that say when the run ends; none where an earlier version wrote it."""
    return (kept["ends"] or {}) if kept is not None else {}


def _other_end(found: Scenario, kept: Manifest | None) -> str | None:
    """The first setting of when a run ends that is not what the manifest has."""
    for name, was in _ends(kept).items():
        if getattr(found, name, was) != was:
            return f"{name} is {getattr(found, name)}, but the run was made with {was}"
    return None


def _check_settings(path: Path, found: Scenario, kept: Manifest | None, ended: Summary) -> None:
    """Compare with what the manifest and the summary say; they name the setting that differs."""
    if kept is not None:
        other = first_difference(kept["scenario"], found)
        if other is not None:
            raise _changed(path, "{} is {}, but {} was run with {}".format(*other[:2], path.parent, other[2]))
    if ended.get("finished"):
        said = {"method": ended.get("name"), "seed": ended.get("seed"), "buffers": ended.get("buffers")}
        for name, was in said.items():
            now = getattr(found, name)
            if was is not None and was != now:
                raise _changed(path, f"{name} is {now}, but summary.json has {was}")


def _changed(path: Path, what: str) -> DamagedRun:
    return DamagedRun(
        f"{path} was changed since the run was made: {what}; put it back, or start another run with it: "
        f"headway run --scenario {path} --out NEW"
    )
