from __future__ import annotations

import dataclasses
from typing import NotRequired, TypedDict

import torch
from torch import Tensor

from headway.methods.arguments import slot
from headway.methods.slots import Uploads
from headway.vectors import Vector


class ServerState(TypedDict):
    latest: Vector
    """G."""
    seen: NotRequired[Tensor]
    """Shape (N,), with `wait`: who took part so far."""


@slot
class latest_update_mean:
    """G ← G + Σ_S p_i (Δ_i − Δ_i^last), G = 0 at first; the base moves the model by G in place of Δ: MIFA's server.

    Gu et al. 2021, Alg. 1; Luo et al. 2023, Alg. 6, line 17. G = Σ_N p_i Δ_i^latest is the mean over all N clients of
    their latest updates, absent ones included, of the model's shapes. The uploads `change` are Δ_i − Δ_i^last.

    MIFA's program does two things more. With `rate_ratio` updates are in units of the local rate, and G is multiplied
    by the rate of the round. With `wait` θ stays as it is until every client was seen, and moves from the next round.
    """

    rate_ratio: bool = False
    wait: bool = False

    adds = True
    mirrors_clients = True
    needs = ("upload:change",)

    @property
    def needs_clients(self) -> bool:
        return self.wait

    def server_state(self, model: Vector, population: int) -> ServerState:
        state: ServerState = {"latest": model.zeros()}
        return {**state, "seen": torch.zeros(population, dtype=torch.bool)} if self.wait else state

    def prepare(self, uploads: Uploads, state: ServerState) -> tuple[Uploads, ServerState]:
        latest = state["latest"] + uploads.share * uploads.mean["change"]
        delta = uploads.rate * latest if self.rate_ratio else latest
        after: ServerState = {**state, "latest": latest}
        if self.wait:
            delta = delta if bool(state["seen"].all()) else delta.zeros()
            after["seen"] = state["seen"].index_fill(0, torch.tensor(uploads.clients), True)
        return dataclasses.replace(uploads, mean={**uploads.mean, "delta": delta}), after

    def update(self, model: Vector, uploads: Uploads, state: ServerState) -> tuple[Vector, ServerState]:
        return model, state

    def measures(self, state: ServerState) -> dict[str, Tensor]:
        """With `wait`, how many clients were not seen yet."""
        return {"clients_unseen": (~state["seen"]).sum()} if self.wait else {}
