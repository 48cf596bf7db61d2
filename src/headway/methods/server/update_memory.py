from __future__ import annotations

from typing import Annotated, TypedDict

import torch
from torch import Tensor

from headway.errors import UserError
from headway.methods.arguments import Among, Momentum, Rate, Within, slot
from headway.methods.projection import by_tensor, joined, project_rows
from headway.methods.slots import Uploads
from headway.vectors import Vector


class Counters(TypedDict):
    clients: Tensor
    """Shape (rows,): whose update each row is; −1 where it is free."""
    counts: Tensor
    """Shape (rows,): in how many rounds this client took part since it has the row."""
    stored: Tensor
    """Shape (rows,): the clock when it got the row."""
    clock: Tensor
    """How many clients were given a row so far."""


class ServerState(Counters):
    momentum: Vector
    """m̃."""
    rows: Vector
    """D: leaves have a leading axis of rows."""
    correction: Tensor
    """‖m̃ − m‖/‖m‖ of the last round."""


@slot
class update_memory:
    """m ← β₁m̃ − Δ ; D[i] ← β₂D[i] − Δ_i ; m̃ ← QP(m; D) ; θ ← θ − η_g m̃: GradMA-S (Luo et al. 2023, Alg. 3, 4 and 8).

    QP (`projection`) moves m to the nearest point that has no negative product with a row of D. m and the rows have
    the model's shapes and, unlike Δ, the sign of a gradient; m̃ = 0 and D = 0 at first.

    D remembers the updates of at most `memory` clients, one row each. Who stays is Alg. 4: a client that has no row in
    a full memory takes that of a client which is not in this round and was seen least often (of equals, the one stored
    first). A memory of 0 is FedAvgM; one smaller than a round's clients is refused. The rows are changed in place, so
    that there is never a second memory. `scope`: one program for the whole `model`, or one for each `tensor`.
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

    def server_state(self, model: Vector, population: int) -> ServerState:
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

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        assert uploads.each is not None
        m = self.momentum * state["momentum"] - uploads.mean["delta"]
        counters, places, fresh = _assign_rows(state, uploads.clients)
        rows = state["rows"]
        for leaf in rows.leaves.values():
            leaf.mul_(self.memory_decay)
        for place, new, fields in zip(places, fresh, uploads.each, strict=True):
            for name, leaf in rows.leaves.items():
                if new:
                    leaf[place] = -fields["delta"].leaves[name]
                elif place is not None:
                    leaf[place] -= fields["delta"].leaves[name]
        corrected = self._projected(m, rows, int((counters["clients"] >= 0).sum()))
        relative = (corrected - m).norm() / m.norm().clamp(min=1e-30)
        after: ServerState = {**counters, "momentum": corrected, "rows": rows, "correction": relative.double().cpu()}
        return model - self.server_rate * corrected, after

    def _projected(self, m: Vector, rows: Vector, count: int) -> Vector:
        if self.scope == "model":
            return project_rows(m, rows, count)
        return joined([project_rows(one, part, count) for one, part in zip(by_tensor(m), by_tensor(rows), strict=True)])

    def heading(self, model: Vector, state: ServerState) -> Vector:
        return -state["momentum"]

    def measures(self, state: ServerState) -> dict[str, Tensor]:
        """‖m̃ − m‖/‖m‖ of this round: how far the rows moved the momentum."""
        return {"server_correction": state["correction"]}


def _assign_rows(state: Counters, cohort: tuple[int, ...]) -> tuple[Counters, list[int | None], list[bool]]:
    """Luo et al. 2023, Alg. 4: counters after this cohort, the row of each client (None without memory), who is new."""
    clients, counts, stored = state["clients"].tolist(), state["counts"].tolist(), state["stored"].tolist()
    clock = int(state["clock"])
    places: list[int | None] = []
    fresh: list[bool] = []
    for client in cohort:
        new = client not in clients
        if new and clients:
            place = clients.index(-1) if -1 in clients else _row_to_replace(clients, counts, stored, cohort)
            clients[place], counts[place], stored[place] = client, 0, clock
            clock += 1
        known = client in clients
        if known:
            counts[clients.index(client)] += 1
        places.append(clients.index(client) if known else None)
        fresh.append(new and known)
    counters: Counters = {
        "clients": torch.tensor(clients, dtype=torch.int64),
        "counts": torch.tensor(counts, dtype=torch.int64),
        "stored": torch.tensor(stored, dtype=torch.int64),
        "clock": torch.tensor(clock),
    }
    return counters, places, fresh


def _row_to_replace(clients: list[int], counts: list[int], stored: list[int], cohort: tuple[int, ...]) -> int:
    """The row of the client not in this round that was seen least often; of equals, the one stored first."""
    absent = [place for place, client in enumerate(clients) if client not in cohort]
    return min(absent, key=lambda place: (counts[place], stored[place]))
