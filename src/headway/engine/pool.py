"""Worker processes, one thread each, that share the samples in memory and run `serial`'s function."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path

import torch

from headway.engine.aggregate import Group, TrainedClients
from headway.engine.client_rounds import ClientRound, CohortRounds
from headway.engine.executor import CannotExecute, RoundInput
from headway.engine.experiment import Experiment
from headway.engine.serial import ClientTrainer, group_of_one
from headway.engine.shared_memory import START_METHOD, SharedMemory
from headway.errors import ClientError, MachineError, OutOfMemory, UserError
from headway.trees import nbytes

_AHEAD = 64
"""Places of the cohort, from the one that is waited for on, that may be handed out."""
_MODELS, _SPARE = 8, 1 << 24
"""Shared memory has room for this many models, and bytes more."""
SHUTDOWN_SECONDS = 5.0
"""Seconds that the workers of a pool have to end by themselves."""
_SILENCE, _FIRST_SILENCE, _TIMES = 600.0, 3600.0, 30.0
"""Seconds that a worker may be silent over a client: at least the first, over its first client (the compiler may be at
work) the second, or this many times what the slowest client so far took for as many steps, where that is more."""
_LOOK = 1.0
"""Seconds between looks at the workers that are waited for. A machine that slept for longer was silent meanwhile."""


STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a run to stop; Windows does not have the last."""


CORES = "HEADWAY_CORES"
"""In the environment: how many cores a process may use, where others train other runs beside it."""


def cores() -> int:
    """The cores this process may use: its part of them, where it is one of several that were started together."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    beside, share = os.environ.get("LOCAL_WORLD_SIZE", ""), os.environ.get(CORES, "")
    if beside.isdecimal() and int(beside):
        count = max(count // int(beside), 1)
    return min(count, int(share)) if share.isdecimal() and int(share) else count


_FAULTS: dict[str, type[Exception]] = {
    "refused": CannotExecute,
    "exhausted": OutOfMemory,
    "failed": ClientError,
    "mistaken": UserError,
}
"""What a worker may answer instead of a result; the first kind that an exception is of counts."""


@dataclass(frozen=True)
class _Beginning:
    """What a worker process has from its beginning."""

    connection: Connection
    ends: list[Connection]
    """Both ends of all workers' pipes that it has inherited."""
    trainer: ClientTrainer
    sent: SharedMemory
    """Where the parent writes what all clients of a round receive."""
    memory: SharedMemory
    """Where the parent writes a client's state, and the worker its result."""


def _serve(own: _Beginning) -> None:
    """A worker's life: take clients, answer with each client's result, until the pipe closes."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)  # a signal may reach the whole group; the parent still ends its round
    for end in own.ends:
        if end is not own.connection:
            end.close()  # else a worker would keep its siblings' pipes open after the parent is gone
    torch.set_num_threads(1)
    if torch.are_deterministic_algorithms_enabled() != own.trainer.experiment.scenario.deterministic:
        # only then: it imports the compiler's settings, which takes a second
        torch.use_deterministic_algorithms(own.trainer.experiment.scenario.deterministic)
    if own.trainer.compiled:
        torch._inductor.config.compile_threads = 1  # no processes beside the worker's own
    given: RoundInput
    with torch.no_grad():
        while True:
            try:
                kind, content, written = own.connection.recv()
            except (EOFError, OSError):
                return
            if kind == "round":
                given = RoundInput(content, *own.sent.read(written, copied=False))
                continue
            answer = _answer(own, given, content, written)
            try:
                own.connection.send(answer)
            except OSError:
                return


def _answer(own: _Beginning, given: RoundInput, client: ClientRound, state: object) -> tuple[str, object]:
    """`done` with a client's result, or a name of `_FAULTS` with what was said; `state` is where its state lies."""
    try:
        held = replace(client, state=own.memory.read(state, copied=True))
        upload, kept = own.trainer.upload(given, held)
        return "done", own.memory.write(own.trainer.decoded(given, held, upload, kept))
    except tuple(_FAULTS.values()) as fault:
        return next(name for name, kind in _FAULTS.items() if isinstance(fault, kind)), str(fault)


def _end(connections: list[Connection], processes: list[BaseProcess]) -> None:
    """Close the pipes, at which workers end by themselves; one that is still busy after a while is killed."""
    for connection in connections:
        if START_METHOD == "fork" and not connection.closed:  # workers of a later pool have the pipe open, too
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)
        connection.close()
    late = time.monotonic() + SHUTDOWN_SECONDS
    try:
        for process in processes:
            process.join(max(late - time.monotonic(), 0))
    finally:  # Ctrl-C ends the waiting
        for process in processes:
            process.kill()  # nothing happens where it has ended
            process.join()


@dataclass(eq=False)
class _Worker:
    """A worker process, as this process sees it."""

    connection: Connection
    process: BaseProcess
    memory: SharedMemory
    """Where this process writes a client's state, and the worker its result."""
    since: float = 0.0
    """When it was given the client that it has."""
    silent: float = 0.0
    """Seconds since then in which this process looked and heard nothing."""
    answered: bool = False
    """Whether it ever answered: its first answer may have the time of a compiler in it."""


def _limit(connection: Connection, seconds: float) -> None:
    """No sending or receiving waits for longer in the middle of a message, as it does where a worker is stopped."""
    if START_METHOD == "fork":
        with socket.socket(fileno=os.dup(connection.fileno())) as end:
            for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                end.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds), int(seconds % 1 * 1e6)))


def _stopped(process: int | None) -> bool:
    """Whether a process is stopped by a signal; no where the system does not say."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] in "Tt"
    except (OSError, IndexError):
        return False


class WorkerPool:
    """Worker processes, each with one client at a time."""

    def __init__(
        self,
        experiment: Experiment,
        *,
        processes: int | None = None,
        compiled: bool = False,
        coupled: bool = False,
    ) -> None:
        if experiment.device.type != "cpu":
            raise CannotExecute("worker processes train on the CPU only")
        self.name = "pool:compiled" if compiled else "pool"
        self.count = processes or cores()
        self._room = _MODELS * nbytes(experiment.network.parameters) + _SPARE
        self._sent = SharedMemory(self._room)
        self._trainer = ClientTrainer(experiment, compiled=compiled, coupled=coupled)
        self._slowest = 0.0
        self._workers: list[_Worker] = []
        self.connections: list[Connection] = []
        self.processes: list[BaseProcess] = []
        # Also when Python exits: multiprocessing then waits for workers, after a SIGTERM that they ignore.
        self._end = Finalize(self, _end, (self.connections, self.processes), exitpriority=0)
        if compiled:
            _import_compiler()
        try:
            self._start()
        except BaseException as fault:
            self.close()
            if isinstance(fault, pickle.PicklingError | AttributeError | TypeError):
                raise CannotExecute(f"the model or a slot cannot be sent to another process: {fault}") from fault
            raise

    def _start(self) -> None:
        """Start the processes, each with its own pipe and memory."""
        context = multiprocessing.get_context(START_METHOD)
        pipes = [context.Pipe() for _ in range(self.count)]
        self.connections += [mine for mine, _ in pipes]
        for connection in self.connections:
            _limit(connection, _SILENCE)
        ends = [end for pipe in pipes for end in pipe] if START_METHOD == "fork" else []
        try:
            for mine, theirs in pipes:
                memory = SharedMemory(self._room)
                beginning = _Beginning(theirs, ends, self._trainer, self._sent, memory)
                process = context.Process(target=_serve, args=(beginning,), daemon=True)  # type: ignore[attr-defined]
                with warnings.catch_warnings():
                    # Workers use one thread and no lock of the parent's, so forking beside torch's threads is safe.
                    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
                    process.start()
                self.processes.append(process)
                self._workers.append(_Worker(mine, process, memory))
        finally:
            for _, theirs in pipes:
                theirs.close()

    def run(self, given: RoundInput, rounds: CohortRounds) -> Iterator[Group]:
        """Largest clients are handed out first; results are yielded in the order of the cohort.

        Nobody is handed out more than `_AHEAD` places before the one that is waited for, so few results wait.
        """
        written = self._sent.write((dict(given.message), given.buffers))
        for worker in self._workers:
            self._send(worker, ("round", given.round, written))
        waiting = set(range(len(rounds)))
        idle, busy = list(self._workers), dict[_Worker, int]()
        done: dict[int, TrainedClients | None] = {}
        for position in range(len(rounds)):
            while position not in done:
                while idle and (near := waiting & set(range(position, position + _AHEAD))):
                    largest = max(near, key=lambda at: (rounds.lengths[at], -at))
                    waiting.remove(largest)
                    worker = idle.pop()
                    self._hand(worker, rounds[largest])
                    busy[worker] = largest
                for worker in self._ready(busy, rounds):
                    at = busy.pop(worker)
                    done[at] = self._received(worker, at, rounds)
                    idle.append(worker)
            result = done.pop(position)
            if result is not None:
                yield group_of_one(position, result, self._trainer.computed(rounds[position]))

    def _hand(self, worker: _Worker, client: ClientRound) -> None:
        """Give a client to a worker; its state goes through their memory."""
        written = worker.memory.write(client.state)
        self._send(worker, ("client", replace(client, state={"slots": {}}), written))
        worker.since, worker.silent = time.monotonic(), 0.0

    def _ready(self, busy: Mapping[_Worker, int], rounds: CohortRounds) -> list[_Worker]:
        """Workers with an answer, as soon as there is one. One that is silent for too long is an error."""
        looked = time.monotonic()
        while not (ready := wait([worker.connection for worker in busy], _LOOK)):
            now = time.monotonic()
            passed = min(now - looked, 2 * _LOOK)  # no more: this process was stopped, or the machine slept
            looked = now
            for worker, position in busy.items():
                worker.silent += passed
                least = _SILENCE if worker.answered else _FIRST_SILENCE
                if worker.silent > max(least, _TIMES * self._slowest * rounds.lengths[position]):
                    raise _silent(worker, worker.silent)
        return [worker for worker in busy if worker.connection in ready]

    def _send(self, worker: _Worker, content: object) -> None:
        try:
            worker.connection.send(content)
        except BlockingIOError:
            raise _silent(worker, _SILENCE) from None
        except OSError:
            raise _ended(worker) from None

    def _received(self, worker: _Worker, position: int, rounds: CohortRounds) -> TrainedClients | None:
        """A client's result; None where it failed and is skipped."""
        try:
            kind, content = worker.connection.recv()
        except BlockingIOError:
            raise _silent(worker, _SILENCE) from None
        except (EOFError, OSError):
            raise _ended(worker) from None
        if worker.answered:
            taken = time.monotonic() - worker.since
            self._slowest = max(self._slowest, taken / max(rounds.lengths[position], 1))
        worker.answered = True
        if kind == "done":
            result: TrainedClients = worker.memory.read(content, copied=True)
            return result
        fault = _FAULTS[kind](content)
        if not isinstance(fault, ClientError):
            raise fault
        rounds.failed(position, fault)
        return None

    def prefetch(self, round: int) -> None:
        """Nothing: the processes are as busy as the host."""

    def close(self) -> None:
        self._end()


def _import_compiler() -> None:
    """torch's compiler in this process, so that workers are forked with it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch's own modules
        importlib.import_module("torch._inductor.compile_fx")


def _silent(worker: _Worker, seconds: float) -> MachineError:
    """A worker that does not answer, or does not take what it is sent."""
    how = "it is stopped" if _stopped(worker.process.pid) else "it hangs"
    return MachineError(f"worker process {worker.process.pid} has been silent for {seconds:.0f} s: {how}")


def _ended(worker: _Worker) -> MachineError:
    """A worker that is gone."""
    process = worker.process
    process.join(SHUTDOWN_SECONDS)
    code = process.exitcode
    how = f"ended with code {code}" if code is None or code >= 0 else f"was killed by {signal.Signals(-code).name}"
    memory = ", as the system does where memory runs out" if code == -signal.SIGKILL else ""
    advice = "; --executor serial needs least memory" if memory else ""
    return MachineError(f"worker process {process.pid} {how}{memory}{advice}")


def executor(experiment: Experiment, forms: Sequence[str], coupled: bool) -> WorkerPool:
    """The executor that the table of `headway/executors.py` names."""
    return WorkerPool(experiment, compiled="compiled" in forms, coupled=coupled)
