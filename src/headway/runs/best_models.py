"""best/: the model of a run's best round, which `KeepBest` writes, and what is checked when it is read.

| file | holds |
|---|---|
| best/manifest.json | the metric, and of each model its round, value, file, SHA-256 and a checksum of its round |
| best/model-N.safetensors | the state dict after round N, under the module's own names |

There are two models where the newest is of a round after the checkpoint: a kill then leaves the best one up to there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from headway.errors import DamagedRun, UserError
from headway.records import RoundRecord
from headway.runs.files import checksum, ensure_folder, read_checked, read_plain, write_atomically, write_checked

FOLDER = "best"
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class KeptModel:
    """A model that was the best when it was kept."""

    round: int
    value: float
    file: str
    sha256: str
    record: str = ""
    """The checksum of its round's record; empty of folders that were made before it was kept."""


@dataclass(frozen=True)
class BestModels:
    """What best/ holds, in the order of rounds."""

    metric: str
    higher_is_better: bool
    models: tuple[KeptModel, ...] = ()

    @property
    def best(self) -> KeptModel | None:
        return self.models[-1] if self.models else None

    def up_to(self, round: int) -> BestModels:
        """The models up to this round."""
        return replace(self, models=tuple(model for model in self.models if model.round <= round))

    def last(self) -> BestModels:
        """The best one alone."""
        return replace(self, models=self.models[-1:])


def read(run: Path) -> BestModels | None:
    """What a run's folder has; None where no model was kept."""
    path = run / FOLDER / _MANIFEST
    if not path.is_file():
        return None
    content = read_checked(path)
    try:
        models = tuple(KeptModel(**one) for one in content["models"])
        found = BestModels(content["metric"], content["higher_is_better"], models)
        sound = all(type(one.round) is int and one.file == _file(one.round) for one in models)
    except (KeyError, TypeError):
        sound = False
    if not sound:
        raise DamagedRun(f"{path} is damaged: it does not list models")
    return found


def checksum_of(record: RoundRecord) -> str:
    """The checksum of what a record says beside times."""
    return checksum({name: value for name, value in record.items() if "seconds" not in name})


def check_of_run(run: Path, kept: KeptModel, records: Iterable[RoundRecord]) -> None:
    """Refuse a model that was kept in another run: its round has another record there."""
    own = next((record for record in records if record["round"] == kept.round), None)
    if own is not None and kept.record not in ("", checksum_of(own)):
        raise DamagedRun(f"{run / FOLDER} is of another run: its model of round {kept.round} is not this run's")


def add(run: Path, before: BestModels, value: float, content: bytes, saved: int, record: RoundRecord) -> BestModels:
    """Keep a model that is better than those before; of these the last up to the checkpoint of round `saved` stays."""
    folder, round = ensure_folder(run / FOLDER), record["round"]
    new = KeptModel(round, value, _file(round), hashlib.sha256(content).hexdigest(), checksum_of(record))
    write_atomically(folder / new.file, content)
    stays = before.up_to(min(saved, round - 1)).last()
    return write(run, replace(stays, models=(*stays.models, new)))


def write(run: Path, kept: BestModels) -> BestModels:
    """Make these the models of the folder; files of others are removed."""
    write_checked(ensure_folder(run / FOLDER) / _MANIFEST, asdict(kept))
    remove_others(run, kept)
    return kept


def remove_others(run: Path, kept: BestModels) -> None:
    """Remove what a kill left: models that the manifest does not name, and files that were not written to their end."""
    named = {_MANIFEST, *(model.file for model in kept.models)}
    for file in list((run / FOLDER).iterdir()):
        if file.name not in named and file.name.startswith(("model-", _MANIFEST)):
            os.unlink(file)


def tensors(run: Path, kept: KeptModel) -> dict[str, Tensor]:
    """The state dict of a model, where its file is as it was written."""
    path = run / FOLDER / kept.file
    try:
        content = read_plain(path)
        if hashlib.sha256(content).hexdigest() != kept.sha256:
            raise DamagedRun(f"{path} is damaged: it fails its checksum; put it back from a copy")
        return safetensors.torch.load(content)
    except (OSError, SafetensorError) as fault:
        raise DamagedRun(f"{path} cannot be read: {fault}") from None


def verify(run: Path) -> None:
    """Read every byte, and refuse what is damaged."""
    found = read(run)
    for one in found.models if found is not None else ():
        tensors(run, one)


def best_of(run: Path | None) -> KeptModel:
    """The best model of a run's folder, or an error where none was kept."""
    found = None if run is None else read(run)
    if found is None or found.best is None:
        where = "a run without a folder" if run is None else str(run)
        raise UserError(f"{where} has no best model; a run keeps one with --keep-best (keep_best=True)")
    return found.best


def _file(round: int) -> str:
    return f"model-{round:07d}.safetensors"
