from __future__ import annotations

from typing import Annotated, TypedDict

from headway.methods.arguments import Within, slot
from headway.methods.slots import Client, End, Message, Step
from headway.vectors import Vector


class ClientState(TypedDict):
    c: Vector
    """c_i, its control variate."""


class Memory(TypedDict):
    shift: Vector
    """c − c_i."""
    sum: Vector
    """Σ_k η_k g_k."""


@slot
class controlled_momentum:
    """w ← w − η(β(g − c_i + c) + (1−β)D) ; c_i⁺ = Σ_kη_kg_k/Σ_kη_k, c_i = 0 at first: SCAFFOLD-M's clients.

    Cheng et al. 2024, Alg. 2. D, the received mean direction of the last round, c and c_i have the model's shapes and
    the sign of a gradient. c_i⁺ is the mean of the round's own gradients: for β < 1 SCAFFOLD's formula, which takes it
    from Δ_i, would be that of another direction. Uploads c_i⁺ − c_i as `control`.
    """

    beta: Annotated[float, Within(0, 1, open_left=True)]

    needs = ("message:control", "message:direction", "local:gradient_steps")
    provides = ("upload:control",)

    def client_state(self, model: Vector) -> ClientState:
        return {"c": model.zeros()}

    def begin(self, received: Message, kept: ClientState, client: Client) -> Memory:
        return {"shift": received["control"] - kept["c"], "sum": received["model"].zeros()}

    def direction(self, w: Vector, gradient: Vector, memory: Memory, step: Step) -> tuple[Vector, Memory]:
        corrected = self.beta * (gradient + memory["shift"]) + (1 - self.beta) * step.received["direction"]
        return corrected, {"shift": memory["shift"], "sum": memory["sum"].plus(step.rate, gradient)}

    def finish(self, end: End, memory: Memory, kept: ClientState) -> tuple[dict[str, Vector], ClientState]:
        control = memory["sum"] / end.rate_sum
        return {"control": control - kept["c"]}, {"c": control}
