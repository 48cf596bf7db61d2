"""Times the rounds of an engine on one, two and more ranks. Every case is a group of processes that torchrun starts."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import TypedDict

import torch
from rich import box
from rich.table import Table

from headway.bench.measure import Tell
from headway.bench.peers import PEERS
from headway.bench.rank import WARM_UP, RankJob
from headway.bench.result import Measured, Skipped
from headway.bench.workloads import Workload
from headway.engine.pool import cores
from headway.errors import UserError, nearest
from headway.executors import EXECUTORS
from headway.malloc import KEEPING
from headway.runs.environment import commit, environment

LIMIT, CLOSING_SECONDS = 3600.0, 60.0
"""Seconds after which a case is given up, and seconds that torchrun has to end its processes."""


class RanksRow(TypedDict):
    """One engine on a number of ranks."""

    name: str
    ranks: int
    seconds_per_round: float
    """The median."""
    speed_up: float
    """Against the fewest ranks of the same engine."""
    efficiency: float
    """The speed-up by that of the number of ranks."""
    how: str


class RanksResult(Measured):
    """Engines on several numbers of ranks."""

    work: str
    rows: list[RanksRow]
    skipped: list[Skipped]
    timed_rounds: int
    warm_up_rounds: int
    commit: str


def counts(spelled: Sequence[str]) -> list[int]:
    """Numbers of ranks, each once."""
    for one in spelled:
        if not one.isdecimal() or not 0 < int(one) <= 1024:
            raise UserError(f"ranks is '{one}'; give numbers from 1 to 1024 with commas, such as 1,2,4")
    return sorted({int(one) for one in spelled})


def engines_over_ranks(names: Sequence[str] | None) -> list[str]:
    """Engines that run on several ranks: executors and pfl."""
    known = [*EXECUTORS, "pfl"]
    for name in names or ():
        if name not in known:
            raise UserError(
                f"engine '{name}' does not run on ranks{nearest(name, known)} (these do: {', '.join(known)})"
            )
    return list(names or ("auto", "pfl"))


def measure_over_ranks(
    workload: Workload, names: Sequence[str], ranks: Sequence[int], rounds: int, device: str, precision: str, tell: Tell
) -> RanksResult:
    """Time these engines on these numbers of ranks, one case after another."""
    rows: list[RanksRow] = []
    skipped: list[Skipped] = []
    for name in names:
        first: RanksRow | None = None
        for count in ranks:
            tell(f"{workload.name}: {rounds} rounds of {name} on {count} rank{'s' if count > 1 else ''}")
            found = _played(RankJob(name, workload.name, rounds, device, precision), count)
            if isinstance(found, str):
                skipped.append({"name": f"{name} on {count}", "reason": found})
                continue
            seconds, how = found
            speed_up = 1.0 if first is None else first["seconds_per_round"] / seconds
            ideal = count / (count if first is None else first["ranks"])
            row: RanksRow = {
                "name": name,
                "ranks": count,
                "seconds_per_round": seconds,
                "speed_up": speed_up,
                "efficiency": speed_up / ideal,
                "how": how,
            }
            first = first or row
            rows.append(row)
    return {
        "workload": f"{workload.name}-ranks",
        "work": workload.in_words,
        "rows": rows,
        "skipped": skipped,
        "timed_rounds": rounds,
        "warm_up_rounds": WARM_UP,
        "commit": commit(),
        "environment": environment(torch.device(device)),
    }


def _played(job: RankJob, ranks: int) -> tuple[float, str] | str:
    """Median seconds of a round and how it was computed; or why it could not be played."""
    if job.engine in PEERS and (missing := PEERS[job.engine].missing):
        return missing
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command = [*launcher, f"--nproc-per-node={ranks}", "-m", "headway.bench.rank", job.written()]
    kept = {name: str(size) for name, size in KEEPING.items()}
    threads = os.environ.get("OMP_NUM_THREADS", str(max(cores() // ranks, 1)))
    words = {**kept, **os.environ, "OMP_NUM_THREADS": threads, "PFL_PYTORCH_DEVICE": job.device}
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(command, env=words, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return f"it did not end in {LIMIT:g} s"
        finally:
            _end(process)
        errors.seek(0)
        lines = [line.strip() for line in errors.read().splitlines() if "Error:" in line]
    answers = [line for line in output.splitlines() if line.startswith('{"seconds"')]
    if not answers:
        return lines[0][:300] if lines else f"it ended with status {process.returncode}"
    told = json.loads(answers[-1])
    return statistics.median(told["seconds"]), str(told["how"])


def _end(process: subprocess.Popen[str]) -> None:
    """Let the launcher end the ranks that it has started, where they are still there."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def table(result: RanksResult) -> Table:
    """The result for the terminal."""
    caption = [
        f"{result['environment']['hardware']}; median of {result['timed_rounds']} rounds after "
        f"{result['warm_up_rounds']}, no evaluation",
        *(f"{entry['name']}: {entry['reason']}" for entry in result["skipped"]),
    ]
    made = Table(box=box.SIMPLE_HEAD, title=f"{result['workload']}: {result['work']}", caption="\n".join(caption))
    made.add_column("engine", no_wrap=True)
    for heading in ("ranks", "seconds a round", "× fewest", "efficiency"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("how")
    for row in result["rows"]:
        numbers = f"{row['seconds_per_round']:.3g}", f"{row['speed_up']:.2f}", f"{row['efficiency']:.0%}"
        made.add_row(row["name"], str(row["ranks"]), *numbers, row["how"])
    return made
