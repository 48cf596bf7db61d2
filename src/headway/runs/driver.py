"""The loop of a run: round after round from its checkpoint, or from the start, to the end, saved on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import torch

from headway.engine import privacy, simulation
from headway.engine.client_rounds import StateOf
from headway.engine.evaluation import client_table
from headway.engine.executor import Executor
from headway.engine.failures import in_words
from headway.engine.ranks import (
    all_or_none,
    settled,
    told_by_first,
)
from headway.engine.selection import inherited_executor
from headway.engine.simulation import Progress
from headway.engine.spread import Spread
from headway.engine.states import ClientStates
from headway.errors import (
    ClientError,
    Diverged,
    Interrupted,
    MachineError,
    RankFailed,
    RanksDiffer,
    RanksLost,
    ServerDiverged,
    UserError,
    shared,
)
from headway.records import RoundRecord
from headway.runs import execution, kept, records, shared_folder
from headway.runs.accountant import Accountant, accountant_of
from headway.runs.callbacks.calls import Calls
from headway.runs.callbacks.keep_best import KeepBest
from headway.runs.callbacks.of_run import every_callback
from headway.runs.checkpoint import Checkpoint, Pace
from headway.runs.costs import cost_record
from headway.runs.environment import hardware_and_versions
from headway.runs.files import write_checked
from headway.runs.folder import ROUNDS, UNCHECKED
from headway.runs.job import Job, check_unchanged, start_of
from headway.runs.kept_in_slots import KeptInSlots
from headway.runs.load import best_module
from headway.runs.observer import closing
from headway.runs.result import Result
from headway.runs.splits import table_of
from headway.runs.stopping import StopRequest, heed_signals
from headway.waiting import part


def drive(job: Job) -> Result:
    """Train a run to its end, saving as it goes."""
    with all_or_none(job.ranks), closing(job.observer):
        experiment, folder, tell = job.experiment, job.folder, job.observer.tell
        if folder is None and experiment.scenario.keep_checkpoints is not None:
            every = experiment.scenario.keep_checkpoints
            raise UserError(f"keep_checkpoints is {every}, but the run has no folder; give one (out=…)")
        callbacks = every_callback(experiment, job.callbacks, job.trackers) if job.ranks.rank == 0 else ()
        if folder is not None:
            shared_folder.check(folder, job.ranks)
        checkpoint = Checkpoint(folder / "checkpoint", experiment, job.ranks) if folder else None
        requested, threads = told_by_first(job.ranks, lambda: _asked_for(job, checkpoint))
        with execution.threads(experiment.scenario.deterministic, threads) as count:
            if checkpoint is not None:
                checkpoint.facts.threads = count
            # before the lock: workers would inherit it
            executor, label = _executor(job, requested)
            try:
                path = folder if job.ranks.rank == 0 else None
                with _open_rounds(path) as file, Calls(callbacks, tell) as calls:
                    return _Run.begun(job, checkpoint, executor, file, calls).to_the_end(label)
            finally:
                executor.close()


def _asked_for(job: Job, checkpoint: Checkpoint | None) -> tuple[str, int | None]:
    """The executor that a run asks for, and the threads that it began with. What it began with must be the same."""
    experiment, folder = job.experiment, job.folder
    requested, threads = experiment.scenario.executor, None
    if folder and checkpoint:
        checkpoint.facts.fingerprints = check_unchanged(folder, experiment, job.observer, job.accept_changes)
        checkpoint.facts.cost = cost_record(experiment.method)
    if checkpoint and checkpoint.exists():
        manifest = checkpoint.read()
        threads = manifest["threads"]
        if job.remote is None:
            requested = inherited_executor(requested, manifest["executor"], experiment.device)
        if threads is None and experiment.scenario.deterministic:
            job.observer.tell(f"{folder} does not say with how many threads it began; its bits depend on it")
    if job.ranks.size > 1 and experiment.scenario.deterministic:
        threads = threads or torch.get_num_threads()  # of rank 0, for all
    return requested, threads


def _executor(job: Job, requested: str) -> tuple[Executor, str]:
    """Whoever trains the clients, and its name with how it was chosen."""
    if job.remote is not None:
        return job.remote, job.remote.name
    with part("choosing the executor"):
        return execution.chosen_together(job.experiment, requested, job.observer.tell, job.ranks)


@contextmanager
def _open_rounds(folder: Path | None) -> Iterator[IO[bytes] | None]:
    """rounds.jsonl, open at its end and locked; None for a run without a folder."""
    if folder is None:
        yield None
    else:
        with records.appending(folder / ROUNDS) as file:
            yield file


@dataclass
class _Run:
    """A run between its first round and its last."""

    job: Job
    checkpoint: Checkpoint | None
    executor: Executor
    file: IO[bytes] | None
    calls: Calls
    progress: Progress
    store: ClientStates
    past: list[RoundRecord]
    chain: records.Chain
    checked: bool
    """Whether the rounds before could be checked."""
    pace: Pace
    accountant: Accountant | None
    """Of a private run."""
    in_slots: KeptInSlots
    reason: str | None
    """Why a callback stopped the run."""
    spread: Spread | None
    """Its clients over ranks; None for one process."""
    watched: bool = False
    """Whether a callback reads the clients' updates."""
    signal: int | None = None
    """The signal by which all ranks are asked to stop."""
    failures_reported: bool = False

    @classmethod
    def begun(
        cls,
        job: Job,
        checkpoint: Checkpoint | None,
        executor: Executor,
        file: IO[bytes] | None,
        calls: Calls,
    ) -> _Run:
        """The run where it stands on the disk, or at its start."""
        progress, store, rounds = start_of(job, checkpoint)
        if job.folder is not None and job.ranks.rank == 0:
            (job.folder / "summary.json").unlink(missing_ok=True)  # of a failure before
        return cls(
            job=job,
            checkpoint=checkpoint,
            executor=executor,
            file=file,
            calls=calls,
            progress=progress,
            store=store,
            past=rounds.records,
            chain=rounds.chain,
            checked=rounds.checked,
            pace=Pace(job.experiment.scenario),
            accountant=accountant_of(job.experiment),
            in_slots=KeptInSlots(job.experiment.method),
            reason=None if checkpoint is None else checkpoint.facts.stopped,
            spread=simulation.spread_over(job.ranks, job.experiment, store),
            watched=told_by_first(job.ranks, lambda: calls.measure_updates),
        )

    def to_the_end(self, label: str) -> Result:
        """Every round that is left; `label` names the executor, and says how it was chosen."""
        self._announce(label)
        try:
            with heed_signals(self.job.observer.tell) as request:
                self._start_callbacks()
                self._agree(request, due=False)
                self._save()
                for record, progress in self._rounds_left():
                    self._take(record, progress, request)
                    if self._heard(request) is not None or self.reason is not None:
                        break
                self._save()
            signal = self._heard(request)
            over = self.reason is not None or simulation.finished(self.job.experiment, self.progress)
            if signal is not None and not over:
                raise shared(Interrupted(signal)) if self.spread else Interrupted(signal)
            return self._finish()
        except Exception as fault:
            known = settled(self.job.ranks, fault)
            self._fail(known)
            if known is fault:
                raise
            raise known from fault

    def _heard(self, request: StopRequest) -> int | None:
        """The signal that asks this process, or all ranks, to stop."""
        return request.signal if self.spread is None else self.signal

    def _agree(self, request: StopRequest, due: bool) -> bool:
        """What all ranks do next: stop after a signal that any has got, or where rank 0's callbacks or clock say so.

        Returns whether a checkpoint is due.
        """
        if self.checkpoint is not None:
            self.checkpoint.facts.stopped = self.reason
        if self.spread is None:
            return due
        norm = float(self.progress.model.theta.norm()).hex()
        own = {"signal": request.signal, "reason": self.reason, "due": due, "norm": norm}
        told = self.job.ranks.tell(own)
        odd = next((rank for rank, one in enumerate(told) if one["norm"] != told[0]["norm"]), None)
        if odd is not None:
            raise shared(
                RanksDiffer(
                    f"round {self.progress.round}: rank {odd} has another model than rank 0, so its machine computes "
                    "other numbers; use machines and versions of one kind"
                )
            )
        signals = [one["signal"] for one in told if one["signal"] is not None]
        self.signal = cast(int, signals[0]) if signals else None
        self.reason = cast(str | None, told[0]["reason"])
        if self.checkpoint is not None:
            self.checkpoint.facts.stopped = self.reason
        return bool(told[0]["due"])

    def _rounds_left(self) -> Iterator[tuple[RoundRecord, Progress]]:
        """The rounds to come; none where the run was stopped."""
        if self.reason is not None:
            return iter(())
        given, remote = (self.executor, self.store, self.progress), self.job.remote
        return simulation.simulate(self.job.experiment, *given, watched=self.watched, remote=remote, spread=self.spread)

    def _announce(self, label: str) -> None:
        experiment, observer = self.job.experiment, self.job.observer
        if not self.checked:
            observer.tell(UNCHECKED)
        observer.begins(experiment, self.progress.round, label)
        if experiment.doubt is not None:
            observer.tell(experiment.doubt)
        for caution in privacy.cautions(experiment):
            observer.tell(caution)

    def _start_callbacks(self) -> None:
        saved = None if self.checkpoint is None else self.checkpoint.committed
        job, executor = self.job, self.executor.name
        self.calls.start(job.experiment, job.folder, executor, self.progress, self.past, saved)
        self.reason = self.reason or self.calls.stopped

    def _save(self, *, waits: bool = True) -> None:
        """Write a checkpoint, where the run has a folder; where nobody waits, the other ranks go on meanwhile."""
        if self.checkpoint is None:
            return
        with self.pace.saving():
            if self.file is not None:
                os.fsync(self.file.fileno())  # the rounds before the checkpoint that counts on them
            self.checkpoint.save(self.progress, self.store, self.executor.name, self.chain.numbers, waits=waits)
        self.calls.saved(self.progress.round)

    def _keep(self) -> None:
        """Keep the state after this round for an analysis, where one is due."""
        if self.job.folder is not None and kept.is_due(self.job.experiment.scenario, self.progress.round):
            kept.keep(self.job.folder, self.job.experiment, self.progress, self._state_of, self.job.ranks)

    @property
    def _state_of(self) -> StateOf:
        """What a client keeps, wherever it is; several ranks ask together."""
        return self.store.get if self.spread is None else self.spread.anywhere

    def _take(self, record: RoundRecord, progress: Progress, request: StopRequest) -> None:
        """Keep the record of a round, save where a checkpoint is due, and tell callbacks and observer."""
        observer = self.job.observer
        self.in_slots.check(progress.round)
        if self.job.experiment.scenario.validation is not None:
            record["measured_on"] = "validation"
        if self.accountant is not None:
            record["epsilon"] = self.accountant.epsilon(progress.round)
        self.progress = progress
        self.past.append(record)
        self.chain = self.chain.then(record)
        if self.file:
            records.append(self.file, {**record, records.CHAIN: self.chain.whole})
        self.calls.round(record, progress)  # before the checkpoint: after a kill the round is run and shown again
        self.reason = self.reason or self.calls.stopped
        self._keep()
        due = self._agree(request, self.pace.due(progress.round))
        if self.reason is not None or due:
            # before the observer sees it: saved every round, no round that was seen is trained again
            self._save(waits=self.reason is not None or self.signal is not None)
        if "failures" in record and not self.failures_reported:
            self.failures_reported = True
            observer.tell(in_words(record))
        observer.round(record)

    def _fail(self, fault: Exception) -> None:
        """Save the last good round, and write down why the run ended; on every rank, where all can still talk."""
        if isinstance(fault, RanksLost | RankFailed | RanksDiffer):
            return  # nobody can talk any more, or what is there is wrong
        if isinstance(fault, Diverged | ClientError | MachineError) and not isinstance(fault, ServerDiverged):
            self._save()  # a failing client or worker changed nothing: what is there is the last good round
        first = self.job.ranks.rank == 0
        if self.job.folder is not None and first and not isinstance(fault, OSError | MachineError):  # the machine's
            cause = " ".join(str(fault).split()) or type(fault).__name__
            write_checked(self.job.folder / "summary.json", {"finished": False, "failure": cause})

    def _finish(self) -> Result:
        """The result of a run that came to its end, written down in summary.json."""
        experiment, folder = self.job.experiment, self.job.folder
        output = self.progress.output(experiment)
        module = experiment.network.module(output.theta, output.buffers)
        in_memory = next((one.given.content for one in self.calls.every if isinstance(one.given, KeepBest)), None)
        clients = client_table(experiment, self.progress.model, self._state_of)
        split = table_of(experiment.split)
        result = Result(
            method=experiment.method.name,
            scenario=experiment.scenario,
            records=self.past,
            make_model=lambda: module,
            executor=self.executor.name,
            folder=folder,
            checked=self.checked,
            cost=cost_record(experiment.method),
            stopped=self.reason,
            callbacks=tuple(one.given for one in self.job.callbacks),
            make_best=lambda: best_module(experiment, folder, self.past, in_memory),
            make_clients=lambda: clients,
            make_split=lambda: split,
        )
        self.calls.end(result)
        if folder is not None and self.checkpoint is not None and self.job.ranks.rank == 0:
            accepted = self.checkpoint.facts.fingerprints.get("accepted")
            changes = {"accepted_changes": accepted} if accepted else {}
            made_on = {"environment": hardware_and_versions(experiment.device)}
            price = {} if result.cost is None else {"cost": result.cost}
            numbers = {**result.summary, **changes, **made_on, **price, "chain": self.chain.whole}
            write_checked(folder / "summary.json", {"finished": True, **numbers})
        self.job.ranks.tell({})  # nobody is done before rank 0 has written
        return result
