from __future__ import annotations

from headway.methods.arguments import Momentum, slot
from headway.methods.slots import End, State, Step
from headway.vectors import Vector


@slot
class steered:
    """(1−β)g + βm, m broadcast and fixed during the round: MimeLite with momentum (Karimireddy et al. 2021, Alg. 1).

    Uploads ∇f_i(φ) on the client's whole data, from which the server makes the next m.
    """

    momentum: Momentum

    needs = ("message:statistics", "model:full_gradient")
    provides = ("upload:gradient",)

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        return (1 - self.momentum) * gradient + self.momentum * step.received["statistics"], memory

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        return {"gradient": end.full_grad_at(end.received["model"])}, {}
