"""What an executor is: it trains a cohort with the functions of `local_training.py`, in any way it likes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from headway.data.cohort import Cohort
from headway.engine.aggregate import Group
from headway.engine.client_rounds import CohortRounds
from headway.engine.network import Buffers
from headway.errors import ClientError, UserError, place_of
from headway.methods.slots import Message

if TYPE_CHECKING:
    from headway.engine.evaluation import Scores
    from headway.engine.server import GlobalState


@dataclass(frozen=True)
class RoundInput:
    """What every client of a round receives."""

    round: int
    message: Message
    buffers: Buffers


class Executor(Protocol):
    """Trains cohorts. Results may differ between executors in their last bits only.

    The module of an executor has a function `executor(experiment, forms, coupled)` that makes one. `forms` are the
    words after its name, such as `compiled`; `coupled` says that rows which fill a short batch would change the others.
    """

    name: str
    """As in the table of `headway/executors.py`, with its forms."""

    def run(self, given: RoundInput, rounds: CohortRounds) -> Iterator[Group]:
        """Train these clients, in groups.

        Every client's place is in one group, or goes to `rounds.failed` with its `ClientError`. A group's tensors may
        be written over when the next one is asked for. Groups are added as they come, so their order is a rounding.
        """

    def prefetch(self, round: int) -> None:
        """Prepare what a coming round needs, if the device is busy and the host is not; may do nothing."""

    def close(self) -> None:
        """Let go of processes and memory."""


@dataclass(frozen=True)
class Attended:
    """Who took part in a round of clients at other places, and what the round's record says of it."""

    cohort: Cohort
    notes: Mapping[str, object]


class RemoteExecutor(Executor, Protocol):
    """Clients at other places: their uploads are here before the round is computed, and decide who takes part."""

    def attend(self, round: int, state: GlobalState) -> Attended:
        """Ask the clients of a round, and wait for those that answer; `run` then gives what they sent."""

    def judge(self, round: int, state: GlobalState) -> Scores:
        """The scores of the model after a round, here and on the clients' own samples."""


class CannotExecute(Exception):
    """This executor cannot take this model or method; the message says why."""


class located:
    """Wraps the local training of clients, so that a failure says its round, its clients and its step.

    `step` is set as the steps go on. That an executor cannot take a model is not a failure of its clients.
    """

    def __init__(self, round: int, clients: Sequence[int]) -> None:
        self.round, self.clients = round, clients
        self.step: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> None:
        if isinstance(fault, UserError):
            raise fault.at(place_of(self.round, self.clients, self.step)) from fault
        if isinstance(fault, Exception) and not isinstance(fault, CannotExecute):
            raise ClientError.of(fault, round=self.round, clients=self.clients, step=self.step) from fault
