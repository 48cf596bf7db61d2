"""Whether a run came to the end of its rounds, and if not, how it ended."""

from __future__ import annotations

from headway.runs.folder import failure, finished
from headway.runs.result import Result


def stopped_early(result: Result) -> str:
    """The round in which a callback stopped a run, and why; '' for one that no callback stopped."""
    done = len(result.records)
    return (
        "" if result.stopped is None else f"seed {result.scenario.seed}, stopped after round {done}: {result.stopped}"
    )


def ended_early(result: Result) -> str:
    """How a run ended early; '' for one that came to its end, also where only its summary is lost."""
    folder, done, rounds = result.folder, len(result.records), result.scenario.rounds
    if folder is None or finished(folder):
        return ""
    if failure(folder):
        return f"failed at round {done + 1}"
    return "" if done >= rounds or result.stopped is not None else f"{done} of {rounds} rounds"
