"""One client after another, eager: the reference that every other executor is tested against."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from headway import random
from headway.engine import local
from headway.engine.executor import Assignment, CannotExecute, Trained, Work
from headway.engine.local import Rules, Task
from headway.engine.shapes import padded
from headway.engine.traced import compiled
from headway.errors import ClientError, UserError, place_of
from headway.vectors import leaves_of, tree_map


class Stepping:
    """`local.advance` as it is, or with `compiled` as one program for the largest shapes of the run."""

    def __init__(self, rules: Rules, *, compiled: bool) -> None:
        self.rules, self.compiled = rules, compiled
        self._program: Any = None

    def task(self, assignment: Assignment, work: Work) -> Task:
        task = padded([work.task], assignment.shapes)[0] if self.compiled else work.task
        return local.placed(task, self.rules.pool.y.device)

    def __call__(self, *arguments: Any) -> Any:
        if not self.compiled:
            return local.advance(self.rules, *arguments)
        if self._program is None:
            rules = dataclasses.replace(self.rules, functional=True)
            self._program = compiled(lambda *given: local.advance(rules, *given), arguments)
        return self._program(*arguments)


def train(stepping: Stepping, assignment: Assignment, work: Work) -> dict[str, Any]:
    """One client's round; a failure carries client, round and step."""
    step: int | None = None
    rules = stepping.rules
    device = rules.pool.y.device
    try:
        with random.isolated(work.words, device):
            buffers, before = work.kept.get("buffers", assignment.buffers), _writes(assignment)
            received, task = assignment.received, stepping.task(assignment, work)
            carry = local.begin(rules, received, buffers, work.kept["slots"], task)
            round = torch.tensor(assignment.round, device=device)
            for step in range(work.steps):
                carry = stepping(carry, received, task, torch.tensor(step, device=device), round)
            step = None
            result = local.finish(rules, carry, received, work.kept["slots"], task)
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


def alone(result: dict[str, Any], assignment: Assignment, work: Work, compiled: bool) -> dict[str, Any]:
    """One client's result as that of a group. A compiled step is one of the run's largest batch."""
    batch = assignment.shapes["rows"][1] if compiled else work.task.rows.shape[1]
    return {**tree_map(lambda leaf: leaf.unsqueeze(0), result), "computed": work.steps * batch}


class Serial:
    def __init__(self, rules: Rules, *, compiled: bool = False) -> None:
        self.name = "serial:compiled" if compiled else "serial"
        self.stepping = Stepping(rules, compiled=compiled)

    def run(self, assignment: Assignment) -> Iterator[Trained]:
        for position in range(len(assignment.works)):
            work = assignment.works[position]
            result = train(self.stepping, assignment, work)
            yield (position,), alone(result, assignment, work, self.stepping.compiled)

    def close(self) -> None:
        pass
