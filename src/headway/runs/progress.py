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

from headway.measure.headline import SMOOTHED, Headline, headline
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


def label_of(method: str, seed: int, executor: str) -> str:
    """The label of a run's bar."""
    return f"{method if len(method) <= 20 else method[:19] + '…'} · seed {seed} · {executor}"


def speed(seconds: float) -> str:
    """How fast rounds are that take this long."""
    return f"{1 / seconds:.1f}/s" if 0 < seconds < 1 else f"{seconds:.1f} s each"


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
        name = experiment.method.name
        self.headline = headline(record_of(experiment.task.headline), smoothed=True)
        self.wakes()
        self.say_task(experiment.task_in_words)
        self._begin_run(scenario.rounds, done)
        label = label_of(name, scenario.seed, given)
        self.task = self.progress.add_task(label, total=scenario.rounds, completed=done, speed="", score="")
        if how:
            self.say_executor(executor)
        if not self.quiet and not self.console.is_terminal:
            self.print_line(f"{name} · seed {scenario.seed} · {given}: {scenario.rounds} rounds")

    def named(self, lead: Headline, score: str) -> str:
        """A smoothed score with its name, which is short where the terminal is narrow."""
        return f"{'smoothed ' if self.console.width >= 100 else ''}{lead.name} {score}"

    def wakes(self) -> None:
        """The first round is near: bars take the place of the line that says what is waited for."""
        if self.waiting is not None:
            self.waiting.stop()
        self.progress.start()

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
            score = self.headline.short(value_of(record, self.headline.curve))
            self.progress.update(self.task, score=self.named(self.headline, score))
        elif "loss" in record:
            self.progress.update(self.task, score=f"loss {record['loss']:.4g}")
        self.progress.update(self.task, completed=record["round"], speed=speed(seconds))

    def tell(self, message: str) -> None:
        self._once(f"headway: {message}")

    def _once(self, line: str) -> None:
        if line not in self.said:
            self.said.add(line)
            self.print_line(line)

    def say_task(self, task: str) -> None:
        """Once for all runs of a command; where two differ, both are printed."""
        if not self.quiet and task not in self.said:
            self.said.add(task)
            self.print_line(f"task: {task}")

    def say_executor(self, executor: str) -> None:
        """Which executor was chosen, with how, and its name alone."""
        if not self.quiet:
            given = executor.partition(" (")[0]
            self._once(f"executor: {executor}; --executor {given} gives the same numbers elsewhere too")

    def print_line(self, line: str) -> None:
        """One line, however long: a command in it is there to be copied."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)
