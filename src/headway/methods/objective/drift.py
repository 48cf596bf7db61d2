from __future__ import annotations

from torch import Tensor

from headway.methods.arguments import Rate, slot
from headway.methods.slots import Client, End, Message, Output, State, Step
from headway.vectors import Vector


@slot
class drift:
    """+ α/2 ‖w + h_i − φ‖² + ⟨w, c − c_i⟩ ; h_i ← h_i + Δ_i ; c_i ← c_i − c − Δ_i/(Σ_k η_k): FedDC (Gao et al. 2022).

    h_i is the client's drift, c_i and c are control variates as in SCAFFOLD; all are 0 at first. Uploads c_i⁺ − c_i.
    """

    alpha: Rate

    adds = True
    needs = ("message:control",)
    provides = ("upload:control",)

    def client_state(self, model: Vector) -> State:
        return {"h": model.zeros(), "c": model.zeros()}

    def begin(self, received: Message, kept: State, client: Client) -> State:
        return {"anchor": received["model"] - kept["h"], "shift": received["control"] - kept["c"]}

    def value(self, w: Vector, output: Output | None, memory: State, step: Step) -> Tensor:
        anchor: Vector = memory["anchor"]
        return 0.5 * self.alpha * (w - anchor).square() + w.dot(memory["shift"])

    def slope(self, w: Vector, memory: State, step: Step) -> Vector:
        anchor: Vector = memory["anchor"]
        shift: Vector = memory["shift"]
        return (w - anchor) * self.alpha + shift

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        control = kept["c"] - end.received["control"] + end.mean_direction
        return {"control": control - kept["c"]}, {"h": kept["h"] + end.delta, "c": control}
