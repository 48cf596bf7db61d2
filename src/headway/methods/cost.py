"""What a method costs, computed from the messages it really sends and the state it really keeps. Nothing is typed in.

A tiny network is sent through one round of the method; sizes are in multiples of the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from headway.methods.method import Method
from headway.methods.slots import Client, End
from headway.vectors import Vector, nbytes

PROBE = 4096


@dataclass(frozen=True)
class Cost:
    """Traffic and memory in multiples of the model."""

    down: float
    up: float
    client_state: float
    server_memory: float


def cost(method: Method) -> Cost:
    """One round of a model of 4,096 parameters, without training: only what is sent and kept."""
    model = Vector({"weight": torch.linspace(-1, 1, PROBE)})
    scalar = torch.tensor
    client = Client(scalar(1), scalar(1.0), scalar(False), torch.zeros(2), 1)
    server, kept = method.server_state(model, 1), method.client_state(model)
    received = method.message(model, server)
    end = End(received, model, model, scalar(1), scalar(1.0), client, full_grad_at=lambda at: at)
    fields, _ = method.finish(end, method.begin(received, kept, client), kept)
    key = torch.zeros(2, dtype=torch.int64)
    size = nbytes(model)
    return Cost(
        down=sum(nbytes(method.wire.down.encode(vector, key)) for vector in received.values()) / size,
        up=sum(nbytes(method.wire.up.encode(field, key)) for field in fields.values()) / size,
        client_state=nbytes(kept) / size,
        server_memory=(nbytes(server) + size) / size,
    )
