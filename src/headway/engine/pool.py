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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import torch

from headway.engine.aggregate import Group
from headway.engine.client_rounds import ClientRound, CohortRounds
from headway.engine.executor import CannotExecute, RoundInput
from headway.engine.experiment import Experiment
from headway.engine.serial import ClientTrainer, group_of_one
from headway.engine.shared_memory import START_METHOD, SharedMemory
from headway.errors import ClientError, MachineError, OutOfMemory, UserError
from headway.trees import nbytes

_AHEAD = 64
"""Places of the cohort, from the one that is waited for on, that may be handed out."""
_MODELS, _ROOM = 8, 1 << 24
"""Shared memory has room for this many models, and bytes more."""
SHUTDOWN_SECONDS = 5.0
"""Seconds that the workers of a pool have to end by themselves."""
_SILENCE, _FIRST_SILENCE, _TIMES = 600.0, 3600.0, 30.0
"""Seconds that a worker may be silent over a client: at least the first, over its first client (the compiler may be at
work) the second, or so many times what the slowest client so far took for as many steps, where that is more."""
_LOOK = 1.0
"""Seconds between looks at the workers that are waited for. A machine that slept for longer was silent for so long."""


STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a run to stop; Windows does not have the last."""


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class _Worker:
    """What a worker process has from its beginning."""

    connection: Connection
    others: list[Connection]
    """Ends of other workers' pipes, to be closed."""
    trainer: ClientTrainer
    sent: SharedMemory
    """Where the parent writes what all clients of a round receive."""
    own: SharedMemory
    """Where the parent writes a client's state, and the worker its result."""


def _serve(worker: _Worker) -> None:
    """A worker's life: take clients, answer with each client's result, until the pipe closes."""
    connection, trainer = worker.connection, worker.trainer
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)  # a whole group may be told to stop; the parent still ends its round
    for other in worker.others:
        other.close()  # else a worker would keep its siblings' pipes open after the parent is gone
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(trainer.experiment.scenario.deterministic)
    if trainer.compiled:
        torch._inductor.config.compile_threads = 1  # no processes beside the worker's own
    given: RoundInput
    with torch.no_grad():
        while True:
            try:
                kind, content = connection.recv()
            except (EOFError, OSError):
                return
            if kind == "round":
                number, *written = content
                message, buffers = worker.sent.read(tuple(written), copied=False)
                given = RoundInput(number, message, buffers)
                continue
            try:
                client: ClientRound = replace(content, state=worker.own.read(content.state, copied=True))
                answer = "done", worker.own.write(trainer.train(given, client))
            except CannotExecute as reason:
                answer = "refused", str(reason)
            except OutOfMemory as fault:
                answer = "exhausted", str(fault)
            except ClientError as fault:
                answer = "failed", str(fault)
            except UserError as mistake:
                answer = "mistaken", str(mistake)
            try:
                connection.send(answer)
            except OSError:
                return


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


@dataclass
class _Watch:
    """Over a worker that has a client."""

    since: float = field(default_factory=time.monotonic)
    silent: float = 0.0
    """Seconds in which this process looked and heard nothing."""


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
        context = multiprocessing.get_context(START_METHOD)
        size = nbytes(experiment.network.parameters)
        self._sent = SharedMemory(_MODELS * size + _ROOM)
        self._memories = [SharedMemory(_MODELS * size + _ROOM) for _ in range(self.count)]
        self._trainer = ClientTrainer(experiment, compiled=compiled, coupled=coupled)
        if compiled:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of torch's own modules
                importlib.import_module("torch._inductor.compile_fx")  # once, before the workers are forked
        pipes = [context.Pipe() for _ in range(self.count)]
        self.connections = [mine for mine, _ in pipes]
        for connection in self.connections:
            _limit(connection, _SILENCE)
        self._watches: dict[Any, _Watch] = {}
        self._answered: set[Any] = set()
        self._slowest = 0.0
        self.processes: list[BaseProcess] = []
        # Also when Python exits: multiprocessing then waits for workers, after a SIGTERM that they ignore.
        self._end = Finalize(self, _end, (self.connections, self.processes), exitpriority=0)
        try:
            for number, (_, theirs) in enumerate(pipes):
                others = [end for at, pair in enumerate(pipes) for end in pair if at != number or end is pair[0]]
                kept = others if START_METHOD == "fork" else []
                started = _Worker(theirs, kept, self._trainer, self._sent, self._memories[number])
                worker = context.Process(target=_serve, args=(started,), daemon=True)  # type: ignore[attr-defined]
                with warnings.catch_warnings():
                    # Workers use one thread and no lock of the parent's, so forking beside torch's threads is safe.
                    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
                    worker.start()
                self.processes.append(worker)
        except BaseException as fault:
            self.close()
            if isinstance(fault, pickle.PicklingError | AttributeError | TypeError):
                raise CannotExecute(f"the model or a slot cannot be sent to another process: {fault}") from fault
            raise
        finally:
            for _, theirs in pipes:
                theirs.close()

    def run(self, given: RoundInput, rounds: CohortRounds) -> Iterator[Group]:
        """Largest clients are handed out first; results are yielded in the order of the cohort.

        Nobody is handed out more than `_AHEAD` places before the one that is waited for, so few results wait.
        """
        written = self._sent.write((dict(given.message), given.buffers))
        shared = ("round", (given.round, *written))
        for connection in self.connections:
            self._send(connection, shared)
        self._watches.clear()
        waiting = set(range(len(rounds)))
        idle, busy = list(self.connections), dict[Any, int]()
        done: dict[int, Any] = {}
        for position in range(len(rounds)):
            while position not in done:
                while idle and (near := waiting & set(range(position, position + _AHEAD))):
                    largest = max(near, key=lambda at: (rounds.lengths[at], -at))
                    waiting.remove(largest)
                    self._hand(idle.pop(), largest, rounds, busy)
                for connection in self._ready(busy, rounds):
                    at = busy.pop(connection)
                    done[at] = self._received(connection, at, rounds)
                    idle.append(connection)
            result = done.pop(position)
            if result is not None:
                yield group_of_one(position, result, self._trainer.computed(rounds[position]))

    def _hand(self, connection: Connection, position: int, rounds: CohortRounds, busy: dict[Any, int]) -> None:
        client = rounds[position]
        written = self._memory(connection).write(client.state)
        self._send(connection, ("client", replace(client, state=written)))
        busy[connection] = position
        self._watches[connection] = _Watch()

    def _ready(self, busy: Mapping[Any, int], rounds: CohortRounds) -> list[Any]:
        """Connections with an answer, as soon as there is one. A worker that is silent for too long is an error."""
        looked = time.monotonic()
        while not (ready := wait(list(busy), _LOOK)):
            now = time.monotonic()
            passed = min(now - looked, 2 * _LOOK)  # no more: this process was stopped, or the machine slept
            looked = now
            for connection, position in busy.items():
                watch, steps = self._watches[connection], rounds.lengths[position]
                watch.silent += passed
                least = _SILENCE if connection in self._answered else _FIRST_SILENCE
                if watch.silent > max(least, _TIMES * self._slowest * steps):
                    raise self._silent(connection, watch.silent)
        return ready

    def _silent(self, connection: Any, seconds: float) -> MachineError:
        process = self._process(connection).pid
        how = "it is stopped" if _stopped(process) else "it hangs"
        return MachineError(f"worker process {process} has been silent for {seconds:.0f} s: {how}")

    def _send(self, connection: Connection, content: Any) -> None:
        try:
            connection.send(content)
        except BlockingIOError:
            raise self._silent(connection, _SILENCE) from None
        except OSError:
            raise self._ended(connection) from None

    def _received(self, connection: Any, position: int, rounds: CohortRounds) -> Any:
        """A client's result; None where it failed and is skipped."""
        try:
            kind, content = connection.recv()
        except BlockingIOError:
            raise self._silent(connection, _SILENCE) from None
        except (EOFError, OSError):
            raise self._ended(connection) from None
        if connection in self._answered:  # the first answer has the time of a compiler in it
            taken = time.monotonic() - self._watches[connection].since
            self._slowest = max(self._slowest, taken / max(rounds.lengths[position], 1))
        self._answered.add(connection)
        if kind == "mistaken":
            raise UserError(content)
        if kind == "refused":
            raise CannotExecute(content)
        if kind in ("failed", "exhausted"):
            rounds.failed(position, ClientError(content) if kind == "failed" else OutOfMemory(content))
            return None
        return self._memory(connection).read(content, copied=True)

    def _ended(self, connection: Any) -> MachineError:
        """Of a worker that is gone."""
        process = self._process(connection)
        process.join(SHUTDOWN_SECONDS)
        code = process.exitcode
        how = f"ended with code {code}" if code is None or code >= 0 else f"was killed by {signal.Signals(-code).name}"
        memory = ", as the system does where memory runs out" if code == -signal.SIGKILL else ""
        advice = "; --executor serial needs least memory" if memory else ""
        return MachineError(f"worker process {process.pid} {how}{memory}{advice}")

    def _process(self, connection: Any) -> BaseProcess:
        return self.processes[self.connections.index(connection)]

    def _memory(self, connection: Connection) -> SharedMemory:
        return self._memories[self.connections.index(connection)]

    def prefetch(self, round: int) -> None:
        """Nothing: the processes are as busy as the host."""

    def close(self) -> None:
        self._end()
