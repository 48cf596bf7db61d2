"""A site's own samples: read once for a run, kept as a memory-mapped file, and known to the server by a digest alone.

The digest is of all samples, keyed with a salt that never leaves the site: nobody who guesses a sample can check the
guess. Every round is a new process, which maps the kept file instead of reading the data again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headway.data import columns
from headway.data.columns import Tensors
from headway.data.federation import Samples
from headway.data.own_data import federate
from headway.data.own_samples import Padding
from headway.deploy.codes import Code, Refused
from headway.deploy.private import private_folder, write_private
from headway.errors import UserError
from headway.random import secret
from headway.runs.roster import form_of
from headway.trees import leaves_of

SALT = 32
"""Bytes of a site's salt."""


def read_samples(path: str | Path) -> tuple[Tensors, Tensors]:
    """(inputs, targets) of a safetensors file with the tensors `x` and `y`, a row a sample.

    Inputs of several parts are `x.NAME`, targets of several parts `y.NAME`.
    """
    try:
        found = safetensors.torch.load_file(path)
    except (OSError, SafetensorError) as fault:
        raise UserError(f"{path} cannot be read as a safetensors file: {fault}") from None
    other = next((name for name in found if name.partition(".")[0] not in ("x", "y")), None)
    if other is not None or not found:
        held = f"has a tensor '{other}'" if other is not None else "is empty"
        raise UserError(f"{path} {held}; it must have x and y (or x.NAME and y.NAME), a row a sample")
    return _side(found, "x", path), _side(found, "y", path)


def _side(found: dict[str, Tensor], side: str, path: str | Path) -> Tensors:
    parts = {name: part for name, part in found.items() if name.partition(".")[0] == side}
    if not parts or (side in parts and len(parts) > 1):
        raise UserError(f"{path} must have either '{side}' or '{side}.NAME', a row a sample; it has {sorted(found)}")
    return parts[side] if side in parts else {name.partition(".")[2]: part for name, part in parts.items()}


@dataclass(frozen=True)
class SiteData:
    """A site's samples in the types of a task, and their digest."""

    samples: Samples
    fingerprint: str


class DataCache:
    """The samples of a site in its state folder."""

    def __init__(self, state: Path) -> None:
        self.state, self.folder = state, state / "data"

    @property
    def salt(self) -> bytes:
        """The site's secret; it is made where there is none."""
        path = self.state / "salt"
        if not path.is_file():
            private_folder(self.state)
            write_private(path, secret(SALT))
        return path.read_bytes()

    def read(self, source: object, task: str, padding: Padding) -> SiteData:
        """Read the data itself, and keep it for the rounds to come."""
        try:
            given = read_given(source)
            samples = federate([given], None, task=task, padding=padding).train
        except Exception as fault:
            raise Refused(Code.DATA_UNREADABLE, f"the data cannot be read ({type(fault).__name__})") from fault
        found = SiteData(samples, fingerprint(samples, self.salt))
        self._keep(found)
        return found

    def kept(self, fingerprint: str) -> SiteData | None:
        """The samples of a digest, memory-mapped; None where they are not there, or not what they were."""
        path = self.folder / f"{fingerprint}.safetensors"
        about = self.folder / f"{fingerprint}.json"
        try:
            if not about.is_file() or json.loads(about.read_text()) != _stamp(path):
                return None
            with safe_open(path, framework="pt") as file:
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 — no mapping
                form = json.loads((file.metadata() or {})["form"])
        except (OSError, SafetensorError, ValueError, KeyError):
            return None
        x, y = (_of_form(form[side], side, found) for side in ("x", "y"))
        return SiteData(Samples(x, y), fingerprint)

    def _keep(self, data: SiteData) -> None:
        private_folder(self.folder)
        sides = {"x": data.samples.inputs, "y": data.samples.y}
        form = {side: _shape(tensors) for side, tensors in sides.items()}
        tensors = {
            f"{side}.{place}": part.contiguous().clone()
            for side, one in sides.items()
            for place, part in enumerate(columns.parts(one).values())
        }
        path = self.folder / f"{data.fingerprint}.safetensors"
        write_private(path, safetensors.torch.save(tensors, {"form": json.dumps(form)}))
        write_private(path.with_suffix(".json"), json.dumps(_stamp(path)).encode())
        for other in self.folder.iterdir():
            if other.stem != data.fingerprint:
                other.unlink(missing_ok=True)  # of data that is not what the site has any more


def read_given(source: object) -> object:
    """The data of a site: what a function without arguments returns, the content of a file, or as it is."""
    if isinstance(source, str | os.PathLike):
        return read_samples(Path(source))
    make: Callable[[], object] | None = source if _is_function(source) else None  # type: ignore[assignment]
    if make is None:
        return source
    found = make()
    return read_samples(Path(found)) if isinstance(found, str | os.PathLike) else found


def _is_function(source: object) -> bool:
    return callable(source) and not hasattr(source, "__getitem__")


def _shape(tensors: Tensors) -> list[str] | int | None:
    """What form tensors have: one (None), a tuple (of how many), or a dictionary (of which names)."""
    if isinstance(tensors, Tensor):
        return None
    return len(tensors) if isinstance(tensors, tuple) else list(tensors)


def _of_form(form: list[str] | int | None, side: str, found: dict[str, Tensor]) -> Tensors:
    if form is None:
        return found[f"{side}.0"]
    parts = [found[f"{side}.{place}"] for place in range(form if isinstance(form, int) else len(form))]
    return tuple(parts) if isinstance(form, int) else dict(zip(form, parts, strict=True))


def _stamp(path: Path) -> list[int]:
    """Size and time of a file: another one in its place is seen."""
    about = path.stat()
    return [about.st_size, about.st_mtime_ns, about.st_ino]


def fingerprint(samples: Samples, salt: bytes) -> str:
    """A digest of every sample and target, with their types and shapes."""
    found = hashlib.blake2b(key=salt, digest_size=32)
    found.update(form_of(samples).encode())
    for part in leaves_of([samples.inputs, samples.y]):
        found.update(f"{part.dtype} {tuple(part.shape)} ".encode())
        array: np.ndarray = part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        found.update(array.data)
    return found.hexdigest()
