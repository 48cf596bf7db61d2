"""The server's half of methods whose clients keep control variates, duals, directions or velocities.

Each is an addition: a base moves the model first. Σ_S p_i x_i is written `uploads.share * uploads.mean["x"]`, with p_i
the client's weight among all N (1/N under uniform weights).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from headway.methods.arguments import Momentum, Rate, slot
from headway.methods.slots import End, Fields, State, Uploads
from headway.vectors import Vector


@slot
class control_mean:
    """c ← c + Σ_S p_i (c_i⁺ − c_i), c = 0 at first: SCAFFOLD's and FedDC's server (Karimireddy et al. 2020, Alg. 1)."""

    adds = True
    needs = ("upload:control",)
    provides = ("server:control",)

    def server_state(self, model: Vector, population: int) -> State:
        return {"control": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        return model, {"control": state["control"] + uploads.share * uploads.mean["control"]}


@slot
class dual_mean:
    """h ← h − α Σ_S p_i Δ_i ; θ ← θ − h/α, h = 0 at first: FedDyn's server (Acar et al. 2021, Alg. 1)."""

    alpha: Rate

    adds = True
    needs = ("upload:delta",)

    def server_state(self, model: Vector, population: int) -> State:
        return {"h": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        h = state["h"] - self.alpha * uploads.share * uploads.mean["delta"]
        return model - h / self.alpha, {"h": h}


@slot
class drift_mean:
    """h̄ ← h̄ + Σ_S p_i Δ_i ; θ ← θ + h̄: the mean drift of all N clients, absent ones included (FedDC, Gao et al. 2022).

    h̄ = Σ_N p_i h_i follows from h_i ← h_i + Δ_i, so no drift is uploaded. A mean over S only would diverge.
    """

    adds = True
    needs = ("upload:delta",)

    def server_state(self, model: Vector, population: int) -> State:
        return {"drift": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        drift = state["drift"] + uploads.share * uploads.mean["delta"]
        return model + drift, {"drift": drift}


@slot
class direction_mean:
    """D ← −Σ ω_i Δ_i/(Σ_k η_k), D = 0 at first: the mean direction of a step, for FedCM (Xu et al. 2021, Alg. 2)."""

    adds = True
    provides = ("server:direction",)

    def server_state(self, model: Vector, population: int) -> State:
        return {"direction": model.zeros()}

    def derive(self, fields: Fields, end: End) -> dict[str, Vector]:
        return {"direction": -fields["delta"] / end.rate_sum}

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        return model, {"direction": uploads.mean["direction"]}


@slot
class velocity_mean:
    """v ← Σ ω_i v_i, v = 0 at first: FedNAG's server (Yang et al. 2022, Eq. 4)."""

    adds = True
    needs = ("upload:velocity",)
    provides = ("server:velocity",)
    keeps_best = True
    suggests: ClassVar[dict[str, float]] = {"participation": 1.0}

    def server_state(self, model: Vector, population: int) -> State:
        return {"velocity": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        return model, {"velocity": uploads.mean["velocity"]}


@slot
class statistics_mean:
    """m ← βm + (1−β) Σ ω_i ∇f_i(φ), m = 0 at first: MimeLite's server (Karimireddy et al. 2021, Alg. 1)."""

    momentum: Momentum

    adds = True
    needs = ("upload:gradient",)
    provides = ("server:statistics",)

    def server_state(self, model: Vector, population: int) -> State:
        return {"statistics": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        fresh = (1 - self.momentum) * uploads.mean["gradient"]
        return model, {"statistics": self.momentum * state["statistics"] + fresh}


@slot
class latest_mean:
    """G ← G + Σ_S p_i (Δ_i − Δ_i^last), G = 0 at first, and the base sees G as its Δ: MIFA (Gu et al. 2021).

    Written as in Luo et al. 2023, Alg. 6, line 17.

    G is the mean over all N of everybody's latest update, absent clients included. MIFA's program has two things more:
    with `rate_ratio` updates come in units of the local rate, and G counts times the round's own; with `wait` θ stays
    until every client was seen, and moves from the round after.
    """

    rate_ratio: bool = False
    wait: bool = False

    adds = True
    needs = ("upload:change",)

    def server_state(self, model: Vector, population: int) -> State:
        state: State = {"latest": model.zeros()}
        return {**state, "seen": torch.zeros(population, dtype=torch.bool)} if self.wait else state

    def prepare(self, uploads: Uploads, state: State) -> tuple[Uploads, State]:
        latest = state["latest"] + uploads.share * uploads.mean["change"]
        delta = uploads.rate * latest if self.rate_ratio else latest
        after = {**state, "latest": latest}
        if self.wait:
            delta = delta if bool(state["seen"].all()) else delta.zeros()
            after["seen"] = state["seen"].index_fill(0, torch.tensor(uploads.clients), True)
        return dataclasses.replace(uploads, mean={**uploads.mean, "delta": delta}), after

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        return model, state

    def measures(self, state: State) -> dict[str, Tensor]:
        """With `wait`, how many clients were not seen yet."""
        return {"clients_unseen": (~state["seen"]).sum()} if self.wait else {}
