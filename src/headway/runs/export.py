"""The final model of a run, as any other program can read it."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch

from headway.errors import UserError, shown
from headway.runs.files import as_path, write_atomically
from headway.runs.load import load_run
from headway.runs.observer import Observer


def export(run: str | Path, path: str | Path, observer: Observer | None = None) -> Path:
    """Write the model's state dict (parameters and buffers, under the module's own names, in the run's type).

    A tensor that stands under two names is written under both.
    """
    target = as_path("path", path)
    if not target.name:
        raise UserError(f"path is {shown(path)}; it must be the name of a file, such as 'model.safetensors'")
    state = load_run(run, observer=observer).model.state_dict()
    try:
        write_atomically(
            target, safetensors.torch.save({name: tensor.clone().contiguous() for name, tensor in state.items()})
        )
    except OSError as fault:
        raise UserError(f"{target} cannot be written: {fault.strerror}") from None
    return target
