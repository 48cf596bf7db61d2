from __future__ import annotations

from typing import Annotated, TypedDict

import torch
from torch import Tensor

from headway.methods.arguments import Among, slot
from headway.methods.projection import project_three, project_three_by_tensor
from headway.methods.slots import Client, End, Message, Step
from headway.vectors import Vector


class ClientState(TypedDict):
    last: Vector
    """The model with which it ended its last round."""


class Memory(TypedDict):
    before: Vector
    """w_{k−1}."""
    correction: Tensor
    """Σ_k ‖g̃ − g‖/‖g‖."""
    steps: Tensor
    """k."""


@slot
class gradient_memory:
    """w ← w − ηg̃ ; g̃ = QP(g; [∇f(w_{k−1}), ∇f(φ), w_k − φ]): GradMA-W (Luo et al. 2023, Alg. 2 and 7).

    QP (`projection`) moves the gradient g to the nearest point that has no negative product with the three rows, all of
    the model's shapes and on the same batch: three gradients a step. `scope`: one program for the whole `model`, as in
    the paper, or one for each `tensor`, as in its program.

    w_{−1} is `previous`. `last`: the model with which the client ended its last round, θ⁰ in its first one (paper);
    `last-or-received`: the same, but φ in its first round (the program of GradMA-W); `received`: φ in every round (the
    program of GradMA).
    """

    scope: Annotated[str, Among("model", "tensor")] = "model"
    previous: Annotated[str, Among("last", "last-or-received", "received")] = "last"

    def client_state(self, model: Vector) -> ClientState:
        return {"last": model}

    def begin(self, received: Message, kept: ClientState, client: Client) -> Memory:
        start, before = received["model"], kept["last"]
        if self.previous == "received":
            before = start
        elif self.previous == "last-or-received":
            before = before.zip(start, lambda own, new: torch.where(client.seen, own, new))
        zero = torch.zeros_like(start.norm())
        return {"before": before, "correction": zero, "steps": zero}

    def direction(self, w: Vector, gradient: Vector, memory: Memory, step: Step) -> tuple[Vector, Memory]:
        start = step.received["model"]
        rows = (step.grad_at(memory["before"]), step.grad_at(start), w - start)
        corrected = (project_three if self.scope == "model" else project_three_by_tensor)(gradient, rows)
        relative = (corrected - gradient).norm() / gradient.norm().clamp(min=1e-30)
        return corrected, {
            "before": w,
            "correction": memory["correction"] + relative,
            "steps": memory["steps"] + 1,
        }

    def finish(self, end: End, memory: Memory, kept: ClientState) -> tuple[dict[str, Vector], ClientState]:
        return {}, {"last": end.model}

    def measures(self, memory: Memory) -> dict[str, Tensor]:
        """The mean over the round's steps of ‖g̃ − g‖/‖g‖: how far the rows moved the gradient."""
        return {"local_correction": memory["correction"] / memory["steps"].clamp(min=1)}
