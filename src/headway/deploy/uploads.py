"""An upload as it came from a site: nothing of it is believed before it has the names, types, shapes and bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from headway.data.batches import batch_sizes, planned_steps
from headway.deploy.binding import finite
from headway.deploy.codes import Code, Refused
from headway.deploy.messages import UploadReply, message_of
from headway.deploy.records import Record, form_digest, tree_of
from headway.deploy.site import upload_parts
from headway.engine.experiment import Experiment
from headway.engine.local_training import Upload
from headway.engine.network import Buffers
from headway.methods.slots import Facts
from headway.scenario import Scenario
from headway.trees import nbytes

_PAYLOAD = "payload/"


class Numbers(TypedDict):
    """The scalars of an upload."""

    loss: Tensor
    steps: Tensor
    rate_sum: Tensor
    clipped: Tensor
    measures: dict[str, Tensor]


@dataclass(frozen=True)
class Forms:
    """What an upload of a run looks like."""

    blank: Upload
    parts: dict[str, object]
    """Its fields, by the names of their arrays."""
    digest: str
    buffers: Buffers
    """What stands for buffers that do not travel."""

    @classmethod
    def of(cls, experiment: Experiment, blank: Upload) -> Forms:
        """The forms of an experiment whose uploads look like this one."""
        parts = upload_parts(blank, experiment.scenario.buffers != "keep-local")
        return cls(blank, parts, form_digest(parts), experiment.network.buffers)


@dataclass(frozen=True)
class Arrived:
    """An upload that counts, if the round does."""

    reply: UploadReply
    upload: Upload

    @property
    def nbytes(self) -> int:
        """What its encoded fields took, as a simulation counts it."""
        return nbytes(self.upload.payloads)


def arrived(record: Record, forms: Forms, scenario: Scenario, size: int) -> Arrived:
    """The upload in a record, of a client with so many samples."""
    reply = message_of(UploadReply, record, Code.BAD_REPLY)
    if reply.form != forms.digest or reply.arrays.keys() != forms.parts.keys():
        raise Refused(Code.BAD_REPLY, "the upload has not the names, types and shapes of this method and model")
    trees = {name: tree_of(reply.arrays[name], like, name, Code.BAD_REPLY) for name, like in forms.parts.items()}
    numbers: Numbers = trees["numbers"]  # type: ignore[assignment]
    steps = int(numbers["steps"])
    planned = planned_steps(scenario, size)
    if not 1 <= steps <= planned:
        raise Refused(Code.BAD_REPLY, f"the upload is of {steps} steps, and the client has {planned}")
    if not 0 <= int(numbers["clipped"]) <= steps:
        raise Refused(Code.BAD_REPLY, f"the upload says that {int(numbers['clipped'])} of {steps} steps were clipped")
    counted = int(batch_sizes(scenario, size)[:steps].sum())  # a stream that goes on may have another short batch
    if reply.samples != counted and (scenario.batches == "reshuffled" or not 1 <= reply.samples <= steps * size):
        raise Refused(Code.BAD_REPLY, f"the upload is of {reply.samples} samples, and {steps} steps have {counted}")
    if not finite(trees) or reply.training_seconds != reply.training_seconds or reply.training_seconds < 0:
        raise Refused(Code.BAD_REPLY, "the upload has numbers that are not finite")
    upload = Upload(
        payloads={name: trees[_PAYLOAD + name] for name in forms.blank.payloads},
        buffers=trees.get("buffers", forms.buffers),  # type: ignore[arg-type]
        facts=Facts(numbers["steps"], numbers["rate_sum"], torch.tensor(size)),
        loss=numbers["loss"],
        measures=numbers["measures"],
        clipped=numbers["clipped"],
    )
    return Arrived(reply, upload)
