from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from headway.methods.arguments import Among, slot
from headway.methods.projection import project_three, project_three_by_tensor
from headway.methods.slots import Client, End, Message, State, Step
from headway.vectors import Vector


@slot
class remembering:
    """g̃ = QP(g; [∇f(w_{k−1}), ∇f(φ), w_k − φ]), all on the same batch: GradMA-W.

    Luo et al. 2023, Alg. 2 and 7.

    w_{−1} is the client's own last model, θ⁰ the first time (`last`); `last-or-received` has φ the first time, as the
    program of GradMA-W; `received` has φ in every round, as the program of GradMA. `scope` is one program for the
    whole `model` (paper) or one for each `tensor` (program). Three gradients a step.
    """

    scope: Annotated[str, Among("model", "tensor")] = "model"
    previous: Annotated[str, Among("last", "last-or-received", "received")] = "last"

    def client_state(self, model: Vector) -> State:
        return {"last": model}

    def begin(self, received: Message, kept: State, client: Client) -> State:
        start: Vector = received["model"]
        before: Vector = kept["last"]
        if self.previous == "received":
            before = start
        elif self.previous == "last-or-received":
            before = before.zip(start, lambda own, new: torch.where(client.seen, own, new))
        zero = torch.zeros_like(start.norm())
        return {"before": before, "correction": zero, "steps": zero}

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        start = step.received["model"]
        rows = (step.grad_at(memory["before"]), step.grad_at(start), w - start)
        corrected = (project_three if self.scope == "model" else project_three_by_tensor)(gradient, rows)
        relative = (corrected - gradient).norm() / gradient.norm().clamp(min=1e-30)
        return corrected, {
            "before": w,
            "correction": memory["correction"] + relative,
            "steps": memory["steps"] + 1,
        }

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        return {}, {"last": end.model}

    def measures(self, memory: State) -> dict[str, Tensor]:
        """The mean over the round's steps of ‖g̃ − g‖/‖g‖."""
        return {"local_correction": memory["correction"] / memory["steps"].clamp(min=1)}
