from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import slot
from headway.methods.slots import End, State, Step
from headway.vectors import Vector


class ClientState(TypedDict):
    delta: Vector
    """Δ_i^last, or Δ_i^last/η of its round."""


@slot
class delta_changes:
    """w ← w − ηg ; upload Δ_i − Δ_i^last in place of Δ_i ; Δ_i^last ← Δ_i, 0 at first: MIFA's clients.

    Gu et al. 2021, Alg. 1, as Luo et al. 2023 write it (Alg. 6, lines 12–14). A client keeps Δ_i^last, its update of
    the last round it took part in, a vector of the model's shapes. With `rate_ratio` both updates are in units of the
    local rate, Δ_i/η_t, as in MIFA's program.
    """

    rate_ratio: bool = False

    provides = ("upload:change",)
    replaces_delta = True

    def client_state(self, model: Vector) -> ClientState:
        return {"delta": model.zeros()}

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        return gradient, memory

    def finish(self, end: End, memory: State, kept: ClientState) -> tuple[dict[str, Vector], ClientState]:
        delta = end.delta / end.rate if self.rate_ratio else end.delta
        return {"change": delta - kept["delta"]}, {"delta": delta}
