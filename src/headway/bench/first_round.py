"""One start of a run, in a process that `bench.start` has just made: plays the first round, and prints its seconds."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass

from headway.bench.workloads import WORKLOADS
from headway.engine.building import build
from headway.engine.executor import CannotExecute
from headway.engine.experiment import Experiment
from headway.errors import UserError
from headway.malloc import keep_freed_memory
from headway.methods.spelling import method
from headway.records import RoundRecord
from headway.runs.callbacks.hooks import hooked
from headway.runs.callbacks.run import Run
from headway.runs.driver import drive
from headway.runs.job import Job
from headway.runs.start import simulate
from headway.scenario import Scenario
from headway.waiting import Clock, measured, part

EMBEDDED = "fashion"
"""The work of `hw.simulate("fedavg")`, on the data that are inside the package; all others are workloads."""


@dataclass(frozen=True)
class StartJob:
    """What is started; sent to the process as its argument."""

    workload: str
    executor: str
    rounds: int
    """That the run is to have: `auto` compiles where it is long. It is stopped after the first."""
    device: str
    precision: str

    def written(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def read(cls, text: str) -> StartJob:
        return cls(**json.loads(text))


class _Watch:
    """The run's observer: what comes between the executor's choice and the end of the first round is that round."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.began, self.ended = clock, time.perf_counter(), 0.0
        self.executor, self.told = "", list[str]()
        self.parts: dict[str, float] = {}

    def begins(self, experiment: Experiment, done: int, executor: str) -> None:
        self.executor = executor
        self.clock.enter("first round")

    def round(self, record: RoundRecord) -> None:
        self.clock.leave()
        self.ended, self.parts = time.perf_counter(), {**self.clock.seconds}

    def tell(self, message: str) -> None:
        self.told.append(message)


def _only_once(run: Run) -> None:
    run.stop("only the first round is timed")


def _play(job: StartJob, watch: _Watch) -> None:
    """What `hw.simulate` and the command do, up to the end of the first round."""
    if job.workload == EMBEDDED:
        settings = Scenario(rounds=job.rounds, executor=job.executor, device=job.device, precision=job.precision)
        simulate("fedavg", settings, observer=watch, callbacks=_only_once)
        return
    work = WORKLOADS[job.workload]
    scenario = work.scenario(job.device, job.precision).changed(rounds=job.rounds, executor=job.executor, eval_every=1)
    with part("data"):
        federation = work.federation()
    with part("model"):
        module = work.module()
    experiment = build(scenario, method("fedavg"), model=module, federation=federation)
    drive(Job(experiment, None, watch, hooked(_only_once)))


def main(text: str, torch_seconds: float, headway_seconds: float) -> None:
    """Play a start, and print what it took as JSON, or why it cannot be played; imports were timed by the caller."""
    job = StartJob.read(text)
    keep_freed_memory()
    try:
        with measured() as clock:
            watch = _Watch(clock)
            _play(job, watch)
    except (UserError, CannotExecute) as reason:
        print(json.dumps({"refused": str(reason)}))
        return
    executor = watch.executor.partition(" (")[0]
    if job.executor != "auto" and not executor.startswith(job.executor):
        print(json.dumps({"refused": "; ".join(watch.told)}))
        return
    total = watch.ended - watch.began
    parts = {**watch.parts, "rest": total - sum(watch.parts.values())}
    imports = {"torch": torch_seconds, "headway": headway_seconds}
    print(json.dumps({"imports": imports, "seconds": total, "parts": parts, "executor": watch.executor}))
