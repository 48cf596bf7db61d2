"""Worker processes end when they should, and only then."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from conftest import experiment
from headway.engine import pool
from headway.engine.pool import WorkerPool
from headway.engine.trial import first_rounds, round_input
from headway.errors import MachineError
from killed_runs import CONTEXT

forking = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")


def trained(*pools: WorkerPool) -> None:
    """Every worker of every pool has served a client."""
    chosen = experiment("fedavg")
    given, rounds = round_input(chosen), first_rounds(chosen, range(6), steps_at_most=3)
    for one in pools:
        assert len(list(one.run(given, rounds))) == len(rounds)


def made(processes: int = 2) -> WorkerPool:
    return WorkerPool(experiment("fedavg"), processes=processes)


def codes(closed: WorkerPool) -> list[int | None]:
    return [process.exitcode for process in closed.processes]


def gone(process: int) -> bool:
    """Whether it has ended, even if nobody asked for its exit code yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def all_gone(processes: list[int]) -> bool:
    for _ in range(1000):
        if all(map(gone, processes)):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_leaves_the_round_to_the_parent(number: signal.Signals) -> None:
    own = made()
    try:
        trained(own)
        for process in own.processes:
            assert process.pid is not None
            os.kill(process.pid, number)
        trained(own)
    finally:
        own.close()
    assert codes(own) == [0, 0]


def test_a_worker_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SHUTDOWN_SECONDS", 0.1)
    own = made(1)
    trained(own)
    (worker,) = own.processes
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    own.close()
    assert codes(own) == [-signal.SIGKILL]


def test_ctrl_c_while_a_pool_closes_kills_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    own = made()
    trained(own)
    for process in own.processes:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
    join = BaseProcess.join

    def interrupted(self: BaseProcess, timeout: float | None = None) -> None:
        if timeout is not None:
            raise KeyboardInterrupt
        join(self)

    monkeypatch.setattr(BaseProcess, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        own.close()
    assert codes(own) == [-signal.SIGKILL] * 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_workers_end_by_themselves_while_another_pool_lives(order: tuple[int, int]) -> None:
    pools = [made(), made()]
    trained(*pools)
    for at in order:
        pools[at].close()
        assert codes(pools[at]) == [0, 0]
    pools[0].close()  # once more does nothing


@forking
def test_a_failed_fork_leaves_no_worker_and_no_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = multiprocessing.get_context("fork").Process
    gc.collect()  # pipes of earlier tests must not be closed while this one counts
    start, before = kind.start, set(multiprocessing.active_children())
    opened = len(os.listdir("/proc/self/fd"))
    started: list[BaseProcess] = []

    def failing(process: BaseProcess) -> None:
        if len(started) == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        start(process)
        started.append(process)

    monkeypatch.setattr(kind, "start", failing)
    with pytest.raises(BlockingIOError):
        made(4)
    assert set(multiprocessing.active_children()) == before
    started.clear()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == opened


def _forgotten(kept: list[WorkerPool]) -> None:
    kept.append(made())
    trained(*kept)


def test_a_pool_that_nobody_closed_does_not_keep_python_from_exiting() -> None:
    kept: list[WorkerPool] = []
    process = CONTEXT.Process(target=_forgotten, args=(kept,))
    process.start()
    process.join(60)
    code = process.exitcode
    process.kill()
    process.join()
    assert code == 0


def _two_pools(connection: Connection) -> None:
    pools = [made(), made()]
    trained(*pools)
    connection.send([[process.pid for process in one.processes] for one in pools])
    connection.recv()


@forking
def test_workers_of_a_killed_parent_end() -> None:
    connection, theirs = CONTEXT.Pipe()
    parent = CONTEXT.Process(target=_two_pools, args=(theirs,))
    parent.start()
    theirs.close()
    workers: list[list[int]] = connection.recv()
    parent.kill()
    parent.join()
    connection.close()
    assert all_gone([worker for one in workers for worker in one])


def stopped(own: WorkerPool, signals: signal.Signals = signal.SIGSTOP) -> int:
    """The first worker, once it has that signal."""
    worker = own.processes[0].pid
    assert worker is not None
    os.kill(worker, signals)
    while Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        time.sleep(0.001)
    return worker


@forking
def test_a_stopped_worker_is_reported_after_a_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in its first client, in which a compiler may be at work, but in any after that."""
    monkeypatch.setattr(pool, "_SILENCE", 0.2)
    monkeypatch.setattr(pool, "_LOOK", 0.02)
    monkeypatch.setattr(pool, "SHUTDOWN_SECONDS", 0.1)
    own = made(1)
    try:
        trained(own)
        worker = stopped(own)
        with pytest.raises(MachineError, match=rf"worker process {worker} has been silent for \d+ s: it is stopped"):
            trained(own)
    finally:
        own.close()
    assert codes(own) == [-signal.SIGKILL]


@forking
def test_a_message_that_a_stopped_worker_does_not_take_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_SILENCE", 0.1)
    monkeypatch.setattr(pool, "SHUTDOWN_SECONDS", 0.1)
    own = made(1)
    try:
        stopped(own)
        with pytest.raises(MachineError, match="it is stopped"):
            own._send(own._workers[0], bytes(1 << 24))
    finally:
        own.close()


@forking
def test_a_machine_that_slept_or_a_slow_client_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps by a day at each look, and the worker goes on after a while."""
    monkeypatch.setattr(pool, "_LOOK", 0.02)
    own = made(1)
    try:
        trained(own)
        worker = stopped(own)
        clock, looks = time.monotonic, iter(range(10**6))
        monkeypatch.setattr(pool.time, "monotonic", lambda: clock() + 86400 * next(looks))
        threading.Timer(0.2, os.kill, (worker, signal.SIGCONT)).start()
        trained(own)
    finally:
        monkeypatch.undo()
        own.close()


@forking
def test_the_patience_grows_with_the_time_that_clients_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_LOOK", 0.02)
    own = made(1)
    try:
        trained(own)
        monkeypatch.setattr(pool, "_SILENCE", 0.0)
        own._slowest = 60.0  # seconds a step, as a large network has
        worker = stopped(own)
        threading.Timer(0.1, os.kill, (worker, signal.SIGCONT)).start()
        trained(own)
    finally:
        own.close()
