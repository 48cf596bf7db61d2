"""The cohort stacked and trained together: `torch.func.vmap` around the functions of `local.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from headway.engine import local
from headway.engine.executor import Assignment, CannotExecute, Form, Trained, Work, Works
from headway.engine.local import Rules, Task, placed
from headway.engine.shapes import stacked
from headway.engine.traced import compiled
from headway.errors import ClientError, UserError, place_of
from headway.trees import stack

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
        for group in alike(assignment.works) if self.rules.coupled else [order]:
            for start in range(0, len(group), STACKED_AT_MOST):
                positions = tuple(group[start : start + STACKED_AT_MOST])
                yield from self._trained(assignment, positions)

    def _trained(self, assignment: Assignment, positions: tuple[int, ...]) -> Iterator[Trained]:
        """A group's result. Where clients that fail are skipped, a group that failed is trained one by one."""
        try:
            result = self._group(assignment, assignment.works.at(positions))
        except ClientError as fault:
            if len(positions) == 1 or assignment.failures is None:
                assignment.failed(positions[0], fault)
                return
        else:
            yield positions, result
            return
        for position in positions:
            yield from self._trained(assignment, (position,))

    def _group(self, assignment: Assignment, works: Sequence[Work]) -> dict[str, Any]:
        equal = len({work.steps for work in works}) == 1
        rules = dataclasses.replace(self.rules, masked=not equal) if not self.compiled else self.rules
        received = assignment.received
        own, task = self._tasks(assignment, works)
        kept = stack([work.kept for work in works])
        local_buffers = "buffers" in kept
        buffers = kept["buffers"] if local_buffers else assignment.buffers
        device = task.size.device
        round = torch.tensor(assignment.round, device=device)

        def begin(buffers: Any, slots: Any, task: Task) -> Any:
            return local.begin(rules, received, buffers, slots, task)

        def finish(carry: Any, slots: Any, task: Task) -> Any:
            return local.finish(rules, carry, received, slots, task)

        step: int | None = None
        try:
            carry = vmap(begin, in_dims=(0 if local_buffers else None, 0, 0))(buffers, kept["slots"], own)
            widths = self._widths(works, int(task.rows.shape[2]))
            advance = self._advance(rules, len(works), (carry, received, task, torch.tensor(0, device=device), round))
            for step, width in enumerate(widths):
                carry = advance(width)(carry, received, task, torch.tensor(step, device=device), round)
            step = None
            return {**vmap(finish)(carry, kept["slots"], own), "computed": len(works) * sum(widths)}
        except CannotExecute:
            raise
        except UserError as mistake:
            raise mistake.at(place_of(assignment.round, [work.client for work in works], step)) from mistake
        except Exception as fault:
            if isinstance(fault, RuntimeError) and any(word in str(fault) for word in _REFUSALS):
                raise CannotExecute(str(fault).strip().splitlines()[0]) from fault
            clients = [work.client for work in works]
            raise ClientError.of(fault, round=assignment.round, clients=clients, step=step) from fault

    def _tasks(self, assignment: Assignment, works: Sequence[Work]) -> tuple[Task, Task]:
        """The stacked tasks of these clients alone, and those of a compiled step, in the shapes of the run."""
        tasks, device = [work.task for work in works], self.rules.pool.y.device
        if not self.compiled:
            own = placed(stacked(tasks), device)
            return own, own
        filled = placed(stacked(tasks, assignment.shapes), device)
        return placed(stacked(tasks), device) if self.rules.coupled else filled, filled

    def _widths(self, works: Sequence[Work], most: int) -> list[int]:
        """Rows that the batch of each step has: as many as its samples where no batch is filled."""
        longest = max(works, key=lambda work: work.steps)
        return longest.task.counts.tolist() if self.rules.coupled else [most] * longest.steps

    def _advance(self, rules: Rules, count: int, arguments: tuple[Any, ...]) -> Callable[[int], Any]:
        """The step of a stack of `count` clients, for a batch of so many rows."""

        @cache
        def eager(width: int) -> Any:
            def advance(carry: Any, received: Any, task: Task, index: Tensor, round: Tensor) -> Any:
                return local.advance(rules, carry, received, task, index, round, width)

            return vmap(advance, in_dims=(0, None, 0, None, None))

        most = int(arguments[2].rows.shape[2])
        if self.compiled and self._program is None:
            self._program = count, compiled(eager(most), arguments)
        if not self._program or self._program[0] != count:
            return eager
        program = self._program[1]
        return lambda width: program if width == most else eager(width)

    def close(self) -> None:
        self._program = None


def alike(works: Works) -> list[list[int]]:
    """Groups of works whose batches are equally large in every step that both take, the longest groups first.

    In a group they stand by their lengths. Where slots read a client's samples as a whole, those are equally many.
    """
    forms = [works.form(at) for at in range(len(works))]
    groups: dict[Form, list[int]] = {}
    for form in sorted(set(forms), key=lambda form: -len(form[1])):
        whole, widths = form
        place = next((one for one in groups if one[0] == whole and one[1][: len(widths)] == widths), form)
        groups.setdefault(place, []).extend(at for at, other in enumerate(forms) if other == form)
    return [sorted(group, key=works.lengths.__getitem__) for group in sorted(groups.values(), key=len, reverse=True)]
