"""How long a case may take. Processor time is counted, so that a busy machine makes no finding."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS = 8.0
"""Of the processor; then the case is asked to stop, as by Ctrl-C."""
PATIENCE = 8.0
"""Until a case that was asked to stop must have stopped."""
WAITING = 120.0
"""Of the clock: a case that waits for something uses no processor."""


class TooLong(BaseException):
    """A case that did not stop when it was asked to."""


@contextmanager
def limited() -> Iterator[None]:
    """Ctrl-C after `SECONDS`, and the end of the case after `PATIENCE` more."""
    asked: list[bool] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise TooLong(f"it did not stop {PATIENCE} seconds after Ctrl-C")
        asked.append(True)
        os.kill(os.getpid(), signal.SIGINT)

    def end(number: int, frame: FrameType | None) -> None:
        raise TooLong(f"it waited for {WAITING} seconds")

    before = {signal.SIGPROF: signal.signal(signal.SIGPROF, ask), signal.SIGALRM: signal.signal(signal.SIGALRM, end)}
    signal.setitimer(signal.ITIMER_PROF, SECONDS, PATIENCE)
    signal.setitimer(signal.ITIMER_REAL, WAITING)
    faulthandler.dump_traceback_later(WAITING + 60, exit=True, file=sys.__stderr__ or 2)  # a hang outside of Python
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        for number, handler in before.items():
            signal.signal(number, handler)
