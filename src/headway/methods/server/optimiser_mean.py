from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from headway.methods.arguments import slot
from headway.methods.slots import State, Uploads
from headway.vectors import Vector


class Averaged(Protocol):
    """An optimiser whose memory is averaged."""

    @property
    def averaged(self) -> tuple[str, ...]: ...
    def optimiser_state(self, model: Vector, /) -> State: ...


@slot
class optimiser_mean:
    """s ← Σ_S ω_i s_i of each part s of the clients' optimiser memory, which clients begin their next round with.

    For an optimiser with `state="average"`. The parts, such as a momentum, have the shapes and signs that they have
    there, and begin as it does. A round in which nothing arrives leaves them as they are.
    """

    optimiser: Averaged

    adds = True

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(f"upload:{name}" for name in self.optimiser.averaged)

    @property
    def provides(self) -> tuple[str, ...]:
        return tuple(f"server:{name}" for name in self.optimiser.averaged)

    def for_model(self, roles: Mapping[str, str]) -> optimiser_mean:
        bind = getattr(self.optimiser, "for_model", None)
        return dataclasses.replace(self, optimiser=bind(roles)) if bind else self

    def server_state(self, model: Vector, population: int) -> State:
        return self.optimiser.optimiser_state(model)

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        return model, {name: uploads.mean[name] for name in self.optimiser.averaged}
