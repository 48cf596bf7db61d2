"""The cohort stacked and trained together: `torch.func.vmap` around the functions of `local.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from headway.engine import local
from headway.engine.executor import Assignment, CannotExecute, Trained, Work
from headway.engine.local import Rules, Task, placed
from headway.engine.shapes import stacked
from headway.engine.traced import compiled
from headway.errors import ClientError, UserError, place_of
from headway.vectors import stack

_REFUSALS = ("vmap", "functorch", "doesn't have storage")
"""What torch says where an operation cannot be stacked."""
STACKED_AT_MOST = 64
"""Clients in one stack; a larger cohort is trained in several."""


class Batched:
    """With `compiled`, the step of a stack is one compiled program, made for the first number of clients in a stack."""

    def __init__(self, rules: Rules, *, compiled: bool = False) -> None:
        self.name = "batched:compiled" if compiled else "batched"
        self.rules = dataclasses.replace(rules, functional=True, masked=True)
        self.compiled = compiled
        self._program: tuple[int, Any] | None = None

    def run(self, assignment: Assignment) -> Iterator[Trained]:
        """Clients of like length train together, so that few wait for others."""
        order = sorted(range(len(assignment.works)), key=assignment.works.lengths.__getitem__)
        for start in range(0, len(order), STACKED_AT_MOST):
            positions = tuple(order[start : start + STACKED_AT_MOST])
            yield positions, self._group(assignment, assignment.works.at(positions))

    def _group(self, assignment: Assignment, works: Sequence[Work]) -> dict[str, Any]:
        equal = len({work.steps for work in works}) == 1
        rules = dataclasses.replace(self.rules, masked=not equal) if not self.compiled else self.rules
        received = assignment.received
        least = assignment.shapes if self.compiled else {}
        task = placed(stacked([work.task for work in works], least), rules.pool.y.device)
        kept = stack([work.kept for work in works])
        own = "buffers" in kept
        buffers = kept["buffers"] if own else assignment.buffers
        device = task.size.device
        round = torch.tensor(assignment.round, device=device)

        def begin(buffers: Any, slots: Any, task: Task) -> Any:
            return local.begin(rules, received, buffers, slots, task)

        def finish(carry: Any, slots: Any, task: Task) -> Any:
            return local.finish(rules, carry, received, slots, task)

        step: int | None = None
        try:
            carry = vmap(begin, in_dims=(0 if own else None, 0, 0))(buffers, kept["slots"], task)
            start = torch.tensor(0, device=device)
            advance = self._advance(rules, len(works), (carry, received, task, start, round))
            longest = max(work.steps for work in works)
            for step in range(longest):
                carry = advance(carry, received, task, torch.tensor(step, device=device), round)
            step = None
            return {**vmap(finish)(carry, kept["slots"], task), "computed": task.rows[:, :longest].numel()}
        except CannotExecute:
            raise
        except UserError as mistake:
            raise mistake.at(place_of(assignment.round, [work.client for work in works], step)) from mistake
        except Exception as fault:
            if isinstance(fault, RuntimeError) and any(word in str(fault) for word in _REFUSALS):
                raise CannotExecute(str(fault).strip().splitlines()[0]) from fault
            clients = [work.client for work in works]
            raise ClientError.of(fault, round=assignment.round, clients=clients, step=step) from fault

    def _advance(self, rules: Rules, count: int, arguments: tuple[Any, ...]) -> Any:
        """The step of a stack of `count` clients."""

        def advance(carry: Any, received: Any, task: Task, index: Tensor, round: Tensor) -> Any:
            return local.advance(rules, carry, received, task, index, round)

        together = vmap(advance, in_dims=(0, None, 0, None, None))
        if self.compiled and self._program is None:
            self._program = count, compiled(together, arguments)
        return self._program[1] if self._program and self._program[0] == count else together

    def close(self) -> None:
        self._program = None
