"""Worker processes, one thread each, that share the samples in memory and run `serial`'s function."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from headway.engine import serial
from headway.engine.executor import Assignment, CannotExecute, Trained, Work, Works
from headway.engine.local import Rules
from headway.errors import ClientError
from headway.vectors import tree_map

_METHOD = "fork" if sys.platform == "linux" else "spawn"


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _packed(tree: Any) -> Any:
    return tree_map(lambda leaf: leaf.detach().cpu().numpy(), tree)


def _unpacked(tree: Any) -> Any:
    return tree_map(torch.from_numpy, tree)


def _serve(connection: Connection, others: list[Connection], rules: Rules, deterministic: bool) -> None:
    """A worker's life: take an assignment of some clients, answer with each client's result, until the pipe closes."""
    for other in others:
        other.close()  # else a worker would keep its siblings' pipes open after the parent is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(deterministic)
    assignment: Assignment
    with torch.no_grad():
        while True:
            try:
                kind, content = connection.recv()
            except (EOFError, OSError):
                return
            if kind == "round":
                number, received, buffers = content
                assignment = Assignment(number, _unpacked(received), _unpacked(buffers), Works(), {})
                continue
            try:
                answer = "done", _packed(serial.train(rules, assignment, _unpacked_work(content)))
            except ClientError as fault:
                answer = "failed", str(fault)
            try:
                connection.send(answer)
            except OSError:
                return


def _unpacked_work(content: tuple[Any, ...]) -> Work:
    client, task, weight, kept, steps, words = content
    return Work(client, task, weight, _unpacked(kept), steps, words)


class Pool:
    name = "pool"

    def __init__(self, rules: Rules, *, deterministic: bool, processes: int | None = None) -> None:
        if rules.pool.y.device.type != "cpu":
            raise CannotExecute("worker processes train on the CPU only")
        self.count = processes or cores()
        context = multiprocessing.get_context(_METHOD)
        pipes = [context.Pipe() for _ in range(self.count)]
        self.connections = [mine for mine, _ in pipes]
        self.processes = []
        try:
            for number, (_, theirs) in enumerate(pipes):
                others = [end for at, pair in enumerate(pipes) for end in pair if at != number or end is pair[0]]
                arguments = (theirs, others if _METHOD == "fork" else [], rules, deterministic)
                worker = context.Process(target=_serve, args=arguments, daemon=True)  # type: ignore[attr-defined]
                with warnings.catch_warnings():
                    # Workers use one thread and no lock of the parent's, so forking beside torch's threads is safe.
                    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
                    worker.start()
                self.processes.append(worker)
        except (pickle.PicklingError, AttributeError, TypeError) as fault:
            self.close()
            raise CannotExecute(f"the model or a slot cannot be sent to another process: {fault}") from fault
        for _, theirs in pipes:
            theirs.close()

    def run(self, assignment: Assignment) -> Iterator[Trained]:
        """Largest clients are handed out first; results are yielded in the order of the cohort."""
        shared = ("round", (assignment.round, _packed(assignment.received), _packed(assignment.buffers)))
        for connection in self.connections:
            self._send(connection, shared)
        waiting = sorted(range(len(assignment.works)), key=lambda at: -assignment.works.lengths[at])
        idle, busy = list(self.connections), dict[Any, int]()
        done: dict[int, Any] = {}
        for position in range(len(assignment.works)):
            while position not in done:
                while idle and waiting:
                    self._hand(idle.pop(), waiting.pop(0), assignment, busy)
                ready: list[Any] = wait(list(busy))
                for connection in ready:
                    done[busy.pop(connection)] = self._receive(connection)
                    idle.append(connection)
            yield (position,), serial.alone(done.pop(position), assignment.works[position])

    def _hand(self, connection: Connection, position: int, assignment: Assignment, busy: dict[Any, int]) -> None:
        work = assignment.works[position]
        self._send(
            connection,
            ("work", (work.client, work.task, work.weight, _packed(work.kept), work.steps, work.words)),
        )
        busy[connection] = position

    def _send(self, connection: Connection, content: Any) -> None:
        try:
            connection.send(content)
        except OSError:
            raise RuntimeError("a worker process ended unexpectedly (killed, or out of memory)") from None

    def _receive(self, connection: Any) -> Any:
        try:
            kind, content = connection.recv()
        except (EOFError, OSError):
            raise RuntimeError("a worker process ended unexpectedly (killed, or out of memory)") from None
        if kind == "failed":
            raise ClientError(content)
        return _unpacked(content)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        for process in self.processes:
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
