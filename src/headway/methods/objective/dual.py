from __future__ import annotations

from torch import Tensor

from headway.methods.arguments import Rate, Weight, slot
from headway.methods.slots import Client, End, Message, Output, State, Step
from headway.vectors import Vector


@slot
class dual:
    """f − ⟨h_i, w⟩ + μ/2 ‖w − φ‖² ; h_i ← h_i − αΔ_i, h_i = 0 at first: FedDyn (Acar et al. 2021, Alg. 1).

    h_i, the client's dual variable, has the model's shapes and the sign of a gradient: if θ_i is the minimum, the new
    h_i is ∇f_i(θ_i). μ = α in the paper; the 2021 program of the FedAGM authors has a μ different from α.
    """

    alpha: Rate
    mu: Weight

    adds = True

    def client_state(self, model: Vector) -> State:
        return {"h": model.zeros()}

    def begin(self, received: Message, kept: State, client: Client) -> State:
        return {"pull": -1.0 * kept["h"]}

    def value(self, w: Vector, output: Output | None, memory: State, step: Step) -> Tensor:
        return 0.5 * self.mu * step.moved(w).square() + w.dot(memory["pull"])

    def slope(self, w: Vector, memory: State, step: Step) -> Vector:
        pull: Vector = memory["pull"]
        return pull.plus(self.mu, step.moved(w))

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        return {}, {"h": kept["h"] - self.alpha * end.delta}
