"""What can go wrong by the user's hand, and what can go wrong inside a client."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in what Headway was asked to do. The message is one line that says what is allowed."""


class ClientError(RuntimeError):
    """A failure inside one client's work, with the place where it happened."""

    @classmethod
    def at(cls, cause: str, *, round: int, clients: Iterable[int], step: int | None = None) -> ClientError:
        names = ", ".join(str(client) for client in clients)
        where = f"round {round}, client {names}" + ("" if step is None else f", step {step}")
        return cls(f"{where}: {cause}")


class RunsFailed(RuntimeError):
    """Some of several runs failed, not all by the user's hand; the others are done."""


class Diverged(UserError):
    """A loss or an update that is not a finite number."""


class ServerDiverged(Diverged):
    """The server's own step, or what its new model answers, is not finite; nothing is saved.

    By then a slot may have changed what it owns, and clients what they keep.
    """


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the known word closest to `word`, or nothing."""
    words = list(known)
    close = difflib.get_close_matches(word, words, n=max(len(words), 1), cutoff=0.6)
    swapped = [other for other in close if sorted(other) == sorted(word)]  # letters in another order come first
    return f"; did you mean '{(swapped or close)[0]}'?" if close else ""
