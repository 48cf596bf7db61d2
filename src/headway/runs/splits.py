"""split.npz: which rows of the data each client of a run holds, written when the run begins and checked by a resume.

`rows` are the clients' rows one after another and `sizes` how many each has; the manifest has the fingerprints of the
data they are rows of. Own data, passed as objects, has no rows that mean anything later: no split is written for it.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np

from headway.data.federation import Federation, Pool
from headway.engine.world import World
from headway.errors import UserError
from headway.runs.files import write_atomically

SAMPLED = 1000


def _old_fingerprint(federation: Federation) -> str:
    """What a split held before manifests had fingerprints: of shapes, all targets and up to 1,000 samples of a set."""
    digest = hashlib.sha256()
    for pool in (federation.train, federation.test):
        digest.update(f"{tuple(pool.x.shape)} {tuple(pool.y.shape)}".encode())
        digest.update(pool.y.numpy().tobytes())
        digest.update(_sample(pool).tobytes())
    return digest.hexdigest()


def _sample(pool: Pool) -> np.ndarray:
    places = np.unique(np.linspace(0, len(pool) - 1, min(len(pool), SAMPLED)).astype(np.int64))
    samples: np.ndarray = pool.x[places].numpy()
    return samples


def _held(federation: Federation) -> dict[str, np.ndarray]:
    return {
        "rows": np.concatenate(list(federation.clients)).astype(np.int32),
        "sizes": np.array([len(rows) for rows in federation.clients], np.int32),
    }


def _packed(arrays: dict[str, np.ndarray]) -> bytes:
    """An npz file whose bytes depend on the arrays only: NumPy's own carries the time."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue(), zipfile.ZIP_DEFLATED)
    return file.getvalue()


def keep(folder: Path, world: World, accept: bool = False) -> None:
    """Write the run's split, or refuse a run whose split is not what it was; `accept`: write it anew."""
    if world.scenario.data == "own":
        return
    path, now = folder / "split.npz", _held(world.federation)
    if accept or not path.is_file():
        write_atomically(path, _packed(now))
        return
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            written = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as fault:
        raise UserError(f"{path} is damaged: {str(fault).splitlines()[0]}") from None
    if "fingerprint" in written and written["fingerprint"] != _old_fingerprint(world.federation):
        raise UserError(f"the data '{world.scenario.data}' is not what {folder} was run with; start a new run")
    if not all(np.array_equal(written.get(name, ()), now[name]) for name in now):
        raise UserError(
            f"the split '{world.scenario.partition}' is not the one in {path}; start a new run, or put back the files "
            "and the version of headway that the run began with"
        )
