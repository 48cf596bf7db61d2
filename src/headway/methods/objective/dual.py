from __future__ import annotations

from typing import TypedDict

from torch import Tensor

from headway.methods.arguments import Rate, Weight, slot
from headway.methods.slots import Client, End, Message, Output, Step
from headway.vectors import Vector


class ClientState(TypedDict):
    h: Vector
    """h_i, its dual variable."""


class Memory(TypedDict):
    pull: Vector
    """−h_i."""


@slot
class dual:
    """f − ⟨h_i, w⟩ + μ/2 ‖w − φ‖² ; h_i ← h_i − αΔ_i, h_i = 0 at first: FedDyn (Acar et al. 2021, Alg. 1).

    h_i, the client's dual variable, has the model's shapes and the sign of a gradient: if θ_i is the minimum, the new
    h_i is ∇f_i(θ_i). μ = α in the paper; the 2021 program of the FedAGM authors has a μ different from α.
    """

    alpha: Rate
    mu: Weight

    adds = True

    def client_state(self, model: Vector) -> ClientState:
        return {"h": model.zeros()}

    def begin(self, received: Message, kept: ClientState, client: Client) -> Memory:
        return {"pull": -1.0 * kept["h"]}

    def value(self, w: Vector, output: Output | None, memory: Memory, step: Step) -> Tensor:
        return 0.5 * self.mu * step.moved(w).square() + w.dot(memory["pull"])

    def slope(self, w: Vector, memory: Memory, step: Step) -> Vector:
        return memory["pull"].plus(self.mu, step.moved(w))

    def finish(self, end: End, memory: Memory, kept: ClientState) -> tuple[dict[str, Vector], ClientState]:
        return {}, {"h": kept["h"] - self.alpha * end.delta}
