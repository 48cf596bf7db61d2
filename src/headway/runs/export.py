"""The final model of a run, as any other program can read it."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch

from headway.errors import UserError
from headway.runs import best_models, checkpoint, roster
from headway.runs.files import as_path
from headway.runs.folder import read as read_folder
from headway.runs.load import load_run, scenario_of_run
from headway.runs.model_files import as_bytes, model_path, write_bytes, write_model
from headway.runs.observer import Observer
from headway.runs.result import Result


def export(run: str | Path | Result, path: str | Path, observer: Observer | None = None, *, best: bool = False) -> Path:
    """Write the model's state dict (parameters and buffers, under the module's own names, in the run's type).

    `run` is a folder or a result. A tensor that
    stands under two names is written under both. `best`: the model of the best round, where it was kept.
    """
    target = model_path(path)
    if isinstance(run, Result):
        return write_model(run.best_model if best else run.model, target)
    folder = as_path("run", run)
    if (folder / roster.NAME).is_file() and scenario_of_run(folder).model == "own":
        content = _of_sites(folder, best)
    else:
        found = load_run(folder, observer=observer)
        content = as_bytes(found.best_model if best else found.model)
    return write_bytes(content, target)


def _of_sites(folder: Path, best: bool) -> bytes:
    """The state dict of a run over sites, whose network is nobody's but theirs: read without it.

    What is learnt and averaged is in the checkpoint. A network that has other tensors, too, must be given again.
    """
    if best:
        return safetensors.torch.save(best_models.tensors(folder, best_models.best_of(folder)))
    found = read_folder(folder).manifest
    if found is None:
        raise UserError(f"{folder} has no checkpoint yet")
    tensors = checkpoint.read_tensors(folder / "checkpoint" / found["server"], found["sha256"])
    kept_best = "best/" if found["totals"]["best_loss"] is not None else ""
    sides = tuple(f"{kept_best}{side}/" for side in ("model", "buffers"))
    named = {path.removeprefix(side): leaf for path, leaf in tensors.items() for side in sides if path.startswith(side)}
    wanted = roster.read(folder).tensors
    missing = sorted({*wanted} - named.keys())
    if missing:
        raise UserError(
            f"{folder} was run with its own model, of which '{missing[0]}' is not learnt and not in the checkpoint; "
            "load it with the model: headway.load_run(…, model=…)"
        )
    return safetensors.torch.save({name: named[name].contiguous() for name in wanted})
