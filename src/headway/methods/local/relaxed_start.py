from __future__ import annotations

from typing import TypedDict

from headway.methods.arguments import Weight, slot
from headway.methods.slots import Client, End, Message
from headway.vectors import Vector


class ClientState(TypedDict):
    last: Vector
    """The model with which it ended its last round."""


@slot
class relaxed_start:
    """w₀ = φ + β(φ − θ_i^last), θ_i^last = θ⁰ at first: FedInit's start (Sun et al. 2023, Alg. 1).

    A client begins on the other side of the received model from where it ended its last round, which makes up for a
    part of its drift. θ_i^last has the model's shapes and stays with the client. The update is Δ_i = θ_i − φ as
    everywhere, and not θ_i − w₀.
    """

    beta: Weight

    def client_state(self, model: Vector) -> ClientState:
        return {"last": model}

    def start(self, received: Message, kept: ClientState, client: Client) -> Vector:
        return received["model"] + self.beta * (received["model"] - kept["last"])

    def finish(self, end: End, memory: object, kept: ClientState) -> tuple[dict[str, Vector], ClientState]:
        return {}, {"last": end.model}
