"""One rank of a benchmark over ranks: torchrun starts it, it plays rounds, and rank 0 prints their seconds."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from dataclasses import dataclass

import torch

from headway.bench.loop import Variant, wait_for
from headway.bench.workloads import WORKLOADS
from headway.engine.process_group import joined
from headway.engine.simulation import begin, simulate, spread_over
from headway.engine.states import ClientStates
from headway.runs.execution import chosen_together

WARM_UP = 2


@dataclass(frozen=True)
class RankJob:
    """What every rank does; sent to it as its argument."""

    engine: str
    """An executor's name, or pfl."""
    workload: str
    rounds: int
    device: str
    precision: str

    def written(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def read(cls, text: str) -> RankJob:
        return cls(**json.loads(text))


class Stopwatch:
    """Between two rounds of any engine: counts them, and ends the process after the last."""

    def __init__(self, job: RankJob) -> None:
        self.job, self.times = job, list[float]()
        self.answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what a simulator prints must not be taken for an answer
        self.how = job.engine

    def wait(self) -> None:
        wait_for(torch.device(self.job.device))
        self.times.append(time.perf_counter())
        if len(self.times) > WARM_UP + self.job.rounds:
            seconds = [end - start for start, end in zip(self.times, self.times[1:], strict=False)][WARM_UP:]
            if os.environ.get("RANK", "0") == "0":
                self.answers.write(json.dumps({"seconds": seconds, "how": self.how}) + "\n")
                self.answers.flush()
            raise SystemExit(0)


def _play_headway(job: RankJob, watch: Stopwatch) -> None:
    experiment = WORKLOADS[job.workload].experiment(job.device, job.precision)
    ranks = joined()
    executor, _ = chosen_together(experiment, job.engine, lambda line: None, ranks)
    watch.how = executor.name
    store = ClientStates()
    rounds = simulate(experiment, executor, store, begin(experiment), spread=spread_over(ranks, experiment, store))
    try:
        watch.wait()
        for _ in rounds:
            ranks.tell({})  # a round is over when it is over for all
            watch.wait()
    finally:
        executor.close()


def _play_pfl(job: RankJob, watch: Stopwatch) -> None:
    from headway.bench.peer_pfl import play
    from headway.bench.peers import PeerJob

    play(PeerJob("pfl", job.workload, job.device, Variant(job.precision)), watch)


def main() -> None:
    """A rank's process; the last line on standard error says why it failed."""
    job = RankJob.read(sys.argv[1])
    watch = Stopwatch(job)
    try:
        (_play_pfl if job.engine == "pfl" else _play_headway)(job, watch)
    except Exception as fault:
        lines = str(fault).strip().splitlines() or [""]
        print(f"{type(fault).__name__}: {lines[0]}", file=sys.stderr, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
