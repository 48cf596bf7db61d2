"""Ranks: several processes that run one simulation together, each with its part of every cohort.

Every rank runs the same rounds. The global state is replicated: each rank computes it from the same sums, so nobody
sends a model. `Alone` is one process by itself; `process_group.ProcessRanks` are those that torchrun has started.

A fault of one rank must end all of them, in the same way and with one message. So every exchange begins with `tell`:
who has failed meanwhile says it there, and then all raise what the first of them said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from torch import Tensor

from headway.engine.executor import CannotExecute
from headway.errors import (
    CallbackError,
    ClientError,
    DamagedRun,
    Diverged,
    Interrupted,
    MachineError,
    OutOfMemory,
    RankFailed,
    RanksLost,
    ServerDiverged,
    SlotError,
    UserError,
    in_words,
    is_shared,
    shared,
)

Told = Mapping[str, object]
"""What a rank tells the others: plain data, as JSON has it."""
Answer = TypeVar("Answer")

FAULTS: Mapping[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        ServerDiverged,
        Diverged,
        DamagedRun,
        UserError,
        OutOfMemory,
        ClientError,
        SlotError,
        CallbackError,
        MachineError,
        CannotExecute,
    )
}
"""What a rank may tell of its fault. Of an exception of another kind, the others raise a `MachineError`."""


class Ranks(Protocol):
    """The processes of a run, as one of them sees them."""

    @property
    def rank(self) -> int:
        """This one, from 0. Rank 0 alone prints, calls callbacks and writes the run's files."""

    @property
    def size(self) -> int:
        """How many there are."""

    def tell(self, content: Told, fault: BaseException | None = None) -> Sequence[Told]:
        """What each rank tells, by rank. Where one has a fault, all raise the first one's."""

    def add_up(self, flat: Tensor) -> None:
        """The sum of a tensor over all ranks, in its place, with the same bits on each."""

    def spread(self, flat: Tensor, source: int) -> None:
        """The tensor of one rank, in the place of everybody's."""

    def send(self, flat: Tensor, target: int) -> Callable[[], None]:
        """Begin to send a tensor to a rank, which receives it. What is returned waits until the tensor is free."""

    def receive(self, flat: Tensor, source: int) -> None:
        """A tensor from a rank that sends it."""

    def outlive(self, rank: int) -> None:
        """Wait for the end of a rank that has something to print: whoever ends first decides how all are ended."""


class Alone:
    """One process by itself."""

    rank, size = 0, 1

    def tell(self, content: Told, fault: BaseException | None = None) -> Sequence[Told]:
        if fault is not None:
            raise fault
        return [content]

    def add_up(self, flat: Tensor) -> None:
        pass

    def spread(self, flat: Tensor, source: int) -> None:
        pass

    def send(self, flat: Tensor, target: int) -> Callable[[], None]:
        raise AssertionError("there is nobody to send to")

    def receive(self, flat: Tensor, source: int) -> None:
        raise AssertionError("there is nobody to receive from")

    def outlive(self, rank: int) -> None:
        pass


ALONE = Alone()


def as_told(fault: BaseException) -> dict[str, object]:
    """What a rank says of its fault."""
    kind = next((name for name, kind in FAULTS.items() if isinstance(fault, kind)), "")
    text = str(fault) if kind else in_words(fault)
    return {"kind": kind, "text": text, "signal": fault.number if isinstance(fault, Interrupted) else 0}


def raised_by(rank: int, told: Mapping[str, object]) -> BaseException:
    """The fault that a rank told of."""
    text, number = str(told["text"]), told["signal"]
    if isinstance(number, int) and number:
        return Interrupted(number)
    kind = FAULTS.get(str(told["kind"]))
    return RankFailed(rank, text) if kind is None else kind(text)


def speaker(ranks: Ranks, fault: BaseException) -> int:
    """The rank that says to the user what all ranks raise: rank 0, or the only one that knows what it was."""
    if isinstance(fault, RankFailed):
        return fault.rank
    known = isinstance(fault, (*FAULTS.values(), MachineError, KeyboardInterrupt))
    return 0 if known else ranks.rank


@contextmanager
def all_or_none(ranks: Ranks) -> Iterator[None]:
    """A fault inside is raised on every rank: whoever has none hears of it in its next exchange."""
    try:
        yield
    except Exception as fault:
        raise_everywhere(ranks, fault)


def raise_everywhere(ranks: Ranks, fault: Exception) -> None:
    """Tell the others of a fault, and raise what all raise."""
    if ranks.size == 1 or is_shared(fault) or isinstance(fault, RanksLost):
        raise fault
    ranks.tell({}, fault)


def settled(ranks: Ranks, fault: Exception) -> Exception:
    """What all ranks raise for a fault of this one."""
    try:
        raise_everywhere(ranks, fault)
    except Exception as known:
        return known
    return fault


def told_by_first(ranks: Ranks, answer: Callable[[], Answer]) -> Answer:
    """What rank 0 finds out, which is plain data, on every rank; its fault is everybody's."""
    if ranks.size == 1:
        return answer()
    own: dict[str, object] = {}
    if ranks.rank == 0:
        try:
            own["answer"] = answer()
        except Exception as fault:
            raise_everywhere(ranks, fault)
    found: Answer = ranks.tell(own)[0]["answer"]  # type: ignore[assignment]
    return found


def check_same(ranks: Ranks, facts: Mapping[str, str]) -> None:
    """Refuse ranks that do not have the same data, model and settings: `facts` are their digests by name."""
    if ranks.size == 1:
        return
    told = ranks.tell({"facts": dict(facts)})
    for rank, one in enumerate(told):
        theirs = one["facts"]
        assert isinstance(theirs, dict)
        odd = [name for name, digest in facts.items() if digest != theirs.get(name)]
        if one["facts"] != told[0]["facts"]:
            odd = odd or sorted(theirs)
            raise shared(
                UserError(
                    f"rank {rank} does not have what rank 0 has: {_first_other(told[0]['facts'], theirs) or odd[0]}; "
                    "build data and model in the same way on every rank (for a model of your own: torch.manual_seed(0) "
                    "before it is made)"
                )
            )


def _first_other(mine: object, theirs: Mapping[str, object]) -> str:
    """The name of the first fact that differs."""
    assert isinstance(mine, dict)
    return next((name for name in mine if mine[name] != theirs.get(name)), "")
