"""A client's half of a round, as pure functions: what it receives, its local steps, what it uploads.

    message, client state ─begin→ carry ─step→ carry ─…→ carry ─upload→ upload, client state

Inside a step the order is fixed: probe → gradient of the whole objective → clip → corrections → optimiser → step; with
`clipping = "corrected"` the clip comes after the corrections. Weight decay is added after the optimiser, or where it
says so before.
Nothing here knows of other clients, executors or files. `serial` and `pool` call these functions for one client,
`batched` under `torch.func.vmap`, `graphed` in captured programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

import torch
from torch import Tensor

from headway import random
from headway.data.augmentation import augmented
from headway.engine.client_arrays import DeviceArrays
from headway.engine.network import Buffers
from headway.errors import UserError
from headway.methods.slots import Batch, Client, End, Facts, Message, Output, States, Step
from headway.trees import register_record, tree_map
from headway.vectors import Vector, known

if TYPE_CHECKING:
    from headway.engine.experiment import Experiment

FULL_GRADIENT_CHUNK = 256
"""Samples in one pass of a gradient over a client's whole data."""


class Carry(TypedDict):
    """What changes from step to step."""

    w: Vector
    buffers: Buffers
    memory: States
    """What slots remember within the round."""
    loss_sum: Tensor
    rate_sum: Tensor
    steps: Tensor
    clipped: Tensor
    """How many of the steps had their gradient clipped."""


@register_record
@dataclass(frozen=True)
class Upload:
    """What a client sends back: named arrays and a few numbers, which could travel over a network."""

    payloads: dict[str, object]
    """Δ_i = θ_i − φ and what slots add, each as the wire's code wrote it."""
    buffers: Buffers
    facts: Facts
    loss: Tensor
    """The mean of the objective over the steps."""
    measures: dict[str, Tensor]
    """What slots measured."""
    clipped: Tensor
    """How many of its steps had their gradient clipped."""


Program = Callable[[Carry, Message, DeviceArrays, Tensor, Tensor], Carry]
"""A local step on whole batches: of the carry, the message, the arrays, the step's index and the round."""
Objective = Callable[[Vector], tuple[Tensor, Buffers]]
"""The value at a point that a gradient is taken of, and the buffers after the pass."""
Terms = Iterable[tuple[Tensor, Vector]]
"""Value and slope of each term of the objective that knows its slope."""
Gradient = Callable[[Vector], tuple[Vector, Tensor, Buffers]]
"""The gradient of the whole objective at a point, its value, and the buffers after the pass."""


@dataclass(frozen=True)
class LocalTraining:
    """One client's local training in an experiment. The three flags are its executor's and change no number."""

    experiment: Experiment
    functional: bool = False
    """Gradients by `torch.func.grad` (under vmap) or by plain autograd (always right)."""
    masked: bool = False
    """Steps beyond a client's own change nothing: for clients of unequal steps in one stack."""
    coupled: bool = False
    """Rows that fill a batch would change its samples' numbers, so no batch is filled."""

    @property
    def device(self) -> torch.device:
        return self.experiment.device

    def begin(self, message: Message, buffers: Buffers, state: States, arrays: DeviceArrays) -> Carry:
        """Where a client begins: at the received model or where a slot says, with the memory its slots begin with."""
        zero = torch.zeros((), dtype=self.experiment.dtype, device=self.device)
        return {
            "w": self._start(message, state, arrays),
            "buffers": buffers,
            "memory": self.experiment.method.begin(message, state, self._client(arrays)),
            "loss_sum": zero,
            "rate_sum": zero,
            "steps": torch.zeros((), dtype=torch.int64, device=self.device),
            "clipped": torch.zeros((), dtype=torch.int64, device=self.device),
        }

    def step(
        self,
        carry: Carry,
        message: Message,
        arrays: DeviceArrays,
        index: Tensor,
        round: Tensor,
        width: int | None = None,
    ) -> Carry:
        """Local step `index` of one client. A client whose K_i steps are over stays as it is.

        `width` is how many rows the batch has; without it all, those included that only fill a shape.
        """
        step, gradient_at = self.placed_step(carry, message, arrays, index, round, width)
        w, chain, scenario = carry["w"], self.experiment.method.chain, self.experiment.scenario
        gradient, value, buffers = gradient_at(w)
        last = scenario.clipping == "corrected"
        gradient, is_clipped = (gradient, False) if last else _clipped(gradient, scenario.clip)
        direction, memory = chain.corrected(w, gradient, carry["memory"], step)
        if last:
            direction, is_clipped = _clipped(direction, scenario.clip)
        direction, memory = chain.stepped(w, direction, memory, step, scenario.weight_decay)
        after: Carry = {
            "w": w.plus(-step.rate, direction),
            "buffers": buffers,
            "memory": memory,
            "loss_sum": carry["loss_sum"] + value,
            "rate_sum": carry["rate_sum"] + step.rate,
            "steps": carry["steps"] + 1,
            "clipped": carry["clipped"] if is_clipped is False else carry["clipped"] + is_clipped,
        }
        if not self.masked:
            return after
        working = index < arrays.steps
        return tree_map(  # type: ignore[no-any-return]
            lambda new, old: old if new is old else torch.where(working, new, old), after, carry
        )

    def placed_step(
        self,
        carry: Carry,
        message: Message,
        arrays: DeviceArrays,
        index: Tensor,
        round: Tensor,
        width: int | None = None,
    ) -> tuple[Step, Gradient]:
        """A local step as rules and objectives see it, and the gradient that it takes."""
        experiment, method, scenario = self.experiment, self.experiment.method, self.experiment.scenario
        drawn = experiment.scenario.augmentation != "none" or experiment.network.draws
        key = random.fold(arrays.key, index) if drawn else arrays.key
        batch = self._batch(_at(arrays.rows, index), _at(arrays.counts, index), key, width)
        buffers, memory = carry["buffers"], carry["memory"]

        def objective(at: Vector) -> tuple[Tensor, Buffers]:
            output, after = self._forward(at, buffers, batch, key)
            return method.value(at, output, memory, step), after

        gradient_at = self._gradient_of(objective, lambda at: method.sloped(at, memory, step))
        step = Step(
            batch=batch,
            client=self._client(arrays),
            received=message,
            rate=_at(arrays.rates, index),
            index=index,
            round=round,
            draw_key=lambda: random.fold(arrays.key, index),
            losses=lambda logits: experiment.task.loss(logits, batch.y),
            forward=lambda at: self._forward(at, buffers, batch, key)[0],
            resume=lambda at, stage, hidden: self._resumed(at, buffers, stage, hidden, batch, key),
            grad_at=lambda at: gradient_at(at)[0],
            clip=lambda gradient: _clipped(gradient, scenario.clip)[0] if scenario.clipping == "gradient" else gradient,
        )
        return step, gradient_at if method.chain.probe is None else self._probed(gradient_at, memory, step)

    def _probed(self, gradient_at: Gradient, memory: States, step: Step) -> Gradient:
        """The gradient at the point that the method's probe goes to, as a function of the point it starts from.

        Value and buffers are of the first pass; that is at the start where the probe must see the gradient there.
        """
        chain = self.experiment.method.chain

        def gradient_ahead(w: Vector) -> tuple[Vector, Tensor, Buffers]:
            ahead = chain.point(w, None, memory, step)
            if ahead is not None:
                return gradient_at(ahead)
            gradient, value, buffers = gradient_at(w)
            there = chain.point(w, gradient, memory, step)
            assert there is not None, "a probe that has seen a gradient knows its point"
            return gradient_at(there)[0], value, buffers

        return gradient_ahead

    def upload(self, carry: Carry, message: Message, state: States, arrays: DeviceArrays) -> tuple[Upload, States]:
        """What the client sends back, and the state of slots that it keeps."""
        method = self.experiment.method
        delta, start = carry["w"] - message["model"], self._start(message, state, arrays)
        moved = delta if start is message["model"] else carry["w"] - start
        end = End(
            received=message,
            model=carry["w"],
            delta=delta,
            steps=carry["steps"],
            rate=arrays.rates[0],
            rate_sum=carry["rate_sum"],
            client=self._client(arrays),
            full_grad_at=lambda at: self._full_gradient(carry["buffers"], arrays, at),
            direction_sum=lambda: method.chain.direction_sum(carry["memory"], moved),
        )
        fields, kept = method.finish(end, carry["memory"], state)
        code = method.wire.up
        upload = Upload(
            payloads={
                name: code.encode(field, random.fold(arrays.key, -1 - number))
                for number, (name, field) in enumerate(fields.items())
            },
            buffers=carry["buffers"],
            facts=Facts(steps=carry["steps"], rate_sum=carry["rate_sum"], size=arrays.size),
            loss=carry["loss_sum"] / carry["steps"].clamp(min=1),
            measures=method.client_measures(carry["memory"], end),
            clipped=carry["clipped"],
        )
        return upload, kept

    def _start(self, message: Message, state: States, arrays: DeviceArrays) -> Vector:
        return self.experiment.method.chain.start(message, state, self._client(arrays))

    def _client(self, arrays: DeviceArrays) -> Client:
        everybody = self.experiment.federation

        def sum_rates() -> Tensor:
            own = torch.arange(arrays.rates.shape[0], device=arrays.rates.device) < arrays.steps
            return torch.where(own, arrays.rates, 0.0).sum()

        return Client(
            size=arrays.size,
            share=arrays.share,
            seen=arrays.seen,
            class_counts=arrays.class_counts,
            population=len(everybody.clients),
            mean_size=everybody.mean_size,
            steps=arrays.steps,
            sum_rates=sum_rates,
        )

    def _gradient_of(self, objective: Objective, terms: Callable[[Vector], Terms] = lambda at: ()) -> Gradient:
        """The gradient of an objective and of terms that know their own slope, as a function of the point."""

        def gradient_at(at: Vector) -> tuple[Vector, Tensor, Buffers]:
            if self.functional:
                gradient, (value, after) = torch.func.grad(lambda w: _twice(objective(w)), has_aux=True)(at)
            else:
                with torch.enable_grad():
                    w = at.map(lambda leaf: leaf.detach().requires_grad_())
                    value, after = objective(w)
                    leaves = list(w.leaves.values())
                    parts = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
                gradient = Vector(dict(zip(at.leaves, parts, strict=True)))
                value, after = value.detach(), tree_map(lambda leaf: leaf.detach(), after)
            for term, slope in terms(at):
                gradient, value = gradient + slope, value + term
            return gradient, value, after

        return gradient_at

    def _forward(self, w: Vector, buffers: Buffers, batch: Batch, key: Tensor) -> tuple[Output, Buffers]:
        with self.experiment.forward_precision():
            output, after = self.experiment.network.train(w, buffers, batch.x, batch.weight, key)
        return replace(output, logits=self._answer(output.logits, batch)), after

    def _resumed(self, w: Vector, buffers: Buffers, stage: int, hidden: Tensor, batch: Batch, key: Tensor) -> Tensor:
        with self.experiment.forward_precision():
            logits = self.experiment.network.resume(w, buffers, stage, hidden, batch.weight, key)
        return _by_sample(logits, batch).to(self.experiment.dtype)

    def _answer(self, answer: Tensor, batch: Batch) -> Tensor:
        """The network's answer in the parameters' type, with one row a sample."""
        typed: Tensor = tree_map(lambda part: _by_sample(part, batch).to(self.experiment.dtype), answer)
        return typed

    def _batch(self, rows: Tensor, count: Tensor, key: Tensor | None = None, width: int | None = None) -> Batch:
        """Samples as the network takes them, augmented where the scenario says so and a key is given.

        `width`: how many rows are taken; those beyond are there to fill a shape.
        """
        experiment = self.experiment
        rows = rows if width is None else rows[:width]
        weight = (torch.arange(rows.shape[0], device=rows.device) < count).to(experiment.dtype)
        x, y = experiment.samples.read(rows)
        if experiment.scenario.augmentation != "none" and key is not None:
            assert isinstance(x, Tensor), "only images are augmented"
            x = augmented(x, key, experiment.scenario.augmentation)
        targets, units = experiment.targets(y), experiment.task.units
        inputs = experiment.federation.inputs(x, experiment.dtype)
        return Batch(inputs, targets, weight, None if units is None else units(targets).to(experiment.dtype))

    def _full_gradient(self, buffers: Buffers, arrays: DeviceArrays, at: Vector) -> Vector:
        """∇f_i over the client's whole data in chunks; rows beyond n_i are padding."""
        if not arrays.whole.shape[0]:
            raise UserError('full_grad_at is called and not declared; add needs = ("model:full_gradient",) to the slot')
        total, count = at.zeros(), torch.zeros((), dtype=self.experiment.dtype, device=self.device)
        for start in range(0, arrays.whole.shape[0], FULL_GRADIENT_CHUNK):
            rows = arrays.whole[start : start + FULL_GRADIENT_CHUNK]
            batch = self._batch(rows, arrays.size - start)

            def summed(w: Vector, batch: Batch = batch) -> tuple[Tensor, Buffers]:
                output, _ = self._forward(w, buffers, batch, arrays.key)
                losses = self.experiment.task.loss(output.logits, batch.y)
                return (losses * batch.share).sum(), {}

            total = total + self._gradient_of(summed)(at)[0]
            count = count + batch.share.sum()
        return total / (arrays.size if self.experiment.task.units is None else count.clamp(min=1))


def _twice(result: tuple[Tensor, Buffers]) -> tuple[Tensor, tuple[Tensor, Buffers]]:
    value, extra = result
    return value, (value, extra)


def _by_sample(logits: Tensor, batch: Batch) -> Tensor:
    """Logits with one row a sample, also where a model's `squeeze` took the axis of a single one away."""
    return logits.unsqueeze(0) if len(batch.weight) == 1 and logits.shape[:1] != (1,) else logits


def _at(table: Tensor, index: Tensor) -> Tensor:
    """Row `index` of a table, without reading the index from the device."""
    return table.index_select(0, index.reshape(1)).squeeze(0)


def _clipped(gradient: Vector, limit: float) -> tuple[Vector, Tensor | bool]:
    """g · min(1, c/(‖g‖ + 1e-6)), the global-norm clipping of PyTorch, and whether that changed anything.

    The second stays on the device where its value is not at hand.
    """
    if limit == 0:
        return gradient, False
    factor = (limit / (gradient.norm() + 1e-6)).clamp(max=1.0)
    return (gradient, False) if known(factor) == 1.0 else (gradient * factor, factor < 1)
