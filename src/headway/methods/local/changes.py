from __future__ import annotations

from headway.methods.arguments import slot
from headway.methods.slots import End, State, Step
from headway.vectors import Vector


@slot
class changes:
    """SGD that uploads Δ_i − (its Δ_i of the last time), in place of Δ_i: MIFA's clients.

    Gu et al. 2021, written as in Luo et al. 2023, Alg. 6, lines 12–14.

    With `rate_ratio` both are in units of the local rate, Δ_i/η_t, as in MIFA's program.
    """

    rate_ratio: bool = False

    provides = ("upload:change",)
    replaces_delta = True

    def client_state(self, model: Vector) -> State:
        return {"delta": model.zeros()}

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        return gradient, memory

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        delta = end.delta / end.rate if self.rate_ratio else end.delta
        return {"change": delta - kept["delta"]}, {"delta": delta}
