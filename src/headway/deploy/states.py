"""`StateFolder`: what a client keeps between its rounds, in files at its site.

The server names the version to begin from, the one of the client's last round that counted, and those that it may
still ask for. So a reply that is lost, late or doubled, or a server that goes back to its checkpoint, leaves both
sides together: the site decides nothing.

    round-7.18a2f0.safetensors    the state after round 7, as the ask 18a2f0 made it; whole, or not there
    round-7.18a2f0.begun          that ask was begun: it is worked on once
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError, safe_open

from headway.deploy.codes import Code, Refused
from headway.deploy.private import private_folder, write_private
from headway.engine.client_rounds import ClientState
from headway.engine.states import row_bytes
from headway.runs.files import sync_folder
from headway.trees import laid_out, named_leaves, refill

_STATE, _BEGUN = ".safetensors", ".begun"


class StateFolder:
    """The states of one client of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, version: str, like: ClientState) -> ClientState:
        """The state of a version, in the form of another; one that is gone or damaged is refused."""
        path = self._path(version, _STATE)
        try:
            with safe_open(path, framework="pt") as file:
                found = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 — no mapping
                digest = (file.metadata() or {}).get("sha256")
        except (OSError, SafetensorError):
            raise _lost(version, "is not there or cannot be read") from None
        wanted = named_leaves(like)
        forms = {name: (leaf.dtype, leaf.shape) for name, leaf in found.items()}
        if forms != {name: (leaf.dtype, leaf.shape) for name, leaf in wanted.items()}:
            raise _lost(version, "is not of this method and model")
        state = laid_out(refill(like, [found[name] for name in wanted]), like)
        if digest != _digest(state):
            raise _lost(version, "is damaged: it fails its checksum")
        return state

    def begin(self, version: str, keep: Collection[str]) -> None:
        """Claim an ask, which is worked on once, and forget all versions but those to be kept."""
        private_folder(self.folder)
        if self._path(version, _STATE).exists():
            raise _doubled()
        self._forget({*keep, version})
        try:
            os.close(os.open(self._path(version, _BEGUN), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise _doubled() from None

    def save(self, version: str, state: ClientState) -> None:
        """Write the state that a round left; afterwards it is there, or an error is raised."""
        tensors = {name: leaf.detach().cpu().contiguous() for name, leaf in named_leaves(state).items()}
        content = safetensors.torch.save(tensors, {"sha256": _digest(state)})
        write_private(self._path(version, _STATE), content)

    def versions(self) -> set[str]:
        """The versions that are there."""
        return {path.name[len("round-") : -len(_STATE)] for path in self.folder.glob(f"round-*{_STATE}")}

    def _path(self, version: str, ending: str) -> Path:
        return self.folder / f"round-{version}{ending}"

    def _forget(self, keep: Collection[str]) -> None:
        """Remove all other versions, and what was left beside them."""
        kept = {f"round-{version}{ending}" for version in keep for ending in (_STATE, _BEGUN)}
        gone = [path for path in self.folder.glob("round-*") if path.name not in kept]
        for path in gone:
            path.unlink(missing_ok=True)
        if gone:
            sync_folder(self.folder)


def _digest(state: ClientState) -> str:
    return hashlib.sha256(row_bytes(state)).hexdigest()


def _lost(version: str, why: str) -> Refused:
    return Refused(Code.STATE_LOST, f"the state after round {version.partition('.')[0]} {why}")


def _doubled() -> Refused:
    return Refused(Code.DOUBLED, "this ask was worked on before")
