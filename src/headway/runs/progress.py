"""A progress bar: rounds, rate, time left, the headline metric; of several runs, how far they are together."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.table import Column
from rich.text import Text

from headway.measure.headline import SMOOTHED, headline
from headway.records import RoundRecord, value_of
from headway.tasks.metrics import record_of

if TYPE_CHECKING:
    from headway.engine.experiment import Experiment


class _Label(ProgressColumn):
    """The one column that gives way where the terminal is narrow; the method's name, which comes first, stays."""

    def __init__(self) -> None:
        super().__init__(Column(min_width=_NAME))

    def render(self, task: Task) -> Text:
        return Text(task.description, no_wrap=True, overflow="ellipsis")


class _Left(ProgressColumn):
    """An estimate of the time left: a run's own, and that of all runs."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        left = task.fields["left"]() if "left" in task.fields else task.time_remaining
        if task.finished or left is None:
            return Text("" if task.finished else "-:--", style="progress.remaining")
        minutes, seconds = divmod(int(left), 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        return Text(clock, style="progress.remaining")


_NAME = 12
"""How much room the label has at least."""


def _columns(width: int) -> list[ProgressColumn]:
    """Label, bar and numbers; a narrow terminal has a short bar or none, and a very narrow one no speed."""
    bars = [BarColumn(bar_width=28 if width >= 110 else 10, table_column=Column(no_wrap=True))] if width >= 80 else []
    return [
        _Label(),
        *bars,
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("rounds  {task.fields[speed]}  {task.fields[score]}" if width >= 60 else "{task.fields[score]}"),
        _Left(Column(no_wrap=True)),
    ]


class Bar:
    """Watches runs on the terminal. Quiet shows no bar, but still tells what must be said.

    `choosing`: an executor is chosen before the first round, which takes a while. `runs`: how many will be trained; of
    several, a first line says how far they are together, and about how long the rest will take.
    """

    def __init__(self, console: Console, quiet: bool, choosing: bool = False, runs: int = 1) -> None:
        self.console = console
        self.said: set[str] = set()
        shown = console.is_terminal and not quiet
        self.progress = Progress(*_columns(console.width), console=console, disable=not shown)
        self.waiting = console.status("choosing an executor") if choosing and shown else None
        self.quiet = quiet
        self.task: TaskID | None = None
        self.headline = SMOOTHED
        self.runs = runs
        self.begun = 0
        self.all: TaskID | None = None
        self.trained, self.seconds = 0, 0.0
        """Rounds that were trained while this bar watched, and the time they took."""

    def __enter__(self) -> Bar:
        if self.waiting is not None:
            self.waiting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.waiting is not None:
            self.waiting.stop()
        self.progress.stop()

    def begins(self, experiment: Experiment, done: int, executor: str) -> None:
        scenario = experiment.scenario
        given, _, how = executor.partition(" (")
        name, where = experiment.method.name, f"seed {scenario.seed} · {given}"
        self.headline = headline(record_of(experiment.task.headline), smoothed=True)
        short = name if len(name) <= 20 else name[:19] + "…"
        if self.waiting is not None:
            self.waiting.stop()
        self.progress.start()
        self._say_task(experiment.task_in_words)
        self._begin_run(scenario.rounds, done)
        self.task = self.progress.add_task(
            f"{short} · {where}", total=scenario.rounds, completed=done, speed="", score=""
        )
        if how and not self.quiet:
            self._once(f"executor: {executor}; --executor {given} gives the same numbers elsewhere too")
        if not self.quiet and not self.console.is_terminal:
            self._print(f"{name} · {where}: {scenario.rounds} rounds")

    def _begin_run(self, rounds: int, done: int) -> None:
        """Show how far all runs are together. One that ended early counts as whole."""
        if self.runs < 2:
            return
        if self.all is None:
            self.all = self.progress.add_task("", total=self.runs * rounds, speed="", score="", left=self._left)
        self.begun += 1
        words = f"run {self.begun} of {self.runs}"
        self.progress.update(self.all, completed=(self.begun - 1) * rounds + done, description=words)

    def _left(self) -> float | None:
        """Seconds for the rounds of all runs that are left, if they take as long as those that were trained."""
        if self.all is None or not self.trained:
            return None
        task = next(one for one in self.progress.tasks if one.id == self.all)
        return (task.remaining or 0) * self.seconds / self.trained

    def round(self, record: RoundRecord) -> None:
        seconds = record["seconds_training"] + record["seconds_evaluation"]
        self.trained, self.seconds = self.trained + 1, self.seconds + seconds
        assert self.task is not None, "a round ended before its run began"
        if self.all is not None:
            self.progress.advance(self.all)
        if self.headline.curve in record:
            level = value_of(record, self.headline.curve)
            score = f"{level:.1%}" if self.headline.percent else f"{level:.4g}"
            self.progress.update(self.task, score=f"{self.headline.name} {score}")
        elif "loss" in record:
            self.progress.update(self.task, score=f"loss {record['loss']:.4g}")
        speed = f"{1 / seconds:.1f}/s" if seconds < 1 else f"{seconds:.1f} s each"
        self.progress.update(self.task, completed=record["round"], speed=speed)

    def tell(self, message: str) -> None:
        self._once(f"headway: {message}")

    def _once(self, line: str) -> None:
        if line not in self.said:
            self.said.add(line)
            self._print(line)

    def _say_task(self, task: str) -> None:
        """Once for all runs of a command; where two differ, both are printed."""
        if not self.quiet and task not in self.said:
            self.said.add(task)
            self._print(f"task: {task}")

    def _print(self, line: str) -> None:
        """One line, however long: a command in it is there to be copied."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)
