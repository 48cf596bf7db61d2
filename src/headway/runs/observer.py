"""Who watches a run: a progress bar, a notebook, nobody."""

from __future__ import annotations

import contextlib
import inspect
import sys
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import Protocol

from headway.engine.experiment import Experiment
from headway.errors import UserError, shown
from headway.records import RoundRecord
from headway.runs.shown import NotebookProgress, TerminalProgress, progress_of_python


class Observer(Protocol):
    """What is called while a run goes on."""

    def begins(self, experiment: Experiment, done: int, executor: str) -> None:
        """A run begins, or goes on after `done` rounds; `executor` may say how it was chosen."""

    def round(self, record: RoundRecord) -> None:
        """A round has ended; with a checkpoint in every round, it is saved."""

    def tell(self, message: str) -> None:
        """A message for the user, on one line."""


class Unwatched:
    """Reports where no observer is given: prints the task on standard error once, and makes messages warnings."""

    @cached_property
    def said(self) -> set[str]:
        """The tasks that were printed."""
        return set()

    def begins(self, experiment: Experiment, done: int, executor: str) -> None:
        if experiment.task_in_words not in self.said and sys.stderr is not None:
            self.said.add(experiment.task_in_words)
            with contextlib.suppress(OSError, ValueError):  # standard error may be closed or full: the run goes on
                print(f"headway: task: {experiment.task_in_words}", file=sys.stderr)

    def round(self, record: RoundRecord) -> None:
        pass

    def tell(self, message: str) -> None:
        warnings.warn(message, stacklevel=2)


class Silent:
    """For ranks whose run is watched by the first one."""

    def begins(self, experiment: Experiment, done: int, executor: str) -> None:
        pass

    def round(self, record: RoundRecord) -> None:
        pass

    def tell(self, message: str) -> None:
        pass


_HOOKS = {"begins": 3, "round": 1, "tell": 1}
"""The methods of an observer, and with how many arguments each is called."""


@contextlib.contextmanager
def closing(observer: Observer) -> Iterator[None]:
    """A run, after which the bar that `as_observer` made is closed."""
    try:
        yield
    finally:
        if isinstance(observer, TerminalProgress | NotebookProgress):
            observer.close()


def as_observer(given: Observer | None) -> Observer:
    """A user's observer, checked; where none is given a bar in a terminal or a notebook, else `Unwatched`."""
    if given is None:
        return progress_of_python() or Unwatched()
    if not all(can_be_called(getattr(given, name, None), count) for name, count in _HOOKS.items()):
        raise UserError(
            f"observer is {shown(given)}; it must have the methods begins(experiment, done, executor), round(record) "
            "and tell(message)"
        )
    return given


def can_be_called(hook: object, arguments: int) -> bool:
    """Whether a method takes this many arguments; one that is not written in Python does not say."""
    if not callable(hook):
        return False
    try:
        inspect.signature(hook).bind(*[None] * arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
