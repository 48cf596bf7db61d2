"""What can go wrong by the user's hand, and what can go wrong inside a client."""

from __future__ import annotations

import difflib
import re
import signal
from collections.abc import Iterable
from typing import TypeVar

MOST = 1_000
"""Characters of a message."""


def readable(message: str) -> str:
    """A message on one line that any terminal can show. A long one keeps its beginning and its end."""
    words = re.sub(r"\s*[\t\n\v\f\r]\s*", " ", message).strip()
    line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in words)
    if len(line) <= MOST:
        return line
    return f"{line[: MOST - 300]} … ({len(line):,} characters) … {line[-250:]}"


class _Told(Exception):
    """An exception whose message is for people."""

    def __init__(self, message: str = "") -> None:
        super().__init__(readable(message))


class UserError(_Told, ValueError):
    """A mistake in what Headway was asked to do. The message is one line that says what is allowed."""

    def at(self, place: str) -> UserError:
        """The same mistake, with the place where it was noticed."""
        return type(self)(f"{place}: {self}")


def place_of(round: int, clients: Iterable[int], step: int | None = None) -> str:
    """Where in a run something happened."""
    names = ", ".join(str(client) for client in clients)
    return f"round {round}, client {names}" + ("" if step is None else f", step {step}")


def is_short_of_memory(fault: BaseException) -> bool:
    """Whether the machine had too little memory: no fault of whose code was running."""
    return type(fault).__name__ in ("MemoryError", "OutOfMemoryError") or "allocate memory" in str(fault)


class DamagedRun(UserError):
    """A file of a run folder is not what was written there."""


class NothingCounts(UserError):
    """Samples of which no token or pixel counts, so that there is nothing to learn from them."""


class ClientError(_Told, RuntimeError):
    """A failure inside one client's work, with the place where it happened."""

    @classmethod
    def at(cls, cause: str, *, round: int, clients: Iterable[int], step: int | None = None) -> ClientError:
        return cls(f"{place_of(round, clients, step)}: {cause}")

    @classmethod
    def of(cls, fault: BaseException, *, round: int, clients: Iterable[int], step: int | None = None) -> ClientError:
        """What a client's work raised, with the place."""
        kind = OutOfMemory if is_short_of_memory(fault) else cls
        return kind.at(in_words(fault), round=round, clients=clients, step=step)


class SlotError(_Told, RuntimeError):
    """A failure inside a hook that is not a client's, with slot, method and round."""


class CallbackError(_Told, RuntimeError):
    """A failure inside a callback, with its hook and the round. The run can be resumed."""


class _Hook(str):
    """A note on an exception: the slot value whose hook raised it."""


def note_hook(fault: BaseException, place: str) -> None:
    """Remember in whose hook an exception was raised; the innermost stays."""
    if not any(isinstance(note, _Hook) for note in getattr(fault, "__notes__", ())):
        fault.add_note(_Hook(place))


def in_words(fault: BaseException) -> str:
    """An exception in one line: the slot value it came from, where that is known, its type and what it says."""
    hooks = [f"{note}: " for note in getattr(fault, "__notes__", ()) if isinstance(note, _Hook)]
    return f"{''.join(hooks)}{type(fault).__name__}: {fault}"


def first_words(fault: BaseException) -> str:
    """What a fault says in its first line, and in the second where the first only announces it."""
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])


class OutOfMemory(ClientError):
    """The machine had too little memory for a client: no fault of the client's, so it is never skipped."""


class MachineError(_Told, RuntimeError):
    """A failure of the machine in the middle of a run, such as a killed worker process. The run can be resumed."""


class RanksLost(MachineError):
    """Another rank of the run has ended."""


class RankSilent(RanksLost):
    """Another rank of the run does not answer any more."""


class RankFailed(MachineError):
    """Another rank raised what Headway has no words for, such as a full disk; its own process says it."""

    def __init__(self, rank: int, cause: str) -> None:
        super().__init__(f"rank {rank}: {cause}")
        self.rank = rank


class RanksDiffer(MachineError):
    """The ranks of a run have come to different numbers, so that the round in hand must not be kept."""


class _Shared(str):
    """A note on an exception: every rank of the run raises it."""


Fault = TypeVar("Fault", bound=BaseException)


def shared(fault: Fault) -> Fault:
    """The fault, marked as one that every rank of a run raises, so that one message is enough."""
    if not is_shared(fault):
        fault.add_note(_Shared("(raised on every rank)"))
    return fault


def is_shared(fault: BaseException) -> bool:
    """Whether every rank of the run raises this fault."""
    return any(isinstance(note, _Shared) for note in getattr(fault, "__notes__", ()))


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or another signal that asks a program to end."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.number = number


class WorkerFailed(_Told, RuntimeError):
    """A run in a process of its own raised what Headway has no words for; that process has printed where."""


class RunsFailed(_Told, RuntimeError):
    """Some of several runs failed, not all by the user's hand; the others are done."""


class Diverged(UserError):
    """A loss or an update that is not a finite number."""


class ServerDiverged(Diverged):
    """The server's own step, or what its new model answers, is not finite; nothing is saved.

    By then a slot may have changed what it owns, and clients what they keep.
    """


SHOWN = 80
"""Characters of a value that stand in a message."""


def shown(value: object) -> str:
    """A value as a message has it: on one line, and not longer than helps."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a whole number of about {round(value.bit_length() * 0.30103)} digits"
    try:
        text = readable(repr(value))
    except Exception:  # an object of the user's that cannot say what it is
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 20]}… ({len(text)} characters)"


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the known word closest to `word`, or nothing."""
    words = list(known)
    close = difflib.get_close_matches(word, words, n=max(len(words), 1), cutoff=0.6)
    swapped = [other for other in close if sorted(other) == sorted(word)]  # letters in another order come first
    return f"; did you mean '{(swapped or close)[0]}'?" if close else ""
