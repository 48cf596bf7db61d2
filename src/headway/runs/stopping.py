"""Ctrl-C and other signals: the round in hand ends before the run does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from headway.engine.pool import STOPPING
from headway.errors import Interrupted


@dataclass
class StopRequest:
    """Whether a signal asked the run to stop, and which one."""

    signal: int | None = None


@contextmanager
def heed_signals(tell: Callable[[str], None]) -> Iterator[StopRequest]:
    """Inside, the first Ctrl-C, SIGTERM or SIGHUP is written into the request; a second one raises `Interrupted`.

    A signal that the process ignores, as under `nohup` SIGHUP, stays ignored. Other threads than the main one cannot
    handle signals: there nothing changes.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if request.signal is not None:
            raise Interrupted(number)
        request.signal = number
        tell("stopping after this round (once more to stop at once)")

    heeded = [number for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
