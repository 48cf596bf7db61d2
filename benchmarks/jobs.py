"""Total rounds a second of one, two and more jobs on one device: what `--jobs` of compare, sweep and reproduce gains.

python benchmarks/jobs.py [--workloads mlp,cnn] [--jobs 1,2,4] [--device cuda] [--precision bf16] [--executor NAME]
    [--seconds 20] [--repeats 3] [--json] [--out benchmarks/results]

Every job is a process that plays the rounds of a workload, as a worker of `--jobs` does: with one thread, with its
share of the cores, and with the executor that is chosen once for all. The processes of all cases live at the same time,
and the cases take turns, so that what slows the machine down for a while slows all of them. In a turn all jobs of a
case play for the same seconds; its figure is the sum over jobs of rounds by seconds. Nobody evaluates.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from headway.bench.loop import wait_for
from headway.bench.measure import WARM_UP, HeadwayEngine
from headway.bench.table import write_result
from headway.bench.workloads import Workload, workloads
from headway.engine.building import device_of
from headway.engine.pool import CORES, cores
from headway.errors import UserError
from headway.malloc import keep_freed_memory
from headway.runs.environment import commit, environment
from headway.runs.lanes.made import with_cores


@dataclass(frozen=True)
class Part:
    """What one process plays."""

    workload: str
    device: str
    precision: str
    executor: str


class Row(TypedDict):
    """A workload with a number of jobs."""

    jobs: int
    rounds_a_second: float
    """Of all jobs together: the median over turns."""
    turns: list[float]
    against_one: float
    """By that of the fewest jobs, the median over turns of the ratio within a turn."""
    executor: str


class Process:
    """A process of a job: it says its executor when it is warm, and then plays for as long as it is told."""

    def __init__(self, part: Part, share: int) -> None:
        words = [sys.executable, str(Path(__file__).resolve()), "--part", json.dumps(asdict(part))]
        known = {**os.environ, CORES: str(share), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(words, env=known, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self) -> dict[str, float | str]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a process ended with status {self.process.wait()}; what it said stands above")
        found: dict[str, float | str] = json.loads(line)
        return found

    def play(self, seconds: float) -> None:
        assert self.process.stdin is not None
        print(json.dumps(seconds), file=self.process.stdin, flush=True)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *fault: object) -> None:
        self.process.kill()
        self.process.wait()


def child(part: Part) -> None:
    """The life of such a process."""
    keep_freed_memory()
    torch.set_num_threads(1)
    (workload,) = workloads([part.workload])
    experiment = workload.experiment(part.device, part.precision)
    engine = HeadwayEngine(experiment, part.executor)
    for _ in range(WARM_UP):
        engine.play()
    wait_for(experiment.device)
    print(json.dumps({"executor": engine.executor.name}), flush=True)
    for line in sys.stdin:
        seconds, rounds, start = float(json.loads(line)), 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            engine.play()
            rounds += 1
        wait_for(experiment.device)
        print(json.dumps({"rate": rounds / (time.perf_counter() - start)}), flush=True)
    engine.close()


@contextmanager
def started(part: Part, share: int, count: int) -> Iterator[tuple[list[Process], str]]:
    """Processes that are warm, and their executor."""
    with ExitStack() as stack:
        every = [stack.enter_context(Process(part, share)) for _ in range(count)]
        names = {str(one.answer()["executor"]) for one in every}
        if len(names) > 1:
            raise SystemExit(
                f"the jobs have different executors ({', '.join(sorted(names))}); name one with --executor"
            )
        yield every, names.pop()


def chosen(part: Part) -> str:
    """The executor that `--jobs` has for this work: the fastest on one core."""
    if part.executor != "auto":
        return part.executor
    with started(part, 1, 1) as (_, name):
        return name


def measured(workload: Workload, jobs: Sequence[int], given: argparse.Namespace) -> list[Row]:
    """All cases of a workload, in turns."""
    part = Part(workload.name, given.device, given.precision, given.executor)
    name, on_cpu = chosen(part), device_of(given.device).type == "cpu"
    turns: dict[int, list[float]] = {count: [] for count in jobs}
    with ExitStack() as stack:
        every: dict[int, list[Process]] = {}
        used: dict[int, str] = {}
        for count in jobs:
            share = max(cores() // count, 1)
            own = with_cores(name, share) if on_cpu and given.executor == "auto" else name
            case = Part(workload.name, given.device, given.precision, own)
            every[count], used[count] = stack.enter_context(started(case, share, count))
        for turn in range(given.repeats):
            for count in jobs if turn % 2 == 0 else jobs[::-1]:
                for one in every[count]:
                    one.play(given.seconds)
                turns[count].append(sum(float(one.answer()["rate"]) for one in every[count]))
    first = turns[jobs[0]]
    return [
        {
            "jobs": count,
            "rounds_a_second": statistics.median(found),
            "turns": found,
            "against_one": statistics.median(one / other for one, other in zip(found, first, strict=True)),
            "executor": used[count],
        }
        for count, found in turns.items()
    ]


def table(workload: Workload, rows: Sequence[Row], given: argparse.Namespace) -> Table:
    made = Table(
        box=box.SIMPLE_HEAD,
        title=f"{workload.name}: {workload.in_words}",
        caption=f"median of {given.repeats} turns of {given.seconds:g} s; no evaluation",
    )
    for heading in ("jobs", "rounds a second, all jobs", "× fewest", "executor"):
        made.add_column(heading, justify="left" if heading == "executor" else "right", no_wrap=True)
    for row in rows:
        made.add_row(str(row["jobs"]), f"{row['rounds_a_second']:.4g}", f"{row['against_one']:.2f}", row["executor"])
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default="mlp,lenet,cnn,resnet18-b50")
    parser.add_argument("--jobs", default="1,2,4")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--executor", default="auto")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part is not None:
        child(Part(**json.loads(given.part)))
        return
    jobs = sorted({int(count) for count in given.jobs.split(",")})
    if jobs[0] < 1 or given.seconds <= 0 or given.repeats < 1:
        parser.error("jobs, seconds and repeats must be above 0")
    for workload in workloads(given.workloads.split(",")):
        rows = measured(workload, jobs, given)
        result = {
            "workload": f"{workload.name}-jobs",
            "work": workload.in_words,
            "rows": rows,
            "seconds_a_turn": given.seconds,
            "warm_up_rounds": WARM_UP,
            "precision": given.precision,
            "commit": commit(),
            "environment": environment(device_of(given.device)),
        }
        print(json.dumps(result, indent=2)) if given.json else Console().print(table(workload, rows, given))
        if given.out is not None:
            write_result(result, given.out)


if __name__ == "__main__":
    try:
        main()
    except UserError as mistake:
        raise SystemExit(f"jobs.py: {mistake}") from None
