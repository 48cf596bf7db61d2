"""Client states on disk: one file of fixed rows, two slots for each client, each stamped with its round.

    | N × 2 stamps (round, checksum) | N × 2 rows |

A save writes only the clients touched since the last one, each into the slot that the committed checkpoint does not
use: the round stamped there is the largest one not after the checkpoint. Until the manifest names the new round, the
old slots are the checkpoint's, so a kill at any moment loses nothing, and a save does not cost the whole population.

One process alone writes into the file. Of several ranks each of the others writes the rows of a save into a file of its
own, which rank 0 copies: a file system over a network may write whole pages, and two machines that wrote neighbouring
rows at once would undo each other's.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from headway.engine.client_rounds import ClientState
from headway.engine.states import from_row, read_at, row_bytes, write_at
from headway.errors import DamagedRun, MachineError
from headway.runs.manifest import LeafForm
from headway.trees import named_leaves, nbytes

_STAMP = np.dtype([("round", "<i8"), ("crc", "<u4"), ("unused", "<u4")])


class Written(NamedTuple):
    """A row that was written: whose, in which of its two slots, and the checksum of its bytes."""

    client: int
    slot: int
    crc: int


class HandedRow(NamedTuple):
    """A row in a file of a rank's own: whose, and the checksum of its bytes."""

    client: int
    crc: int


class ClientRows:
    """The rows of one run. `initial` is the state of a new client, which shows their layout."""

    def __init__(self, path: Path, initial: ClientState, population: int) -> None:
        self.path, self.initial_client_state, self.population = path, initial, population
        self.row_bytes = nbytes(initial)
        self.head_bytes = population * 2 * _STAMP.itemsize

    @property
    def used(self) -> bool:
        """Whether clients of this run keep anything."""
        return self.row_bytes > 0

    @property
    def size(self) -> int:
        return self.head_bytes + 2 * self.population * self.row_bytes

    def layout(self) -> list[LeafForm]:
        """The form of each leaf, in the order of a row's bytes."""
        found = named_leaves(self.initial_client_state)
        return [
            LeafForm(name, str(leaf.dtype).removeprefix("torch."), list(leaf.shape)) for name, leaf in found.items()
        ]

    def _stamps(self, handle: int) -> np.ndarray:
        raw = read_at(handle, self.head_bytes, 0)
        if len(raw) != self.head_bytes:
            raise DamagedRun(f"the checkpoint is damaged: {self.path} does not have its {self.size} bytes")
        return np.frombuffer(raw, _STAMP).reshape(self.population, 2).copy()

    def _offset(self, client: int, slot: int) -> int:
        return self.head_bytes + (2 * client + slot) * self.row_bytes

    def create(self) -> None:
        """An empty file of full length; the holes take no space on the disk."""
        with self.path.open("wb") as file:
            file.truncate(self.size)
            os.fsync(file.fileno())

    def save(
        self, state_of: Callable[[int], ClientState | None], touched: Iterable[int], committed: int, round: int
    ) -> None:
        """Write the touched clients as of `round`, leaving what the checkpoint of round `committed` uses."""
        self.stamp(self.write(state_of, touched, committed), round)

    def write(
        self, state_of: Callable[[int], ClientState | None], touched: Iterable[int], committed: int
    ) -> list[Written]:
        """Write the rows of the touched clients, which do not count until they are stamped."""
        return self._write(((client, _row_of(state_of, client)) for client in sorted(touched)), committed)

    def hand_over(
        self, path: Path, state_of: Callable[[int], ClientState | None], touched: Iterable[int]
    ) -> list[HandedRow]:
        """Write the rows of the touched clients one after another into a file of this rank's own."""
        handed = []
        with path.open("wb") as file:
            for client in sorted(touched):
                content = _row_of(state_of, client)
                file.write(content)
                handed.append(HandedRow(client, zlib.crc32(content)))
            file.flush()
            os.fsync(file.fileno())
        return handed

    def take_over(self, path: Path, handed: Sequence[HandedRow], committed: int) -> list[Written]:
        """Write the rows that another rank has handed over in a file, and remove that."""
        written = self._write(self._handed(path, handed), committed)
        path.unlink(missing_ok=True)
        return written

    def _handed(self, path: Path, handed: Sequence[HandedRow]) -> Iterator[tuple[int, bytes]]:
        """The rows in a rank's file, where they are what that rank has written."""
        with path.open("rb") as file:
            for client, crc in handed:
                content = file.read(self.row_bytes)
                if len(content) != self.row_bytes or zlib.crc32(content) != crc:
                    raise MachineError(
                        f"the state of client {client} in {path} is not what another rank wrote: the file system does "
                        "not show what was written and closed on another machine; mount it so that it does (for NFS "
                        "without nocto), or use another one"
                    )
                yield client, content

    def _write(self, rows: Iterable[tuple[int, bytes]], committed: int) -> list[Written]:
        """Write rows, each into the slot that the checkpoint of round `committed` does not use."""
        written = []
        handle = os.open(self.path, os.O_RDWR)
        try:
            stamps = self._stamps(handle)
            for client, content in rows:
                slot = 1 - _current(stamps[client]["round"], committed)
                write_at(handle, content, self._offset(client, slot))
                written.append(Written(client, slot, zlib.crc32(content)))
            os.fsync(handle)
        finally:
            os.close(handle)
        return written

    def stamp(self, written: Iterable[Written], round: int) -> None:
        """Stamp rows that were written as of `round`."""
        handle = os.open(self.path, os.O_RDWR)
        try:
            stamps = self._stamps(handle)
            for client, slot, crc in written:
                stamps[client, slot] = (round, crc, 0)
            write_at(handle, stamps.tobytes(), 0)
            os.fsync(handle)
        finally:
            os.close(handle)

    def digest(self, round: int) -> str:
        """A checksum of the stamps that count as of `round`; what is written after it does not change it."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            return _digest(self._stamps(handle), round)
        finally:
            os.close(handle)

    def load(self, round: int, digest: str, part: int = 0, parts: int = 1) -> Iterator[tuple[int, ClientState]]:
        """Every client with its state as of the checkpoint of `round`, one after another.

        Of several `parts`, those whose number leaves the rest `part`.
        """
        if not self.path.is_file() or self.path.stat().st_size != self.size:
            raise DamagedRun(f"the checkpoint is damaged: {self.path} does not have its {self.size} bytes")
        handle = os.open(self.path, os.O_RDONLY)
        try:
            stamps = self._stamps(handle)
            if _digest(stamps, round) != digest:
                raise DamagedRun(f"the checkpoint is damaged: the stamps in {self.path} fail their checksum")
            stamps[stamps["round"] > round] = (0, 0, 0)
            clients = np.flatnonzero(stamps["round"].max(1) > 0)
            for client in clients[clients % parts == part]:
                yield int(client), self._read(handle, int(client), stamps[client])
        finally:
            os.close(handle)

    def forget_after(self, round: int) -> None:
        """Clear the stamps of what a killed run wrote after the checkpoint of `round`."""
        handle = os.open(self.path, os.O_RDWR)
        try:
            stamps = self._stamps(handle)
            stamps[stamps["round"] > round] = (0, 0, 0)
            write_at(handle, stamps.tobytes(), 0)
            os.fsync(handle)
        finally:
            os.close(handle)

    def _read(self, handle: int, client: int, stamps: np.ndarray) -> ClientState:
        slot = int(np.argmax(stamps["round"]))
        content = read_at(handle, self.row_bytes, self._offset(client, slot))
        if zlib.crc32(content) != int(stamps[slot]["crc"]):
            raise DamagedRun(
                f"the checkpoint is damaged: the state of client {client} in {self.path} fails its checksum"
            )
        return from_row(content, self.initial_client_state)


def verify_rows(path: Path, layout: list[LeafForm], round: int, digest: str) -> None:
    """Read every row that counts as of a round; `layout` and `digest` are what the manifest says."""
    leaves = {name: torch.empty(shape, dtype=getattr(torch, kind), device="meta") for name, kind, shape in layout}
    initial: ClientState = {"slots": {"": leaves}}
    per_client = 2 * (_STAMP.itemsize + nbytes(initial))
    population, rest = divmod(path.stat().st_size if path.is_file() else 1, per_client)
    if rest:
        raise DamagedRun(f"the checkpoint is damaged: {path} does not have its whole length")
    for _ in ClientRows(path, initial, population).load(round, digest):
        pass


def _digest(stamps: np.ndarray, round: int) -> str:
    valid = stamps.copy()
    valid[stamps["round"] > round] = (0, 0, 0)
    newest = np.take_along_axis(valid, valid["round"].argmax(1)[:, None], 1)
    return hashlib.sha256(newest.tobytes()).hexdigest()


def _row_of(state_of: Callable[[int], ClientState | None], client: int) -> bytes:
    """The bytes of a touched client's state."""
    state = state_of(client)
    assert state is not None, f"client {client} was touched and has no state"
    return row_bytes(state)


def _current(rounds: np.ndarray, committed: int) -> int:
    """The slot that the checkpoint of round `committed` uses; 1 where it uses none, so that 0 is written first."""
    valid = np.where((rounds > 0) & (rounds <= committed), rounds, 0)
    return int(np.argmax(valid)) if valid.any() else 1
