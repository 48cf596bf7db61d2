"""Small user-made slots that ask the most of the hooks: state on clients, extra passes, features, full gradients.

They are written as a user would write them: frozen classes, no registration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headway.methods import further
from headway.methods.broadcast import vector
from headway.methods.catalogue import METHODS
from headway.methods.method import Method
from headway.methods.slots import Client, End, Message, Output, State, Step, Uploads
from headway.vectors import Vector


@dataclass(frozen=True)
class control_step:
    """SCAFFOLD, option II: g − c_i + c ; c_i⁺ = c_i − c − Δ/(Ση)."""

    needs = ("message:control",)
    provides = ("upload:control_change",)

    def client_state(self, model: Vector) -> State:
        return {"c": model.zeros()}

    def begin(self, received: Message, kept: State, client: Client) -> State:
        return {"shift": received["control"] - kept["c"]}

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        return gradient + memory["shift"], memory

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        after = kept["c"] - end.received["control"] - end.delta / end.rate_sum
        return {"control_change": after - kept["c"]}, {"c": after}


@dataclass(frozen=True)
class control_server:
    """c ← c + Σ_S p_i (c_i⁺ − c_i)."""

    adds = True
    needs = ("upload:control_change",)
    provides = ("server:control",)

    def server_state(self, model: Vector, population: int) -> State:
        return {"control": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        return model, {"control": state["control"] + uploads.share * uploads.mean["control_change"]}


@dataclass(frozen=True)
class dual:
    """FedDyn: f − ⟨h_i, w⟩ + α/2 ‖w − φ‖² ; h_i ← h_i − αΔ_i."""

    alpha: float
    adds = True

    def client_state(self, model: Vector) -> State:
        return {"h": model.zeros()}

    def begin(self, received: Message, kept: State, client: Client) -> State:
        return {"h": kept["h"]}

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Tensor:
        away = w - step.received["model"]
        return 0.5 * self.alpha * away.dot(away) - memory["h"].dot(w)

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        return {}, {"h": kept["h"] - self.alpha * end.delta}


@dataclass(frozen=True)
class dual_server:
    """h ← h − α Σ_S p_i Δ_i ; θ ← θ − h/α."""

    alpha: float
    adds = True

    def server_state(self, model: Vector, population: int) -> State:
        return {"h": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        h = state["h"] - self.alpha * uploads.share * uploads.mean["delta"]
        return model - h / self.alpha, {"h": h}


@dataclass(frozen=True)
class contrast:
    """MOON: features of the current model near the received one's, far from the client's last."""

    mu: float
    adds = True
    needs = ("model:stages",)

    def client_state(self, model: Vector) -> State:
        return {"last": model}

    def begin(self, received: Message, kept: State, client: Client) -> State:
        return {"last": kept["last"]}

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Tensor:
        feature = output.stages[-1]
        near = F.cosine_similarity(feature, step.forward(step.received["model"]).stages[-1], dim=1)
        far = F.cosine_similarity(feature, step.forward(memory["last"]).stages[-1], dim=1)
        return self.mu * step.batch.mean(-torch.log_softmax(torch.stack([near, far], 1) / 0.5, 1)[:, 0])

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        return {}, {"last": end.model}


@dataclass(frozen=True)
class server_statistics:
    """MimeLite: (1−β)g + βm with m fixed ; uploads ∇f_i(φ) over the client's whole data."""

    beta: float
    needs = ("message:statistics", "model:full_gradient")
    provides = ("upload:full_gradient",)

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        return (1 - self.beta) * gradient + self.beta * step.received["statistics"], memory

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        return {"full_gradient": end.full_grad_at(end.received["model"])}, {}


@dataclass(frozen=True)
class statistics_server:
    beta: float
    adds = True
    needs = ("upload:full_gradient",)
    provides = ("server:statistics",)

    def server_state(self, model: Vector, population: int) -> State:
        return {"statistics": model.zeros()}

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        m = self.beta * state["statistics"] + (1 - self.beta) * uploads.mean["full_gradient"]
        return model, {"statistics": m}


@dataclass(frozen=True)
class remembered_gradients:
    """GradMA-W's three rows on one batch, with a simpler rule: against each row the gradient is made non-negative."""

    def client_state(self, model: Vector) -> State:
        return {"last": model}

    def begin(self, received: Message, kept: State, client: Client) -> State:
        return {"before": kept["last"]}

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        start = step.received["model"]
        for row in (step.grad_at(memory["before"]), step.grad_at(start), w - start):
            against = (-gradient.dot(row)).clamp(min=0) / row.dot(row).clamp(min=1e-12)
            gradient = gradient + row * against
        return gradient, {"before": w}

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        return {}, {"last": end.model}


@dataclass(frozen=True)
class every_upload:
    """A server that must see each upload: θ ← θ + the coordinate-wise median."""

    needs_each = True

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        assert uploads.each is not None
        rows = [fields["delta"].flat() for fields in uploads.each]
        return model + model.unflat(torch.stack(rows).median(0).values), state


DEMANDING: dict[str, Any] = {
    "scaffold": Method(
        broadcast=vector("control"), local=control_step(), server=control_server(), name="scaffold under test"
    ),
    "feddyn": Method(objective=dual(0.1), server=dual_server(0.1), name="feddyn under test"),
    "moon": Method(objective=contrast(1.0), name="moon under test"),
    "mimelite": Method(
        broadcast=vector("statistics"),
        local=server_statistics(0.5),
        server=statistics_server(0.5),
        name="mime under test",
    ),
    "gradma-w": Method(local=remembered_gradients(), name="gradma under test"),
    "median": Method(server=every_upload(), name="median under test"),
}

PROGRAMS: dict[str, dict[str, Any]] = {
    "mifa:rate_ratio=true": {},
    "mifa:rate_ratio=true,wait=true": {"participation": 1.0},
    "feddc:program=true": {},
}
"""Options that change what a method keeps or sends, and the settings with which they do something in a few rounds."""

FORMS = {name: f"{name}:eps=0.001" for name in ("local-adamw", "local-muon", "diloco", "snoo")}
"""Methods that step by Adam, as they are compared with themselves: where a gradient is 0 but for rounding, as that of a
bias before BatchNorm is, a smaller ε would make a whole step of the rounding."""

EVERY: dict[str, Any] = {
    **{name: FORMS.get(name, name) for name in (*METHODS, *PROGRAMS)},
    **{f"own {name}": own for name, own in DEMANDING.items()},
}
"""The catalogue's methods and these, by name."""

FURTHER = frozenset(build.__name__.replace("_", "-") for family in further.FAMILIES.values() for build in family)
"""The further methods, which choose slots in other ways or add one value to those of the others."""
SAMPLE = frozenset({"fedinit", "fedexp", "fedac", "ghbm", "scaffnew", "fedspeed"})
"""Of these one for each hook and form of state that no other method has."""


def sampled(names: Iterable[str]) -> list[Any]:
    """The names for a product of all methods with executors, networks or whole runs, which takes long.

    All further methods are in it; those beyond the sample only in `make soak`. What a product is for is then seen, in
    `make test`, for every method on which it depends, and each further method is in the contracts, in one product with
    the executors, and beside its reference program.
    """
    return [pytest.param(name, marks=pytest.mark.soak) if name in FURTHER - SAMPLE else name for name in names]
