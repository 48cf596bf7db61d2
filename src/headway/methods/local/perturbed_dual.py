from __future__ import annotations

from typing import Annotated, TypedDict

from headway.methods.arguments import Rate, Weight, Within, slot
from headway.methods.slots import Client, End, Message, Step
from headway.vectors import Vector


class ClientState(TypedDict):
    q: Vector
    """q_i, its prox-correction."""


class Memory(TypedDict):
    q: Vector


@slot
class perturbed_dual:
    """w ← w − η((1−α)g(w) + αg(w + ρg(w)) − q_i + μ(w − φ)) ; q_i ← q_i − μΔ_i, q_i = 0 at first: FedSpeed's clients.

    Sun et al. 2023, Alg. 1; μ is the paper's 1/λ. Both gradients are of the same batch and of the task's loss, and each
    is clipped; the ascent ρg is not normalised. q_i has the model's shapes and the sign of a gradient. What is uploaded
    in place of Δ_i is Δ_i − q_i/μ, with the new q_i: the server takes the mean of θ_i − λq_i. Two passes a step.
    """

    rho: Weight
    alpha: Annotated[float, Within(0, 1)]
    mu: Rate

    provides = ("upload:delta",)
    replaces_delta = True

    def client_state(self, model: Vector) -> ClientState:
        return {"q": model.zeros()}

    def begin(self, received: Message, kept: ClientState, client: Client) -> Memory:
        return {"q": kept["q"]}

    def direction(self, w: Vector, gradient: Vector, memory: Memory, step: Step) -> tuple[Vector, Memory]:
        ahead = step.clip(step.grad_at(w.plus(self.rho, gradient)))
        mixed = (1 - self.alpha) * gradient + self.alpha * ahead
        return mixed - memory["q"] + self.mu * step.moved(w), memory

    def finish(self, end: End, memory: Memory, kept: ClientState) -> tuple[dict[str, Vector], ClientState]:
        q = kept["q"].plus(-self.mu, end.delta)
        return {"delta": end.delta.plus(-1 / self.mu, q)}, {"q": q}
