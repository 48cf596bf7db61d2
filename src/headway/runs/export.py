"""The final model of a run, as any other program can read it."""

from __future__ import annotations

from pathlib import Path

from headway.errors import UserError, shown
from headway.runs.best_models import as_bytes
from headway.runs.files import as_path, write_atomically
from headway.runs.load import load_run
from headway.runs.observer import Observer


def export(run: str | Path, path: str | Path, observer: Observer | None = None, *, best: bool = False) -> Path:
    """Write the model's state dict (parameters and buffers, under the module's own names, in the run's type).

    A tensor that stands under two names is written under both. `best`: the model of the best round, where it was kept.
    """
    target = as_path("path", path)
    if not target.name:
        raise UserError(f"path is {shown(path)}; it must be the name of a file, such as 'model.safetensors'")
    found = load_run(run, observer=observer)
    content = as_bytes(found.best_model if best else found.model)
    try:
        write_atomically(target, content)
    except OSError as fault:
        raise UserError(f"{target} cannot be written: {fault.strerror}") from None
    return target
