"""One simulated client's end of a round: it uploads, and the server reads what arrived, in a row."""

from __future__ import annotations

import torch

from headway.engine import server
from headway.engine.aggregate import TrainedClients
from headway.engine.client_arrays import DeviceArrays
from headway.engine.local_training import Carry, LocalTraining
from headway.methods.slots import Message, States
from headway.trees import nbytes


def finish(
    training: LocalTraining, carry: Carry, message: Message, state: States, arrays: DeviceArrays
) -> TrainedClients:
    """What the server has of one client after its last step, and what the client keeps: leaves without a client axis.

    `bytes` counts the encoded fields; buffers travel beside them.
    """
    upload, kept = training.upload(carry, message, state, arrays)
    steps = upload.facts.steps
    return {
        "fields": server.decode(training.experiment.method, upload, message["model"]),
        "buffers": upload.buffers,
        "measures": upload.measures,
        "state": kept,
        "loss": upload.loss,
        "steps": steps,
        "bytes": torch.full_like(steps, nbytes(upload.payloads)),
    }
