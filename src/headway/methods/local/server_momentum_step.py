from __future__ import annotations

from headway.methods.arguments import Momentum, slot
from headway.methods.slots import End, State, Step
from headway.vectors import Vector


@slot
class server_momentum_step:
    """w ← w − η((1−β)g + βm), m the server's momentum, fixed during the round: MimeLite's clients.

    Karimireddy et al. 2021, Alg. 1. m, received as `statistics`, has the model's shapes and the sign of a gradient.
    Uploads ∇f_i(φ) over the client's whole data, from which the server (`gradient_momentum`) makes the next m.
    """

    momentum: Momentum

    needs = ("message:statistics", "model:full_gradient")
    provides = ("upload:gradient",)

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        return (1 - self.momentum) * gradient + self.momentum * step.received["statistics"], memory

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        return {"gradient": end.full_grad_at(end.received["model"])}, {}
