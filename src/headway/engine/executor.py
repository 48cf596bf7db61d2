"""What an executor is: something that trains a cohort with the functions of `local.py`, in any way it likes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headway.engine.local import Task
from headway.engine.network import Buffers
from headway.errors import ClientError, OutOfMemory
from headway.methods.slots import Message


@dataclass(frozen=True)
class Work:
    """One client's work in one round."""

    client: int
    task: Task
    """On the host."""
    weight: float
    """ω_i: its share of what reaches the server in this round."""
    kept: dict[str, Any]
    steps: int
    """K_i."""
    words: tuple[int, int]
    """The key of (seed, round, client), for models that draw from torch's own generator."""


Form = tuple[int, tuple[int, ...]]
"""Of a client: the samples that are read as a whole, and those in each batch of a whole round."""


class Works:
    """A cohort's works: each is made when it is asked for and held until it is let go, so not all are there at once."""

    def __init__(
        self,
        lengths: Sequence[int] = (),
        make: Callable[[int], Work] | None = None,
        counts: Sequence[int] | None = None,
        form: Callable[[int], Form] | None = None,
    ) -> None:
        self.lengths = tuple(lengths)
        """K_i of each, known without making it."""
        self._make, self._counts, self._form = make, counts, form
        self._held: dict[int, Work] = {}

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, at: int) -> Work:
        if at not in self._held:
            assert self._make is not None
            self._held[at] = self._make(at)
        return self._held[at]

    def __iter__(self) -> Iterator[Work]:
        return (self[at] for at in range(len(self)))

    def at(self, positions: Iterable[int]) -> list[Work]:
        return [self[position] for position in positions]

    def samples(self, positions: Iterable[int]) -> int:
        """Samples in the works at these positions."""
        if self._counts is not None:
            return sum(self._counts[position] for position in positions)
        return sum(int(work.task.counts.sum()) for work in self.at(positions))

    def form(self, at: int) -> Form:
        """The shape of a work's batches, known without making it."""
        assert self._form is not None
        return self._form(at)

    def let_go(self, positions: Iterable[int]) -> None:
        for position in positions:
            self._held.pop(position, None)


@dataclass(frozen=True)
class Assignment:
    """A whole cohort's work: the message is the same for all."""

    round: int
    received: Message
    buffers: Buffers
    works: Works
    shapes: Mapping[str, tuple[int, ...]]
    """Of a task's tensors, the largest that this run can meet."""
    failures: dict[int, ClientError] | None = None
    """Where clients that fail are skipped: what each of them said, by its position. Executors fill it."""

    def failed(self, position: int, fault: ClientError) -> None:
        """A client failed: its result will not come. Where nobody is skipped, the failure ends the round."""
        if self.failures is None or isinstance(fault, OutOfMemory):
            raise fault
        self.failures[position] = fault


Trained = tuple[tuple[int, ...], dict[str, Any]]
"""Positions in the cohort, and what `local.finish` returned for them, leaves stacked along a leading axis.

Beside it stands `computed`, the number of samples that went through the network, those included that only filled a
shape. An executor may add their `local.summary` under that name.
"""


class Executor(Protocol):
    name: str

    def run(self, assignment: Assignment) -> Iterator[Trained]:
        """Groups of trained clients; positions tell where they stand in the cohort.

        A group's tensors may be written over when the next one is asked for.
        """

    def close(self) -> None: ...


class Foresighted(Executor, Protocol):
    """An executor that can take in a round's tasks while a device is busy with the round before."""

    @property
    def room(self) -> int:
        """The largest cohort whose tasks it takes in; 0 before its first round."""

    def expect(self, works: Works, tasks: Task, weights: np.ndarray) -> None:
        """What the next round brings, unless other works come: `tasks` are those of `works`, stacked."""


class CannotExecute(Exception):
    """This executor cannot take this model or method; the message says why."""


def first_words(fault: BaseException) -> str:
    """What a fault says in its first line, and in the second where the first only announces it."""
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
