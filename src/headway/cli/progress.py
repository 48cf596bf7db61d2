"""A progress bar: rounds, rate, time left, current accuracy or loss."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from headway.engine.world import World


class Bar:
    """Watches runs on the terminal. Quiet shows no bar, but still tells what must be said."""

    def __init__(self, console: Console, quiet: bool) -> None:
        self.console = console
        self.said: set[str] = set()
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("rounds  {task.fields[speed]}  {task.fields[score]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self.quiet = quiet
        self.task: Any = None

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def begins(self, world: World, done: int, executor: str) -> None:
        scenario = world.scenario
        name = world.method.name
        short = name if len(name) <= 24 else name[:23] + "…"
        label = f"{short} · seed {scenario.seed} · {executor}"
        self.task = self.progress.add_task(label, total=scenario.rounds, completed=done, speed="", score="")
        if not self.quiet and not self.console.is_terminal:
            self.console.print(f"{label}: {scenario.rounds} rounds", highlight=False)

    def round(self, record: dict[str, Any]) -> None:
        seconds = record["seconds_training"] + record["seconds_evaluation"]
        changes: dict[str, Any] = {"speed": f"{1 / seconds:.1f}/s" if seconds < 1 else f"{seconds:.1f} s each"}
        if "accuracy_smoothed" in record:
            changes["score"] = f"accuracy {record['accuracy_smoothed']:.1%}"
        elif "loss" in record:
            changes["score"] = f"loss {record['loss']:.4g}"
        self.progress.update(self.task, completed=record["round"], **changes)

    def tell(self, message: str) -> None:
        if message not in self.said:
            self.said.add(message)
            self.console.print(f"headway: {message}", markup=False, highlight=False)
