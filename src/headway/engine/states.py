"""Client states by id: in memory and, past a limit, in a file."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from headway.engine.client_rounds import ClientState
from headway.trees import Tree, laid_out, leaves_of, moved, nbytes, refill


class ClientStates:
    """What each client keeps between rounds. `touched` are those changed since the last save.

    With a limit in bytes, the states used longest ago move to an unnamed file of fixed rows, which the system removes
    when the run ends; a client that returns finds its own. The file is in `folder`, where one is given: the system's
    own place for such files may be memory.
    """

    def __init__(self, limit: int | None = None, folder: Path | None = None) -> None:
        self.limit, self.folder = limit, folder
        self.states: dict[int, ClientState] = {}
        self.touched: set[int] = set()
        self._file: IO[bytes] | None = None
        self._spilled: set[int] = set()
        self._like: ClientState | None = None
        self._row = 0

    def get(self, client: int) -> ClientState | None:
        if client in self.states:
            state = self.states.pop(client)
            self.states[client] = state  # the newest is last
            return state
        return self._read(client) if client in self._spilled else None

    def put(self, client: int, state: ClientState) -> None:
        """Keep a state; the caller gives it away."""
        self.states.pop(client, None)
        self._spilled.discard(client)
        self.states[client] = state
        self.touched.add(client)
        self._spill()

    def drop(self, client: int) -> None:
        """Forget a client whose state is somewhere else now."""
        self.states.pop(client, None)
        self._spilled.discard(client)
        self.touched.discard(client)

    def saved(self) -> None:
        """All that was touched has been saved."""
        self.touched.clear()

    def clients(self) -> Iterator[int]:
        yield from sorted(self.states.keys() | self._spilled)

    def _spill(self) -> None:
        if self.limit is None:
            return
        newest = next(reversed(self.states))
        self._like = self.states[newest]
        self._row = self._row or nbytes(self._like)
        while len(self.states) > 1 and len(self.states) * self._row > self.limit:
            oldest = next(iter(self.states))
            self._write(oldest, self.states.pop(oldest))

    def _write(self, client: int, state: ClientState) -> None:
        if self._file is None:
            place = self.folder if self.folder and os.access(self.folder, os.W_OK) else None
            self._file = tempfile.TemporaryFile(dir=place)  # noqa: SIM115 — open as long as the states are there
            weakref.finalize(self, self._file.close)
        write_at(self._file.fileno(), row_bytes(state), client * self._row)
        self._spilled.add(client)

    def _read(self, client: int) -> ClientState:
        assert self._like is not None
        assert self._file is not None
        content = read_at(self._file.fileno(), self._row, client * self._row)
        return moved(from_row(content, self._like), leaves_of(self._like)[0].device)


def write_at(handle: int, content: bytes, offset: int) -> None:
    """Write all of it at a place; the system may take it in parts."""
    while content:
        written = os.pwrite(handle, content, offset)
        content, offset = content[written:], offset + written


def read_at(handle: int, size: int, offset: int) -> bytes:
    """Read this many bytes from a place, fewer only at the end of the file."""
    parts: list[bytes] = []
    while size > 0 and (part := os.pread(handle, size, offset)):
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return b"".join(parts)


def row_bytes(state: object) -> bytes:
    """The tensors of a tree one after another."""
    return b"".join(
        leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for leaf in leaves_of(state)
    )


def from_row(content: bytes, like: Tree) -> Tree:
    """The tree that `row_bytes` wrote, shaped like another."""
    tensors, at = [], 0
    for leaf in leaves_of(like):
        size = nbytes(leaf)
        tensors.append(_tensor(content[at : at + size], leaf))
        at += size
    return refill(like, tensors)


def _tensor(content: bytes, like: Tensor) -> Tensor:
    flat = torch.frombuffer(bytearray(content), dtype=like.dtype) if content else torch.empty(0, dtype=like.dtype)
    tensor: Tensor = laid_out(flat.reshape(like.shape), like)
    return tensor
