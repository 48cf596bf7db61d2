"""What an executor is: it trains a cohort with the functions of `local_training.py`, in any way it likes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from headway.engine.aggregate import Group
from headway.engine.client_rounds import CohortRounds
from headway.engine.network import Buffers
from headway.methods.slots import Message


@dataclass(frozen=True)
class RoundInput:
    """What every client of a round receives."""

    round: int
    message: Message
    buffers: Buffers


class Executor(Protocol):
    """Trains cohorts. Results may differ between executors in their last bits only."""

    name: str

    def run(self, given: RoundInput, rounds: CohortRounds) -> Iterator[Group]:
        """Train these clients, in groups.

        A group's tensors may be written over when the next one is asked for.
        """

    def prefetch(self, round: int) -> None:
        """Prepare what a coming round needs, if the device is busy and the host is not."""

    def close(self) -> None: ...


class CannotExecute(Exception):
    """This executor cannot take this model or method; the message says why."""
