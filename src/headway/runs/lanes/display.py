"""What is shown of several runs at the same time: how far each is, how far all are, and about how long it will take."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from types import ModuleType
from typing import Protocol

from rich.console import Console
from rich.progress import TaskID

from headway.errors import UserError, shown
from headway.measure.headline import Headline, headline
from headway.runs.lanes.messages import Answer, RunFacts
from headway.runs.observer import Observer, Unwatched
from headway.runs.progress import Bar, label_of, speed
from headway.runs.shown import NotebookPlace, NotebookProgress, TerminalProgress


class Display(Protocol):
    """Watches runs in lanes."""

    def begins(self, lane: int, facts: RunFacts, done: int, executor: str) -> None:
        """A run begins in a lane, or goes on after `done` rounds."""

    def round(self, lane: int, answer: Answer) -> None:
        """A round of it has ended."""

    def ends(self, lane: int, rounds: int, waits: bool = False) -> None:
        """The lane is free: its run of so many rounds has ended, or waits again."""

    def chosen(self, label: str) -> None:
        """An executor was chosen for the runs to come; `label` says how."""

    def tell(self, message: str) -> None:
        """A message for the user, on one line."""

    def close(self) -> None:
        """No more runs come."""


@dataclass
class Course:
    """How far several runs are together."""

    runs: int
    waiting: int
    """Rounds of the runs that wait."""
    clock: Callable[[], float] = time.monotonic
    ended: int = 0
    """Runs."""
    trained: int = 0
    """Rounds that were trained since `begun`."""
    begun: float | None = None
    _left: dict[int, int] = field(default_factory=dict)
    """Rounds that are left of the run in each lane."""

    def __post_init__(self) -> None:
        self.total = self.waiting

    def begins(self, lane: int, rounds: int, done: int) -> None:
        self.begun = self.clock() if self.begun is None else self.begun
        self.waiting -= rounds
        self._left[lane] = rounds - done

    def round(self, lane: int) -> None:
        self.trained += 1
        self._left[lane] -= 1

    def ends(self, lane: int, rounds: int, waits: bool) -> None:
        """A run that ended early counts as whole; one that lost its worker, or was stopped, waits again."""
        begun = self._left.pop(lane, None) is not None
        self.waiting += rounds * (begun and waits) - rounds * (not begun and not waits)
        self.ended += not waits

    @property
    def done(self) -> int:
        """Rounds that nobody has to train any more."""
        return self.total - self.waiting - sum(self._left.values())

    @property
    def left(self) -> float | None:
        """Seconds for the rounds that are left, if all go on as fast together as they did."""
        if self.begun is None or not self.trained:
            return None
        return (self.total - self.done) * (self.clock() - self.begun) / self.trained

    @property
    def words(self) -> str:
        return f"{self.ended} of {self.runs} runs done"


def display_of(observer: Observer, course: Course) -> Display:
    """The display of several runs for the observer of one; a user's own observer, which knows experiments, is refused.

    An experiment is in the process of its run.
    """
    if isinstance(observer, Bar):
        return BarOfLanes(observer, course, observer.tell)
    if isinstance(observer, TerminalProgress):
        bar = Bar(Console(file=sys.stderr, highlight=False), quiet=False)
        return BarOfLanes(bar, course, observer.tell, closes=True)
    if isinstance(observer, NotebookProgress):
        return LineOfLanes(observer.display, course)
    if isinstance(observer, Unwatched):
        return PlainLines(observer)
    raise UserError(
        f"observer is {shown(observer)} and jobs is given; runs of several processes cannot be watched by an observer "
        "of your own: leave one of both out"
    )


class BarOfLanes:
    """A line for all runs, and a bar for each lane that has one."""

    def __init__(self, bar: Bar, course: Course, tell: Callable[[str], None], closes: bool = False) -> None:
        self._bar, self._course, self._closes = bar, course, closes
        self._tell = tell
        self._all: TaskID | None = None
        self._tasks: dict[int, TaskID] = {}
        self._headlines: dict[int, Headline] = {}

    def begins(self, lane: int, facts: RunFacts, done: int, executor: str) -> None:
        bar, rounds = self._bar, facts["rounds"]
        bar.wakes()
        bar.say_task(facts["task"])
        label = label_of(facts["method"], facts["seed"], executor)
        if self._all is None:
            total, left = self._course.total, lambda: self._course.left
            self._all = bar.progress.add_task("", total=total, speed="", score="", left=left)
        self._headlines[lane] = headline(facts["metric"], smoothed=True)
        self._tasks[lane] = bar.progress.add_task(label, total=rounds, completed=done, speed="", score="")
        self._course.begins(lane, rounds, done)
        self._show_all()
        if not bar.quiet and not bar.console.is_terminal:
            bar.print_line(f"{facts['method']} · seed {facts['seed']} · {executor}: {rounds} rounds")

    def round(self, lane: int, answer: Answer) -> None:
        bar, lead = self._bar, self._headlines[lane]
        score = f"loss {answer['loss']:.4g}" if answer["loss"] is not None else ""
        if answer["score"] is not None:
            score = bar.named(lead, lead.short(answer["score"]))
        bar.progress.update(self._tasks[lane], completed=answer["round"], speed=speed(answer["seconds"]))
        if score:
            bar.progress.update(self._tasks[lane], score=score)
        self._course.round(lane)
        self._show_all()

    def ends(self, lane: int, rounds: int, waits: bool = False) -> None:
        if lane in self._tasks:
            self._bar.progress.remove_task(self._tasks.pop(lane))
        self._course.ends(lane, rounds, waits)
        self._show_all()

    def _show_all(self) -> None:
        if self._all is not None:
            self._bar.progress.update(self._all, completed=self._course.done, description=self._course.words)

    def chosen(self, label: str) -> None:
        self._bar.say_executor(label)

    def tell(self, message: str) -> None:
        self._tell(message)

    def close(self) -> None:
        if self._closes:
            self._bar.progress.stop()


class LineOfLanes:
    """One line for all runs in the cell of a notebook that called them."""

    def __init__(self, display: ModuleType, course: Course) -> None:
        self._course = course
        self._place = NotebookPlace(display, self)

    def begins(self, lane: int, facts: RunFacts, done: int, executor: str) -> None:
        self._course.begins(lane, facts["rounds"], done)
        self._place.show(self)

    def round(self, lane: int, answer: Answer) -> None:
        self._course.round(lane)
        self._place.show(self)

    def ends(self, lane: int, rounds: int, waits: bool = False) -> None:
        self._course.ends(lane, rounds, waits)
        self._place.show(self)

    def chosen(self, label: str) -> None:
        """Each run's folder says it."""

    def tell(self, message: str) -> None:
        warnings.warn(message, stacklevel=2)

    def close(self) -> None:
        self._place.show(self, at_once=True)

    def __repr__(self) -> str:
        left = self._course.left
        rounds = f"{self._course.done}/{self._course.total} rounds"
        return " · ".join([self._course.words, rounds, *([] if not left else [f"{left:.0f} s left"])])

    def _repr_html_(self) -> str:
        done, total = self._course.done, self._course.total
        bar = f'<progress value="{done}" max="{total}" style="width:180px;vertical-align:middle"></progress>'
        return f"<div>{bar} {escape(repr(self))}</div>"


class PlainLines:
    """Where nobody watches: the task on standard error once, and messages as warnings."""

    def __init__(self, observer: Unwatched) -> None:
        self._observer = observer

    def begins(self, lane: int, facts: RunFacts, done: int, executor: str) -> None:
        if facts["task"] not in self._observer.said and sys.stderr is not None:
            self._observer.said.add(facts["task"])
            with contextlib.suppress(OSError, ValueError):  # standard error may be closed or full
                print(f"headway: task: {facts['task']}", file=sys.stderr)

    def round(self, lane: int, answer: Answer) -> None:
        pass

    def ends(self, lane: int, rounds: int, waits: bool = False) -> None:
        pass

    def chosen(self, label: str) -> None:
        pass

    def tell(self, message: str) -> None:
        self._observer.tell(message)

    def close(self) -> None:
        pass
