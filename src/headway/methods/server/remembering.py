from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from headway.errors import UserError
from headway.methods.arguments import Among, Momentum, Rate, Within, slot
from headway.methods.projection import by_tensor, joined, project_rows
from headway.methods.slots import State, Uploads
from headway.vectors import Vector


@slot
class remembering:
    """d = −Δ ; m ← β₁m̃ + d ; D[i] ← β₂D[i] + d_i ; m̃ ← QP(m; D) ; θ ← θ − η_g m̃: GradMA-S.

    Luo et al. 2023, Alg. 3, 4 and 8.

    D holds the accumulated updates of at most `memory` clients. Who stays is Alg. 4: a newcomer to a full memory
    replaces, among the clients not in this round, the one seen least often (the earliest stored of equals). A memory
    of 0 is FedAvgM; one smaller than a cohort cannot work. Rows are changed in place: there is never a second memory.
    """

    momentum: Momentum
    memory_decay: Momentum
    memory: Annotated[int, Within(0)]
    server_rate: Rate = 1.0
    scope: Annotated[str, Among("model", "tensor")] = "model"

    needs_each = True
    needs = ("upload:delta",)
    owns = ("rows",)

    def fits(self, population: int, cohort: int) -> None:
        if 0 < self.memory < cohort:
            raise UserError(
                f"memory is {self.memory}, less than the {cohort} clients of a round; use 0 or at least {cohort}"
            )

    def server_state(self, model: Vector, population: int) -> State:
        size = min(self.memory, population)
        empty = torch.full((size,), -1, dtype=torch.int64)
        return {
            "momentum": model.zeros(),
            "rows": model.map(lambda leaf: leaf.new_zeros((size, *leaf.shape))),
            "clients": empty,
            "counts": torch.zeros_like(empty),
            "stored": torch.zeros_like(empty),
            "clock": torch.zeros((), dtype=torch.int64),
            "correction": torch.zeros((), dtype=torch.float64),
        }

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        assert uploads.each is not None
        m = self.momentum * state["momentum"] - uploads.mean["delta"]
        book, places, fresh = _reduced(state, uploads.clients)
        rows = state["rows"]
        for leaf in rows.leaves.values():
            leaf.mul_(self.memory_decay)
        for place, new, fields in zip(places, fresh, uploads.each, strict=True):
            for name, leaf in rows.leaves.items():
                if new:
                    leaf[place] = -fields["delta"].leaves[name]
                elif place is not None:
                    leaf[place] -= fields["delta"].leaves[name]
        corrected = self._projected(m, rows, int((book["clients"] >= 0).sum()))
        relative = (corrected - m).norm() / m.norm().clamp(min=1e-30)
        after = {**book, "momentum": corrected, "rows": rows, "correction": relative.double().cpu()}
        return model - self.server_rate * corrected, after

    def _projected(self, m: Vector, rows: Vector, count: int) -> Vector:
        if self.scope == "model":
            return project_rows(m, rows, count)
        return joined([project_rows(one, part, count) for one, part in zip(by_tensor(m), by_tensor(rows), strict=True)])

    def measures(self, state: State) -> dict[str, Tensor]:
        """‖m̃ − m‖/‖m‖ of this round."""
        return {"server_correction": state["correction"]}


def _reduced(state: State, cohort: tuple[int, ...]) -> tuple[dict[str, Any], list[int | None], list[bool]]:
    """Alg. 4: the counters after the cohort, each client's row (None without memory), and who is new to it."""
    clients, counts, stored = (state[name].tolist() for name in ("clients", "counts", "stored"))
    clock = int(state["clock"])
    places: list[int | None] = []
    fresh: list[bool] = []
    for client in cohort:
        new = client not in clients
        if new and clients:
            place = clients.index(-1) if -1 in clients else _evicted(clients, counts, stored, cohort)
            clients[place], counts[place], stored[place] = client, 0, clock
            clock += 1
        known = client in clients
        if known:
            counts[clients.index(client)] += 1
        places.append(clients.index(client) if known else None)
        fresh.append(new and known)
    numbers = {"clients": clients, "counts": counts, "stored": stored}
    book: dict[str, Any] = {name: torch.tensor(values, dtype=torch.int64) for name, values in numbers.items()}
    return {**book, "clock": torch.tensor(clock)}, places, fresh


def _evicted(clients: list[int], counts: list[int], stored: list[int], cohort: tuple[int, ...]) -> int:
    """The row to give up: of a client not in this round, seen least often, stored earliest."""
    absent = [place for place, client in enumerate(clients) if client not in cohort]
    return min(absent, key=lambda place: (counts[place], stored[place]))
