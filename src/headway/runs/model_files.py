"""A model as a file that any other program can read."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
from torch import nn

from headway.errors import UserError, shown
from headway.runs.files import as_path, write_atomically


def as_bytes(module: nn.Module) -> bytes:
    """A state dict as safetensors; tensors that share memory are written under each of their names."""
    return safetensors.torch.save({name: tensor.clone().contiguous() for name, tensor in module.state_dict().items()})


def model_path(path: object) -> Path:
    """Where a model is written: a path with the name of a file."""
    target = as_path("path", path)
    if not target.name:
        raise UserError(f"path is {shown(path)}; it must be the name of a file, such as 'model.safetensors'")
    return target


def write_bytes(content: bytes, target: Path) -> Path:
    """Write a model's file, whole or not at all."""
    try:
        write_atomically(target, content)
    except OSError as fault:
        raise UserError(f"{target} cannot be written: {fault.strerror}") from None
    return target


def write_model(module: nn.Module, path: object) -> Path:
    """Write a module's state dict as safetensors."""
    return write_bytes(as_bytes(module), model_path(path))
