"""GradMA-W, GradMA-S and GradMA (Luo et al. 2023, Alg. 1-4, 7, 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from reference.cone import nearest_by_tensor, nearest_in_cone
from reference.problem import Array, Problem, Trace

Correction = Callable[[Array, Sequence[Array]], Array]


def correction(tensors: Sequence[slice] | None) -> Correction:
    """QP(p; M) on the whole model, or for each tensor alone."""
    if tensors is None:
        return nearest_in_cone
    return lambda p, rows: nearest_by_tensor(p, rows, tensors)


def worker_update(problem: Problem, t: int, client: int, last: Array, x: Array, qp: Correction) -> Array:
    """Alg. 2: g̃ = QP(∇f(x_τ); [∇f(x_{τ−1}), ∇f(x), x_τ − x]) on one batch ; x_{τ+1} = x_τ − ηg̃ ; x_{−1} = last."""
    before = {"previous": last}

    def rule(w: Array, g: Array, rows: Array, rate: float) -> Array:
        memory = [problem.gradient(before["previous"], rows), problem.gradient(x, rows), w - x]
        before["previous"] = w
        return qp(g, memory)

    return problem.descend(t, client, x, rule=rule)


class Memory:
    """The server's rows D and counters c under Alg. 4; D keeps the order in which clients were stored."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.rows: dict[int, Array | None] = {}
        self.counter: dict[int, int] = {}
        self.new: set[int] = set()
        self.evicted: list[int] = []

    def reduce(self, cohort: Sequence[int]) -> None:
        """Alg. 4: room for the cohort. The smallest counter outside it goes; of equal ones the earliest stored."""
        self.new = set()
        for i in cohort:
            if i not in self.rows:
                if len(self.rows) == self.room:
                    old = [k for k in self.rows if k not in cohort]
                    smallest = min(self.counter[k] for k in old)
                    gone = next(k for k in old if self.counter[k] == smallest)
                    del self.rows[gone]
                    self.counter[gone] = 0
                    self.evicted.append(gone)
                self.rows[i] = None
                self.new.add(i)
            self.counter[i] = self.counter.get(i, 0) + 1

    def absorb(self, updates: dict[int, Array], decay: float) -> None:
        """Alg. 3, lines 2-8: D[i] ← β₂D[i] + d_i in the cohort (d_i where new), β₂D[i] elsewhere."""
        for i, row in self.rows.items():
            if i in self.new:
                self.rows[i] = updates[i]
            else:
                assert row is not None
                self.rows[i] = decay * row + updates[i] if i in updates else decay * row

    def matrix(self) -> list[Array]:
        return [row for row in self.rows.values() if row is not None]


def before_first(previous: str, own: Array | None, start: Array, received: Array) -> Array:
    """x_{−1}: `last` the client's own last model, at first θ⁰ (Alg. 1, line 2).

    `last-or-received`: at first x_t, as in the GradMA-W of the authors' program of 2023; `received`: always x_t, as in
    its GradMA.
    """
    if previous == "received" or (own is None and previous == "last-or-received"):
        return received
    return start if own is None else own


def gradma_w(
    problem: Problem, server_rate: float = 1.0, tensors: Sequence[slice] | None = None, previous: str = "last"
) -> Trace:
    """Alg. 7: worker update that begins with x_{−1} ; x ← x − η_gΣω_id_i."""
    theta, trace = problem.start, []
    last: dict[int, Array] = {}
    for t, cohort in problem.rounds():
        for i in cohort:
            earlier = before_first(previous, last.get(i), problem.start, theta)
            last[i] = worker_update(problem, t, i, earlier, theta, correction(tensors))
        theta = theta - server_rate * problem.mean({i: theta - last[i] for i in cohort})
        trace.append({"theta": theta})
    return trace


def gradma_s(
    problem: Problem,
    momentum: float,
    memory_decay: float,
    memory: int,
    server_rate: float = 1.0,
    tensors: Sequence[slice] | None = None,
    workers: str | None = None,
) -> Trace:
    """Alg. 8: m = β₁m̃ + d ; D by Eq. 7 and Alg. 4 ; m̃ = QP(m; D) ; x ← x − η_g m̃. m = 0: no memory.

    `workers`: where the clients' update of Alg. 2 begins, for Alg. 1; None: SGD.
    """
    theta, trace = problem.start, []
    projected = np.zeros_like(theta)
    last: dict[int, Array] = {}
    room = Memory(memory)
    qp = correction(tensors)
    for t, cohort in problem.rounds():
        if memory:
            room.reduce(cohort)
        for i in cohort:
            if workers is None:
                last[i] = problem.descend(t, i, theta)
            else:
                earlier = before_first(workers, last.get(i), problem.start, theta)
                last[i] = worker_update(problem, t, i, earlier, theta, qp)
        updates = {i: theta - last[i] for i in cohort}
        m = momentum * projected + problem.mean(updates)
        if memory:
            room.absorb(updates, memory_decay)
        projected = qp(m, room.matrix())
        theta = theta - server_rate * projected
        stored = np.array([[i, room.counter[i]] for i in sorted(room.rows)]).reshape(-1, 2)
        rows = np.array([room.rows[i] for i in sorted(room.rows)]).reshape(-1, len(theta))
        trace.append({"theta": theta, "m": projected, "stored": stored, "D": rows})
    return trace


def gradma(
    problem: Problem,
    momentum: float,
    memory_decay: float,
    memory: int,
    server_rate: float = 1.0,
    tensors: Sequence[slice] | None = None,
    previous: str = "last",
) -> Trace:
    """Alg. 1: the worker side of GradMA-W and the server side of GradMA-S."""
    return gradma_s(problem, momentum, memory_decay, memory, server_rate, tensors, workers=previous)
