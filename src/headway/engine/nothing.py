"""What the mean of no upload is, for a round in which nobody comes and the server adds noise all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from headway.methods.slots import Client, End, Facts, Fields, Message

if TYPE_CHECKING:
    from headway.engine.experiment import Experiment


def nothing(experiment: Experiment, message: Message) -> Fields:
    """Zeros under the names and in the shapes that every upload has, made without any client's data.

    The slots are asked for the upload of a client that did not move; only names and shapes of their answer are used.
    """
    method, like = experiment.method, message["model"]
    one, zeros = torch.ones((), dtype=experiment.dtype, device=experiment.device), like.zeros()
    count = torch.ones((), dtype=torch.int64, device=experiment.device)
    client = Client(
        size=count,
        share=one,
        seen=count == 0,
        class_counts=torch.ones(experiment.federation.outputs, dtype=torch.int64, device=experiment.device),
        population=experiment.population,
        mean_size=1.0,
        steps=count,
        sum_rates=lambda: one,
    )
    end = End(
        received=message,
        model=like,
        delta=zeros,
        steps=count,
        rate=one,
        rate_sum=one,
        client=client,
        full_grad_at=lambda at: at.zeros(),
        direction_sum=lambda: zeros,
    )
    state = method.client_state(like)
    fields, _ = method.finish(end, method.begin(message, state, client), state)
    derived = method.derive(fields, Facts(steps=count, rate_sum=one, size=count))
    return {name: field.zeros() for name, field in derived.items()}
