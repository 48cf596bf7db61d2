"""What a user waits for before the first round: with an empty cache, and again with what the first run left there.

Every start is a fresh process. Imports are timed apart; then comes the call, in parts, until the first round is over.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import TypedDict, cast

import torch
from rich import box
from rich.table import Table
from rich.text import Text

from headway.bench.first_round import EMBEDDED, StartJob
from headway.bench.measure import Tell
from headway.bench.result import Measured, Skipped
from headway.bench.workloads import WORKLOADS
from headway.errors import MachineError, UserError, nearest
from headway.executors import EXECUTORS
from headway.runs.environment import commit, environment
from headway.waiting import PARTS

LIMIT = 3600.0
"""Seconds after which a start is given up."""
REST = "rest"
_COMPILERS = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""With these a user names another folder for compiled programs, in which a first run would find those of before."""
_PROGRAM = """\
import sys, time
begin = time.perf_counter()
import torch
between = time.perf_counter()
import headway
headway.simulate
end = time.perf_counter()
from headway.bench.first_round import main
main(sys.argv[1], between - begin, end - between)
"""


class Start(TypedDict):
    """One start, in seconds."""

    cache: str
    """`cold` or `warm`."""
    imports: dict[str, float]
    seconds: float
    """From the call to the end of the first round."""
    parts: dict[str, float]
    executor: str
    """With how it was chosen."""


class StartRow(TypedDict):
    """A workload with an executor."""

    workload: str
    asked: str
    starts: list[Start]


class StartResult(Measured):
    """All that was started."""

    rows: list[StartRow]
    skipped: list[Skipped]
    rounds: int
    commit: str


def checked(names: Sequence[str], known: Sequence[str], kind: str) -> list[str]:
    """The names that are asked for, each once."""
    for name in names:
        if name not in known:
            raise UserError(f"there is no {kind} '{name}'{nearest(name, known)} (known: {', '.join(known)})")
    return list(dict.fromkeys(names))


def measure_starts(
    workloads: Sequence[str],
    executors: Sequence[str],
    *,
    rounds: int,
    times: int,
    device: torch.device,
    precision: str,
    tell: Tell,
) -> StartResult:
    """Start every workload with every executor, `times` times with an empty cache and then again with that one."""
    rows: list[StartRow] = []
    skipped: list[Skipped] = []
    wanted = checked(workloads, (EMBEDDED, *WORKLOADS), "workload")
    for workload, executor in product(wanted, checked(executors, EXECUTORS, "executor")):
        job, starts = StartJob(workload, executor, rounds, str(device), precision), list[Start]()
        for _ in range(times):
            with tempfile.TemporaryDirectory() as cache:
                for state in ("cold", "warm"):
                    tell(f"{workload}: a {state} start with {executor}")
                    found = _started(job, cache)
                    if isinstance(found, str):
                        break
                    starts.append({**found, "cache": state})
            if isinstance(found, str):
                skipped.append({"name": f"{workload} with {executor}", "reason": found})
                break
        else:
            rows.append({"workload": workload, "asked": executor, "starts": starts})
    return {
        "workload": "start-" + "-".join(wanted),
        "rows": rows,
        "skipped": skipped,
        "rounds": rounds,
        "commit": commit(),
        "environment": environment(device),
    }


def _started(job: StartJob, cache: str) -> Start | str:
    """A start in a process that keeps its caches in a folder; or why it cannot be."""
    kept = {name: value for name, value in os.environ.items() if name not in _COMPILERS}
    process = [sys.executable, "-c", _PROGRAM, job.written()]
    try:
        done = subprocess.run(
            process,
            env={**kept, "HEADWAY_CACHE": cache},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MachineError(
            f"{job.workload} with {job.executor}: its first round took more than {LIMIT:.0f} s"
        ) from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
        raise MachineError(f"{job.workload} with {job.executor} did not start: {last}")
    found = json.loads(done.stdout.splitlines()[-1])
    return str(found["refused"]) if "refused" in found else cast(Start, found)


def table(result: StartResult) -> Table:
    """A row for each cold and each warm start, the medians where there were several."""
    times = max((len(row["starts"]) // 2 for row in result["rows"]), default=1)
    caption = [
        f"{result['environment']['hardware']}; {'seconds' if times == 1 else f'medians of {times}, in seconds'}; every "
        f"start is a fresh process; cold: with an empty cache; runs of {result['rounds']} rounds",
        *(f"{entry['name']}: {entry['reason']}" for entry in result["skipped"]),
    ]
    title = "what is waited for before the first round is over"
    made = Table(box=box.SIMPLE_HEAD, title=title, caption=Text("\n".join(caption)), caption_justify="left")
    for heading in ("workload", "cache"):
        made.add_column(heading, no_wrap=True)
    for heading in ("import torch", "import headway", "from the call", *PARTS, REST):
        made.add_column(heading, justify="right")
    made.add_column("executor")
    for row in result["rows"]:
        for state in ("cold", "warm"):
            made.add_row(row["workload"], state, *_cells([one for one in row["starts"] if one["cache"] == state]))
    return made


def _cells(starts: list[Start]) -> Iterator[str]:
    """The medians of some starts, in the order of the table's columns, and their executors."""
    imports = [_median(one["imports"].get(name, 0.0) for one in starts) for name in ("torch", "headway")]
    parts = [_median(one["parts"].get(name, 0.0) for one in starts) for name in (*PARTS, REST)]
    for value in (*imports, _median(one["seconds"] for one in starts), *parts):
        yield f"{value:.2f}"
    yield ", ".join(dict.fromkeys(one["executor"] for one in starts))


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)
