from __future__ import annotations

from typing import NotRequired, TypedDict

from torch import Tensor

from headway.methods.arguments import Rate, slot
from headway.methods.slots import Client, End, Message, Output, Step
from headway.vectors import Vector


class ClientState(TypedDict):
    h: Vector
    """h_i, its drift."""
    c: Vector
    """c_i, its control variate."""


class Memory(TypedDict):
    anchor: Vector
    """φ − h_i."""
    shift: Vector
    """c − c_i."""
    alpha: NotRequired[Tensor]
    """α/u_i, with `program`."""


@slot
class drift:
    """f + α/2 ‖w + h_i − φ‖² + ⟨w, c − c_i⟩ ; h_i ← h_i + Δ_i ; c_i ← c_i − c − Δ_i/(Σ_k η_k): FedDC (Gao et al. 2022).

    h_i is the client's drift, with the sign of an update; c_i (the client's) and c (received) are control variates as
    in SCAFFOLD, with the sign of a gradient. All have the model's shapes and are 0 at first. Uploads c_i⁺ − c_i.

    With `program` α and c are divided by u_i = n_i/n̄, the client's size over the mean size, as in FedDC's program.
    There c is the mean of all c_i by size, so the upload is multiplied by u_i/(N·p_i).
    """

    alpha: Rate
    program: bool = False

    adds = True
    needs = ("message:control", "local:mean_direction")
    provides = ("upload:control",)

    def client_state(self, model: Vector) -> ClientState:
        return {"h": model.zeros(), "c": model.zeros()}

    def begin(self, received: Message, kept: ClientState, client: Client) -> Memory:
        anchor = received["model"] - kept["h"]
        if not self.program:
            return {"anchor": anchor, "shift": received["control"] - kept["c"]}
        size = _relative_size(client)
        return {"anchor": anchor, "shift": received["control"] / size - kept["c"], "alpha": self.alpha / size}

    def value(self, w: Vector, output: Output | None, memory: Memory, step: Step) -> Tensor:
        alpha = memory.get("alpha", self.alpha)
        return 0.5 * alpha * (w - memory["anchor"]).square() + w.dot(memory["shift"])

    def slope(self, w: Vector, memory: Memory, step: Step) -> Vector:
        return (w - memory["anchor"]) * memory.get("alpha", self.alpha) + memory["shift"]

    def finish(self, end: End, memory: Memory, kept: ClientState) -> tuple[dict[str, Vector], ClientState]:
        drift = kept["h"] + end.delta
        if not self.program:
            control = kept["c"] - end.received["control"] + end.mean_direction
            return {"control": control - kept["c"]}, {"h": drift, "c": control}
        size = _relative_size(end.client)
        control = kept["c"] - end.received["control"] / size + end.mean_direction
        by_size = size / (end.client.population * end.client.share)
        return {"control": (control - kept["c"]) * by_size}, {"h": drift, "c": control}


def _relative_size(client: Client) -> Tensor:
    """u_i = n_i/n̄."""
    return client.size.to(client.share.dtype) / client.mean_size
