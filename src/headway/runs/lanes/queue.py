"""A queue of runs: each goes to the next lane that is free, and one whose worker is lost goes on in another."""

from __future__ import annotations

import signal
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from headway.errors import Interrupted, MachineError
from headway.runs.lanes.display import Display
from headway.runs.lanes.jobs import Lane
from headway.runs.lanes.messages import ENDS, Answer, Request, RunFacts, raised
from headway.runs.lanes.process import Start, Worker, end_all
from headway.runs.stopping import heed_signals

_LOOK = 0.2
"""Seconds between looks at workers that say nothing."""
_LOST_AT_MOST = 3
"""With so many workers that one run has lost, the fault is taken for the run's."""


@dataclass
class _Turn:
    """What is to be done in one go, and how far it is."""

    requests: Mapping[str, Request]
    """By the names of the runs."""
    rounds: Mapping[str, int]
    waiting: deque[str]
    busy: dict[Worker, str] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    losses: Counter[str] = field(default_factory=Counter)
    """How many workers each run has lost; under '' those that were lost before they had one."""
    signal: int | None = None
    """By which signal workers were asked to stop."""
    fault: Exception | None = None
    """Of the machine: the next run would have no more luck."""

    @property
    def goes_on(self) -> bool:
        return bool(self.busy) or (bool(self.waiting) and self.signal is None)

    @property
    def is_done(self) -> bool:
        return len(self.answers) == len(self.requests)


class Queue:
    """Workers in lanes, which do one request after another. They live until it is closed, with what they compiled."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._display: Display
        self._workers: dict[int, Worker] = {}

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        workers = list(self._workers.values())
        self._workers.clear()
        end_all(workers)

    def answers(
        self, requests: Mapping[str, Request], rounds: Mapping[str, int], lanes: Sequence[Lane], display: Display
    ) -> dict[str, Answer]:
        """How each request ended: `chosen`, `done` or `failed`; `rounds` are those of each run.

        A signal lets every run in hand end its round and save; a second one ends them at once.
        """
        turn, self._display = _Turn(requests, rounds, deque(requests)), display
        with heed_signals(self._display.tell) as asked:
            try:
                while turn.goes_on:
                    if turn.signal is None:
                        self._hand_out(turn, lanes)
                    self._hear(turn)
                    if asked.signal is not None and turn.signal is None:
                        self._stop(turn, asked.signal)
            except KeyboardInterrupt:
                for worker in turn.busy:
                    worker.signal(asked.signal or signal.SIGINT)
                raise
        if turn.fault is not None:
            raise turn.fault
        if not turn.is_done:
            raise Interrupted(turn.signal or signal.SIGINT)
        return turn.answers

    def _hand_out(self, turn: _Turn, lanes: Sequence[Lane]) -> None:
        """Give what waits to workers that are free; start as many as have something to do."""
        coming = sum(not worker.is_ready for worker in self._workers.values())
        for lane in lanes:
            worker = self._workers.get(lane.number)
            if worker is None and len(turn.waiting) > coming:
                self._workers[lane.number] = self._start(lane, list(self._workers.values()))
                coming += 1
            elif worker is not None and worker.is_ready and worker not in turn.busy and turn.waiting:
                name = turn.waiting.popleft()
                turn.busy[worker] = name
                self._ask(turn, worker, turn.requests[name])

    def _ask(self, turn: _Turn, worker: Worker, request: Request) -> None:
        device = {} if worker.lane.device is None else {"device": worker.lane.device}
        try:
            worker.link.send({**request, "scenario": {**request["scenario"], **device}})
        except OSError:
            self._lose(turn, worker)

    def _hear(self, turn: _Turn) -> None:
        """What workers have said since, at least one of them, or after a while none."""
        links = {worker.link.connection: worker for worker in self._workers.values()}
        for connection in wait(list(links), _LOOK):
            self._read(turn, links[connection])  # type: ignore[index]
        for worker in list(self._workers.values()):  # the pipe of one that is dead may be open in its children
            if worker.code() is not None and not worker.link.connection.poll():
                self._lose(turn, worker)

    def _read(self, turn: _Turn, worker: Worker) -> None:
        """Everything that a worker has said."""
        try:
            while worker.link.connection.poll():
                self._take(turn, worker, worker.link.answer())
        except (EOFError, OSError, ValueError):
            if worker.lane.number in self._workers:
                self._lose(turn, worker)

    def _take(self, turn: _Turn, worker: Worker, answer: Answer) -> None:
        lane, kind = worker.lane.number, answer["kind"]
        if kind == "ready":
            worker.is_ready = True
        elif kind == "begins":
            label, facts = turn.requests[turn.busy[worker]]["label"], answer["facts"]
            named: RunFacts = {**facts, "method": label or facts["method"]}
            self._display.begins(lane, named, answer["done"], answer["executor"])
        elif kind == "round":
            self._display.round(lane, answer)
        elif kind == "tell":
            self._display.tell(answer["message"])
        else:
            assert kind in ENDS, f"a worker says '{kind}'"
            name = turn.busy.pop(worker)
            self._free(turn, worker, name, waits=kind == "stopped")
            if kind == "stopped":
                self._stop(turn, turn.signal or signal.SIGTERM)  # somebody has asked this worker alone
                return
            turn.answers[name] = answer
            if kind == "failed" and answer["fault"]["kind"] in ("OSError", "MachineError"):
                self._give_up(turn, raised(answer["fault"]))

    def _free(self, turn: _Turn, worker: Worker, name: str, waits: bool) -> None:
        """Show that a lane has no run any more."""
        if turn.requests[name]["do"] == "train":
            self._display.ends(worker.lane.number, turn.rounds[name], waits)

    def _give_up(self, turn: _Turn, fault: Exception) -> None:
        """End with a fault, after the runs in hand are saved."""
        turn.fault = turn.fault or fault
        self._stop(turn, turn.signal or signal.SIGTERM)

    def _stop(self, turn: _Turn, number: int) -> None:
        """Ask the workers to end after the round in hand; one that has no run is ended at once."""
        turn.signal = number
        for worker in list(self._workers.values()):
            if worker not in turn.busy:
                worker.signal(signal.SIGKILL)
                self._workers.pop(worker.lane.number)
                end_all([worker])
            elif not worker.is_stopping:
                worker.is_stopping = True
                worker.signal(number)

    def _lose(self, turn: _Turn, worker: Worker) -> None:
        """A worker that is gone: its run goes on in another, from its last checkpoint."""
        self._workers.pop(worker.lane.number)
        how, name = worker.end, turn.busy.pop(worker, "")
        end_all([worker])
        if name:
            self._free(turn, worker, name, waits=True)
        if turn.signal is not None:
            return
        turn.losses[name] += 1
        lost = f"worker process {worker.process} {how}"
        if turn.losses[name] >= _LOST_AT_MOST:
            which = f"{name}: " if name else ""
            self._give_up(turn, MachineError(f"{which}{lost}, as {_LOST_AT_MOST - 1} before it; use fewer --jobs"))
            return
        if name:
            turn.waiting.appendleft(name)
            self._display.tell(f"{lost}; {name} goes on from its last checkpoint in another")
        else:
            self._display.tell(f"{lost}; another takes its place")
