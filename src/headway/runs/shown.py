"""The progress of a run that is called from Python: a bar in a terminal, a line in a notebook, nothing in a pipe."""

from __future__ import annotations

import sys
import time
import warnings
from html import escape
from types import ModuleType
from typing import Protocol, cast

from rich.console import Console

from headway.engine.experiment import Experiment
from headway.measure.headline import Headline, headline
from headway.records import RoundRecord, value_of
from headway.runs.progress import Bar
from headway.tasks.metrics import record_of

_PAUSE = 0.2
"""Seconds between two changes of a notebook's line: a browser has other things to do."""


class TerminalProgress:
    """A bar on standard error for each run; messages are warnings, as they are without a bar."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._said: set[str] = set()
        """Lines that were printed, which are not repeated for the next run."""

    def begins(self, experiment: Experiment, done: int, executor: str) -> None:
        self.close()
        self._bar = Bar(Console(file=sys.stderr, highlight=False), quiet=False)
        self._bar.said = self._said
        self._bar.begins(experiment, done, executor)

    def round(self, record: RoundRecord) -> None:
        assert self._bar is not None, "a round ended before its run began"
        self._bar.round(record)

    def tell(self, message: str) -> None:
        warnings.warn(message, stacklevel=2)

    def close(self) -> None:
        """The run has ended, in whatever way: its bar stays as it is."""
        if self._bar is not None:
            self._bar.progress.stop()
            self._bar = None


class _Display(Protocol):
    """What IPython gives for a place in a notebook's output."""

    def update(self, content: object) -> None: ...


class _Line:
    """A run's line of HTML."""

    def __init__(self, text: str, done: int, total: int) -> None:
        self.text, self.done, self.total = text, done, total

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self.done}" max="{self.total}" style="width:180px;vertical-align:middle"></progress>'
        return f"<div>{bar} {escape(self.text)}</div>"

    def __repr__(self) -> str:
        return self.text


class NotebookPlace:
    """A place in a notebook's output, which is not changed more often than helps."""

    def __init__(self, display: ModuleType, content: object) -> None:
        self._place = cast(_Display, display.display(content, display_id=True))
        self._shown = 0.0

    def show(self, content: object, at_once: bool = False) -> None:
        if at_once or time.monotonic() - self._shown >= _PAUSE:
            self._place.update(content)
            self._shown = time.monotonic()


class NotebookProgress:
    """A line for each run in the cell that called it."""

    def __init__(self, display: ModuleType) -> None:
        self.display = display
        """IPython's module for showing things."""
        self._place: _Display | None = None
        self._shown = 0.0
        self._seconds = 0.0
        self._first = 0

    def begins(self, experiment: Experiment, done: int, executor: str) -> None:
        scenario = experiment.scenario
        self._name = f"{experiment.method.name} · seed {scenario.seed} · {executor.partition(' (')[0]}"
        self._headline: Headline = headline(record_of(experiment.task.headline), smoothed=True)
        self._rounds, self._first, self._seconds, self._shown = scenario.rounds, done, 0.0, 0.0
        line = _Line(f"{self._name} · {done}/{self._rounds} rounds", done, self._rounds)
        self._last = line
        self._place = cast(_Display, self.display.display(line, display_id=True))

    def round(self, record: RoundRecord) -> None:
        self._seconds += record["seconds_training"] + record["seconds_evaluation"]
        done, lead = record["round"], self._headline
        left = (self._rounds - done) * self._seconds / max(done - self._first, 1)
        words = [self._name, f"{done}/{self._rounds} rounds"]
        if lead.curve in record:
            level = value_of(record, lead.curve)
            words.append(f"smoothed {lead.name} {level:.1%}" if lead.percent else f"smoothed {lead.name} {level:.4g}")
        if done < self._rounds:
            words.append(f"{left:.0f} s left")
        self._last = _Line(" · ".join(words), done, self._rounds)
        if time.monotonic() - self._shown >= _PAUSE:
            self._show()

    def tell(self, message: str) -> None:
        warnings.warn(message, stacklevel=2)

    def close(self) -> None:
        """The run has ended, in whatever way: its line says where."""
        if self._place is not None:
            self._show()
            self._place = None

    def _show(self) -> None:
        if self._place is not None:
            self._place.update(self._last)
            self._shown = time.monotonic()


def notebook() -> ModuleType | None:
    """IPython's module for showing things, inside a notebook's kernel; None elsewhere."""
    shell = sys.modules.get("IPython")
    if shell is None or type(shell.get_ipython()).__name__ != "ZMQInteractiveShell":
        return None
    import importlib

    return importlib.import_module("IPython.display")


def progress_of_python() -> TerminalProgress | NotebookProgress | None:
    """What shows the progress where no observer is given; None where nobody would see it."""
    display = notebook()
    if display is not None:
        return NotebookProgress(display)
    if sys.stderr is not None and sys.stderr.isatty():
        return TerminalProgress()
    return None
