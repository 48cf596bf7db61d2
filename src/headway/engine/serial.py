"""One client after another, eager: the reference that every other executor is tested against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from headway import random
from headway.engine import local
from headway.engine.executor import Assignment, Trained, Work
from headway.engine.local import Rules
from headway.errors import ClientError
from headway.vectors import tree_map


def train(rules: Rules, assignment: Assignment, work: Work) -> dict[str, Any]:
    """One client's round; a failure carries client, round and step."""
    step: int | None = None
    device = rules.pool.y.device
    try:
        with random.isolated(work.words, device):
            buffers = work.kept.get("buffers", assignment.buffers)
            received, task = assignment.received, local.placed(work.task, device)
            carry = local.begin(rules, received, buffers, work.kept["slots"], task)
            round = torch.tensor(assignment.round, device=device)
            for step in range(work.steps):
                carry = local.advance(rules, carry, received, task, torch.tensor(step, device=device), round)
            step = None
            return local.finish(rules, carry, received, work.kept["slots"], task)
    except Exception as fault:
        cause = f"{type(fault).__name__}: {fault}"
        raise ClientError.at(cause, round=assignment.round, clients=[work.client], step=step) from fault


def alone(result: dict[str, Any], work: Work) -> dict[str, Any]:
    """One client's result as that of a group."""
    return {**tree_map(lambda leaf: leaf.unsqueeze(0), result), "computed": work.task.rows.size}


class Serial:
    name = "serial"

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def run(self, assignment: Assignment) -> Iterator[Trained]:
        for position in range(len(assignment.works)):
            work = assignment.works[position]
            yield (position,), alone(train(self.rules, assignment, work), work)

    def close(self) -> None:
        pass
