"""split.npz: which rows of the data each client of a run holds, written when the run begins and checked by a resume.

`rows` are the clients' rows one after another and `sizes` how many each has; the manifest has the fingerprints of the
data they are rows of. Own data, passed as objects, has no rows that mean anything later: no split is written for it.
Where a sample has one class, `class_counts` are those of up to 1,000 clients, for the picture of the split, and
`class_names` what the classes are called.
"""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from headway.data.columns import Column, Windows
from headway.data.federation import Census, Federation, Samples
from headway.engine.experiment import Experiment
from headway.errors import DamagedRun, UserError
from headway.runs.files import read_plain, write_atomically

SAMPLED = 1000
SHOWN = 1000
"""Of how many clients the classes are known, at most: where there are more, they are evenly spaced by id."""
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error)
"""What reading a damaged archive raises."""


@dataclass(frozen=True)
class SplitTable:
    """How many samples of each class clients have."""

    clients: np.ndarray
    """The clients that are in it, by id."""
    counts: np.ndarray
    """Samples, shape (clients, classes)."""
    class_names: tuple[str, ...]
    """What the classes are called; empty where nobody said it."""
    sizes: np.ndarray
    """n_i of all clients, also of those that are not in the table."""


def _spaced(population: int) -> np.ndarray:
    return np.unique(np.linspace(0, population - 1, min(population, SHOWN)).astype(int))


def table_of(federation: Federation) -> SplitTable | None:
    """The classes of a federation's clients; None where a sample has not one class, and where samples are not here."""
    if not federation.is_labelled or federation.is_drawn or isinstance(federation.clients, Census):
        return None
    clients = _spaced(len(federation.clients))
    counts = np.stack([federation.class_counts(int(client)) for client in clients])
    return SplitTable(clients, counts, federation.class_names, federation.sizes)


def table_in(folder: Path) -> SplitTable | None:
    """The classes of a run's clients as its folder has them; None where it does not, as those of earlier versions."""
    path = folder / "split.npz"
    held = _read(path) if path.is_file() else {}
    if not {"class_counts", "class_names"} <= held.keys():
        return None
    sizes, counts = held["sizes"], held["class_counts"]
    clients = _spaced(len(sizes))
    if counts.ndim != 2 or len(counts) != len(clients) or not np.array_equal(counts.sum(1), sizes[clients]):
        raise DamagedRun(f"{path} is damaged: its classes are not those of its clients; put it back from a copy")
    return SplitTable(clients, counts, tuple(map(str, held["class_names"])), sizes)


def _old_fingerprint(federation: Federation) -> str:
    """What a split held before manifests had fingerprints: of shapes, all targets and up to 1,000 samples of a set."""
    digest = hashlib.sha256()
    for pool in (federation.train, federation.test):
        x, y = _single(pool), pool.labels
        digest.update(f"{tuple(x.shape)} {tuple(y.shape)}".encode())
        digest.update(y.numpy().tobytes())
        digest.update(_sample(pool).tobytes())
    return digest.hexdigest()


def _sample(pool: Samples) -> np.ndarray:
    places = np.unique(np.linspace(0, len(pool) - 1, min(len(pool), SAMPLED)).astype(np.int64))
    samples: np.ndarray = _single(pool)[torch.from_numpy(places)].numpy()
    return samples


def _single(pool: Samples) -> Column:
    """The inputs of data from before there were samples of several parts."""
    assert isinstance(pool.x, Tensor | Windows)
    return pool.x


def _held(federation: Federation) -> dict[str, np.ndarray]:
    return {
        "rows": np.concatenate(list(federation.clients)).astype(np.int32),
        "sizes": np.array([len(rows) for rows in federation.clients], np.int32),
    }


def _classes(federation: Federation) -> dict[str, np.ndarray]:
    """What a split's file has beside the split, where a sample has one class."""
    found = table_of(federation)
    if found is None:
        return {}
    return {"class_counts": found.counts.astype(np.int32), "class_names": np.array(found.class_names, np.str_)}


def _packed(arrays: dict[str, np.ndarray]) -> bytes:
    """An npz file whose bytes depend on the arrays only: NumPy's own carries the time."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue(), zipfile.ZIP_DEFLATED)
    return file.getvalue()


def write_or_check(folder: Path, experiment: Experiment, accept: bool = False, expected: str | None = None) -> str:
    """Write the run's split, or refuse a run whose split is not what it was; the split's digest.

    `accept`: write it anew. `expected` is the digest that the run's checkpoint has.
    """
    if experiment.scenario.data == "own" or experiment.federation.is_drawn:  # by users, as the data's name says
        return ""
    path, now = folder / "split.npz", _held(experiment.federation)
    digest = _digest(now)
    if not accept:
        _check(path, experiment, now, expected in (None, digest))
    if accept or not path.is_file():
        write_atomically(path, _packed({**now, **_classes(experiment.federation)}))
    return digest


def _check(path: Path, experiment: Experiment, now: dict[str, np.ndarray], as_expected: bool) -> None:
    """Refuse a split that is not the one in the file, and one that is not `as_expected` by the checkpoint."""
    folder = path.parent
    if not path.is_file():
        if as_expected:
            return
        raise DamagedRun(f"{path} is missing, and data or split are not what {folder} was run with; put it back")
    written = _read(path)
    if "fingerprint" in written and written["fingerprint"] != _old_fingerprint(experiment.federation):
        raise UserError(f"the data '{experiment.scenario.data}' is not what {folder} was run with; start a new run")
    if not all(np.array_equal(written.get(name, ()), now[name]) for name in now):
        raise UserError(
            f"the split '{experiment.scenario.partition}' is not the one in {path}; start a new run, or put back the "
            "files and the version of headway that the run began with"
        )
    if not as_expected:
        raise DamagedRun(f"{path} is not the split that {folder} was run with; put it back")


def verify(folder: Path, expected: str | None) -> None:
    """Refuse a split that is not the one a checkpoint was made with; '' and None stand for no split."""
    path = folder / "split.npz"
    if expected and not path.is_file():
        raise DamagedRun(f"{path} is missing; put it back from a copy")
    if expected and _digest(_read(path)) != expected:
        raise DamagedRun(f"{path} is damaged: it is not the split that {folder} was run with; put it back from a copy")


def _digest(held: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in ("rows", "sizes"):
        array = np.ascontiguousarray(held[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(io.BytesIO(read_plain(path)), allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
        if not {"rows", "sizes"} <= found.keys():
            raise ValueError("it does not hold rows and sizes")
    except _UNREADABLE as fault:
        cause = (str(fault).splitlines() or [type(fault).__name__])[0]
        raise DamagedRun(f"{path} is damaged: {cause}; put it back from a copy") from None
    return found
