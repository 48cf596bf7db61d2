"""How `headway resume` goes on with a run, alone or on several ranks, or with a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from headway.cli.ending import resumable, this_rank
from headway.cli.outcome import show_run
from headway.cli.screen import stderr_console
from headway.errors import UserError

if TYPE_CHECKING:
    from headway.runs.lanes.jobs import Jobs
    from headway.runs.result import Result
    from headway.runs.study import Study


def refuse_more_rounds(rounds: int | None, advice: str = "give more rounds in one process, then use ranks") -> None:
    """Ranks and grids go on with runs as they are."""
    if rounds is not None:
        raise UserError(f"rounds is {rounds}, which is for a run or a comparison; {advice}")


def resume_together(
    folder: Path,
    track: Sequence[str],
    accept: bool,
    ranks: int | None,
    rank_timeout: float | None,
    *,
    quiet: bool,
    json: bool,
) -> None:
    """Go on as one rank of several; rank 0 shows how."""
    from headway.runs.progress import Bar
    from headway.runs.resume import resume as resumed

    show = this_rank() == 0
    with Bar(stderr_console(), quiet or not show) as bar, resumable(folder):
        result = resumed(
            folder, observer=bar, track=track, accept_changes=accept, ranks=ranks, rank_timeout=rank_timeout
        )
    if show:
        show_run(result, json)


def resumed_study(
    folder: Path, console: Console, quiet: bool, track: Sequence[str], accept: bool, jobs: Jobs | None
) -> Study:
    from headway.runs.progress import Bar
    from headway.runs.study import load_study, resume_study, unfinished
    from headway.runs.tuned import is_being_tuned
    from headway.tuning.compare import resume_tuning

    if is_being_tuned(folder):
        with Bar(console, quiet) as bar, resumable(folder):
            return resume_tuning(folder, bar, track, accept, jobs)
    left = unfinished(folder)
    with Bar(console, quiet, runs=left) as bar, resumable(folder):
        if left:
            return resume_study(folder, bar, track, accept, jobs)
        study = load_study([folder], observer=bar, verified=True)
        bar.tell(f"{folder} is finished; nothing is left to do")
        return study


def resumed_run(
    folder: Path, console: Console, quiet: bool, track: Sequence[str], accept: bool, rounds: int | None
) -> Result:
    from headway.runs.folder import finished
    from headway.runs.load import recorded
    from headway.runs.progress import Bar
    from headway.runs.resume import resume as resumed

    with Bar(console, quiet) as bar, resumable(folder):
        if not (folder / "scenario.toml").is_file() or not finished(folder) or rounds is not None:
            return resumed(folder, rounds=rounds, observer=bar, track=track, accept_changes=accept)
        result = recorded(folder, bar, verified=True)
        how = "" if result.stopped is None else f": it was stopped after round {len(result.records)}, {result.stopped}"
        bar.tell(f"{folder} is finished{how}; nothing is left to do")
        return result
