from __future__ import annotations

from typing import TypedDict

import torch
from torch import Tensor
from torch.nn import functional as F

from headway.methods.arguments import Rate, Weight, slot
from headway.methods.slots import Client, End, Message, Output, Step
from headway.vectors import Vector


class ClientState(TypedDict):
    previous: Vector
    """The model with which it ended its last round."""


class Memory(TypedDict):
    previous: Vector


@slot
class contrast:
    """f + μ·ℓ, ℓ = −log[e^{s(z,z_φ)/T} / (e^{s(z,z_φ)/T} + e^{s(z,z_prev)/T})]: MOON (Li et al. 2021, Eq. 3–4).

    s is the cosine, and z, z_φ and z_prev are the features (the last stage's input, flattened to (batch, d)) under the
    current, the received and the client's previous model, which is θ⁰ before its first round. The passes through the
    latter two are without gradient and in training mode, as the first is.
    """

    mu: Weight
    temperature: Rate

    adds = True
    needs = ("model:stages",)

    def client_state(self, model: Vector) -> ClientState:
        return {"previous": model}

    def begin(self, received: Message, kept: ClientState, client: Client) -> Memory:
        return {"previous": kept["previous"]}

    def value(self, w: Vector, output: Output, memory: Memory, step: Step) -> Tensor:
        z = output.stages[-1].flatten(1)
        near, far = (
            F.cosine_similarity(z, step.forward(at).stages[-1].flatten(1), dim=1)
            for at in (step.received["model"], memory["previous"])
        )
        pulls = torch.stack([near, far], dim=1) / self.temperature
        return self.mu * step.batch.mean(-F.log_softmax(pulls, dim=1)[:, 0])

    def finish(self, end: End, memory: Memory, kept: ClientState) -> tuple[dict[str, Vector], ClientState]:
        return {}, {"previous": end.model}
