"""What is written by those who deploy: `SiteApp` at a site, `ServerApp` at the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from headway import random
from headway.data.own_samples import Padding
from headway.errors import UserError, shown
from headway.methods.method import Method
from headway.tasks.known import OwnTask

OwnModel = str | nn.Module | Callable[[], nn.Module]
"""A network of the catalogue by its name, a module, or what makes one: a class or a function."""


@dataclass(frozen=True)
class SiteApp:
    """What a site brings: its network, its data, and what of the method is its own."""

    model: OwnModel
    data: object = field(repr=False)
    """A function that reads it, the path of a safetensors file, a dataset, or (x, y)."""
    classes: int | None = None
    method: Method | None = None
    """A method that is not in the catalogue; it must be that of the server."""
    task: OwnTask | None = None
    """A loss that has no name; it must be that of the server."""
    padding: Padding = None
    device: str = "cpu"


@dataclass(frozen=True)
class SitePlace:
    """Where a site works."""

    name: str
    state: Path
    """Its state folder, for its owner alone."""
    clock: Callable[[], float] = time.monotonic

    def run(self, name: str) -> Path:
        """The folder of a run."""
        return self.state / "runs" / name


@dataclass(frozen=True)
class ServerApp:
    """What the server brings: the method, the network, the settings, and the folder of the run."""

    method: str | Method
    model: OwnModel
    out: str | Path
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of a scenario, by name."""
    classes: int | None = None
    sample: tuple[int, ...] | None = None
    """The shape of a sample, where the server has no test set."""
    test: object = field(default=None, repr=False)
    task: OwnTask | None = None
    metrics: Sequence[object] = ()
    padding: Padding = None


def built_model(model: OwnModel, seed: int) -> nn.Module | None:
    """The network of an app; the same seed gives the same first numbers everywhere. None for one with a name."""
    if isinstance(model, str):
        return None
    if isinstance(model, nn.Module):
        return model
    if not callable(model):
        raise UserError(f"model is {shown(model)}; give a name, a module, or a class or function that makes one")
    made = random.built(model, seed, "model")
    if not isinstance(made, nn.Module):
        raise UserError(f"model made {shown(made)}, which is no torch.nn.Module")
    return made
