"""One client after another, eager: the reference that every other executor is tested against."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from headway import random
from headway.engine import local
from headway.engine.executor import Assignment, CannotExecute, Trained, Work
from headway.engine.local import Rules, Task
from headway.engine.shapes import padded
from headway.engine.traced import compiled
from headway.errors import ClientError, UserError, place_of
from headway.methods.slots import Message
from headway.trees import leaves_of, tree_map


class Stepping:
    """`local.advance` on a client's own batches; or with `compiled` as one program for the largest shapes of the run.

    Where rows that fill a batch would change the others, the program has the batches of its own size only, and all
    others are stepped without it.
    """

    def __init__(self, rules: Rules, *, compiled: bool) -> None:
        self.rules, self.compiled = rules, compiled
        self._program: Any = None

    def tasks(self, assignment: Assignment, work: Work) -> tuple[Task, Task]:
        """The client's task as it is, and as a step takes it."""
        device = self.rules.pool.y.device
        own = local.placed(work.task, device)
        return own, local.placed(padded([work.task], assignment.shapes)[0], device) if self.compiled else own

    def __call__(
        self, carry: local.Carry, received: Message, task: Task, index: Tensor, round: Tensor, width: int
    ) -> Any:
        """One step on a batch of `width` samples."""
        if not self.compiled:
            return local.advance(self.rules, carry, received, task, index, round, width)
        arguments = (carry, received, task, index, round)
        if self._program is None:
            rules = dataclasses.replace(self.rules, functional=True)
            self._program = compiled(lambda *given: local.advance(rules, *given), arguments)
        if self.rules.coupled and width < task.rows.shape[1]:
            return local.advance(self.rules, *arguments, width)
        return self._program(*arguments)

    def computed(self, assignment: Assignment, work: Work) -> int:
        """How many samples went through the network, those included that filled a shape."""
        if self.compiled and not self.rules.coupled:
            return work.steps * assignment.shapes["rows"][1]
        return int(work.task.counts.sum())


def train(stepping: Stepping, assignment: Assignment, work: Work) -> dict[str, Any]:
    """One client's round; a failure carries client, round and step."""
    step: int | None = None
    rules = stepping.rules
    device = rules.pool.y.device
    try:
        with random.isolated(work.words, device):
            buffers, before = work.kept.get("buffers", assignment.buffers), _writes(assignment)
            received = assignment.received
            own, task = stepping.tasks(assignment, work)
            carry = local.begin(rules, received, buffers, work.kept["slots"], own)
            round = torch.tensor(assignment.round, device=device)
            for step, width in enumerate(work.task.counts.tolist()):
                carry = stepping(carry, received, task, torch.tensor(step, device=device), round, width)
            step = None
            result = local.finish(rules, carry, received, work.kept["slots"], own)
            _check_unwritten(assignment, before)
            return result
    except CannotExecute:
        raise
    except UserError as mistake:
        raise mistake.at(place_of(assignment.round, [work.client], step)) from mistake
    except Exception as fault:
        raise ClientError.of(fault, round=assignment.round, clients=[work.client], step=step) from fault


def _writes(assignment: Assignment) -> list[int]:
    """How often each tensor of the message was written into, as torch counts it."""
    return [leaf._version for leaf in leaves_of(dict(assignment.received))]


def _check_unwritten(assignment: Assignment, before: list[int]) -> None:
    """Refuse hooks that wrote into the message, which is the same for all clients of the round."""
    if _writes(assignment) != before:
        raise UserError(
            "a hook changed the message that the client received (or w, which begins as its model) in place; return a "
            "new Vector, and write into copies only (w.copy())"
        )


def alone(result: dict[str, Any], computed: int) -> dict[str, Any]:
    """One client's result as that of a group, after `computed` samples."""
    return {**tree_map(lambda leaf: leaf.unsqueeze(0), result), "computed": computed}


class Serial:
    def __init__(self, rules: Rules, *, compiled: bool = False) -> None:
        self.name = "serial:compiled" if compiled else "serial"
        self.stepping = Stepping(rules, compiled=compiled)

    def run(self, assignment: Assignment) -> Iterator[Trained]:
        for position in range(len(assignment.works)):
            work = assignment.works[position]
            try:
                result = train(self.stepping, assignment, work)
            except ClientError as fault:
                assignment.failed(position, fault)
                continue
            yield (position,), alone(result, self.stepping.computed(assignment, work))

    def close(self) -> None:
        pass
