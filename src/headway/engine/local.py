"""One client's local training, as pure functions: `begin`, `advance` for each step, `finish`.

    φ, kept state ─begin→ carry ─advance→ carry ─…→ carry ─finish→ upload, what the client keeps

Inside a step the order is fixed: gradient of the whole objective → clip → local rule → weight decay → step.
`serial` and `pool` call these for one client, `batched` under `torch.func.vmap`, `graphed` in captured programs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headway import random
from headway.data.augmentation import augmented
from headway.data.federation import Federation, Samples
from headway.engine.network import Buffers, Network
from headway.errors import UserError
from headway.methods.method import Method
from headway.methods.slots import Batch, Client, End, Message, Output, Step
from headway.trees import leaves_of, nbytes, refill, tree_map
from headway.vectors import Vector, known

Carry = dict[str, Any]
"""What changes from step to step: w, buffers, memory, loss_sum, rate_sum, steps."""


@dataclass(frozen=True)
class Rules:
    """What is the same for every client and every round of a run."""

    method: Method
    network: Network
    federation: Federation
    pool: Samples
    """The training samples on the run's device."""
    dtype: torch.dtype
    autocast: torch.dtype | None
    """Type of the forward pass, where it differs from the parameters'."""
    clip: float
    """0: none."""
    weight_decay: float
    augmentation: str = "none"
    squared: bool = False
    """Squared error for classes too."""
    functional: bool = False
    """Gradients by `torch.func.grad` (under vmap) or by plain autograd (always right)."""
    masked: bool = False
    """Steps beyond a client's own change nothing: for clients of unequal steps in one stack."""
    coupled: bool = False
    """Rows that fill a batch would change its samples' numbers, so no batch is filled."""


Array = Any
"""A NumPy array on the host, a tensor where a client is trained."""


@dataclass(frozen=True)
class Task:
    """One client's place in one round: arrays on the host, tensors where it is trained. A cohort of them stacks."""

    size: Array
    share: Array
    seen: Array
    class_counts: Array
    rows: Array
    """Shape (K, batch)."""
    counts: Array
    """Shape (K,)."""
    rates: Array
    """Shape (K,)."""
    steps: Array
    """K_i ≤ K."""
    key: Array
    whole: Array
    """Shape (n,): all rows of the client, for `full_grad_at`; empty where no slot asks for it."""


torch.utils._pytree.register_dataclass(Task)


def placed(task: Task, device: torch.device) -> Task:
    """A task's arrays as tensors on a device."""
    return tree_map(lambda array: torch.from_numpy(array).to(device), task)  # type: ignore[no-any-return]


def per_sample(logits: Tensor, y: Tensor, squared: bool = False) -> Tensor:
    """Task losses of shape (batch,): cross-entropy for classes, squared error for numbers.

    `squared`: the mean over C outputs of (z − e_y)² for classes, e_y one-hot: linear regression whose largest output is
    its answer (FedNAG's Figure 4 has its loss and its accuracy).
    """
    if squared and not y.is_floating_point():
        y = (y.unsqueeze(1) == torch.arange(logits.shape[1], device=y.device)).to(logits.dtype)
    if y.is_floating_point():
        return ((logits.reshape(len(logits), -1) - y.reshape(len(y), -1)) ** 2).mean(1)
    return F.cross_entropy(logits, y, reduction="none")


def _client(rules: Rules, task: Task) -> Client:
    everybody = rules.federation
    return Client(task.size, task.share, task.seen, task.class_counts, len(everybody.clients), everybody.mean_size)


def begin(rules: Rules, received: Message, buffers: Buffers, kept: Any, task: Task) -> Carry:
    zero = torch.zeros((), dtype=rules.dtype, device=rules.pool.y.device)
    return {
        "w": received["model"],
        "buffers": buffers,
        "memory": rules.method.begin(received, kept, _client(rules, task)),
        "loss_sum": zero,
        "rate_sum": zero,
        "steps": torch.zeros((), dtype=torch.int64, device=zero.device),
    }


def _value_and_grad(
    rules: Rules, function: Callable[[Vector], tuple[Tensor, Any]], w: Vector
) -> tuple[Vector, Tensor, Any]:
    """(∇, value, what else the function returned) at w."""
    if rules.functional:
        gradient, (value, extra) = torch.func.grad(lambda at: _twice(function(at)), has_aux=True)(w)
        return gradient, value, extra
    with torch.enable_grad():
        at = w.map(lambda leaf: leaf.detach().requires_grad_())
        value, extra = function(at)
        parts = torch.autograd.grad(value, list(at.leaves.values()), allow_unused=True, materialize_grads=True)
    gradient = Vector(dict(zip(w.leaves, parts, strict=True)))
    return gradient, value.detach(), tree_map(lambda leaf: leaf.detach(), extra)


def _twice(result: tuple[Tensor, Any]) -> tuple[Tensor, tuple[Tensor, Any]]:
    value, extra = result
    return value, (value, extra)


def _forward(rules: Rules, w: Vector, buffers: Buffers, batch: Batch, key: Tensor) -> tuple[Output, Buffers]:
    device = batch.weight.device.type
    with torch.autocast(device, rules.autocast, enabled=rules.autocast is not None, cache_enabled=False):
        output, after = rules.network.train(w, buffers, batch.x, batch.weight, key)
    return replace(output, logits=_by_sample(output.logits, batch).to(rules.dtype)), after


def _resumed(
    rules: Rules, w: Vector, buffers: Buffers, stage: int, hidden: Tensor, batch: Batch, key: Tensor
) -> Tensor:
    with torch.autocast(hidden.device.type, rules.autocast, enabled=rules.autocast is not None, cache_enabled=False):
        logits = rules.network.resume(w, buffers, stage, hidden, batch.weight, key)
    return _by_sample(logits, batch).to(rules.dtype)


def _by_sample(logits: Tensor, batch: Batch) -> Tensor:
    """Logits with one row a sample, also where a model's `squeeze` took the axis of a single one away."""
    return logits.unsqueeze(0) if len(batch.weight) == 1 and logits.shape[:1] != (1,) else logits


def _batch(rules: Rules, rows: Tensor, count: Tensor, key: Tensor | None = None, width: int | None = None) -> Batch:
    """Samples as the network takes them, augmented where the scenario asks for it and a key is given.

    `width`: only so many rows are taken; those beyond are there to fill a shape.
    """
    rows = rows if width is None else rows[:width]
    weight = (torch.arange(rows.shape[0], device=rows.device) < count).to(rules.dtype)
    x = rules.pool.x[rows]
    if rules.augmentation != "none" and key is not None:
        x = augmented(x, key, rules.augmentation)
    return Batch(rules.federation.inputs(x, rules.dtype), _targets(rules, rows), weight)


def _at(table: Tensor, index: Tensor) -> Tensor:
    """Row `index` of a table, without asking the device what the index is."""
    return table.index_select(0, index.reshape(1)).squeeze(0)


def _targets(rules: Rules, rows: Tensor) -> Tensor:
    y = rules.pool.y[rows]
    return y.to(rules.dtype) if y.is_floating_point() else y


def _once(function: Callable[[Vector], Vector]) -> Callable[[Vector], Vector]:
    """The function, which remembers its last point and value."""
    last: list[Vector] = []

    def at(point: Vector) -> Vector:
        if not last or last[0] is not point:
            last[:] = point, function(point)
        return last[1]

    return at


def _clipped(gradient: Vector, limit: float) -> Vector:
    """g · min(1, c/(‖g‖ + 1e-6)): the global-norm clipping of PyTorch."""
    if limit == 0:
        return gradient
    factor = (limit / (gradient.norm() + 1e-6)).clamp(max=1.0)
    return gradient if known(factor) == 1.0 else gradient * factor


Graded = Callable[[Vector], tuple[Vector, Tensor, Buffers]]
"""The gradient of the whole objective at a point, its value, and the buffers after the pass."""


def placed_step(
    rules: Rules,
    carry: Carry,
    received: Message,
    task: Task,
    index: Tensor,
    round: Tensor,
    width: int | None = None,
) -> tuple[Step, Graded]:
    """Local step k of one client as rules and objectives see it, and the gradient that it takes."""
    drawn = rules.augmentation != "none" or rules.network.draws
    key = random.fold(task.key, index) if drawn else task.key
    batch = _batch(rules, _at(task.rows, index), _at(task.counts, index), key, width)
    buffers, memory = carry["buffers"], carry["memory"]

    def objective(at: Vector) -> tuple[Tensor, Buffers]:
        output, after = _forward(rules, at, buffers, batch, key)
        return rules.method.value(at, output, memory, step), after

    def graded(at: Vector) -> tuple[Vector, Tensor, Buffers]:
        gradient, value, after = _value_and_grad(rules, objective, at)
        for term, slope in rules.method.sloped(at, memory, step):
            gradient, value = gradient + slope, value + term
        return gradient, value, after

    step = Step(
        batch=batch,
        client=_client(rules, task),
        received=received,
        rate=_at(task.rates, index),
        index=index,
        round=round,
        draw_key=lambda: random.fold(task.key, index),
        losses=lambda logits: per_sample(logits, batch.y, rules.squared),
        forward=lambda at: _forward(rules, at, buffers, batch, key)[0],
        resume=lambda at, stage, hidden: _resumed(rules, at, buffers, stage, hidden, batch, key),
        grad_at=lambda at: graded(at)[0],
        moved=_once(lambda at: at - received["model"]),
    )
    return step, graded


def advance(
    rules: Rules,
    carry: Carry,
    received: Message,
    task: Task,
    index: Tensor,
    round: Tensor,
    width: int | None = None,
) -> Carry:
    """One local step k of one client. A client whose K_i steps are over stays as it is.

    `width`: how many rows the batch has; without it all that the task has, those included that fill a shape.
    """
    step, graded = placed_step(rules, carry, received, task, index, round, width)
    w, memory = carry["w"], carry["memory"]
    gradient, value, buffers_after = graded(w)
    direction, memory_after = rules.method.direction(w, _clipped(gradient, rules.clip), memory, step)
    if rules.weight_decay:
        direction = direction.plus(rules.weight_decay, w)
    after = {
        "w": w.plus(-step.rate, direction),
        "buffers": buffers_after,
        "memory": memory_after,
        "loss_sum": carry["loss_sum"] + value,
        "rate_sum": carry["rate_sum"] + step.rate,
        "steps": carry["steps"] + 1,
    }
    if not rules.masked:
        return after
    working = index < task.steps
    return tree_map(  # type: ignore[no-any-return]
        lambda new, old: old if new is old else torch.where(working, new, old), after, carry
    )


FULL_GRADIENT_CHUNK = 256


def _full_gradient(rules: Rules, buffers: Buffers, task: Task, at: Vector) -> Vector:
    """∇f_i over the client's whole data in chunks; rows beyond n_i are padding."""
    if not task.whole.shape[0]:
        raise UserError('full_grad_at is asked for and not declared; add needs = ("model:full_gradient",) to the slot')
    total = at.zeros()
    for start in range(0, task.whole.shape[0], FULL_GRADIENT_CHUNK):
        rows = task.whole[start : start + FULL_GRADIENT_CHUNK]
        batch = _batch(rules, rows, task.size - start)

        def summed(w: Vector, batch: Batch = batch) -> tuple[Tensor, Buffers]:
            output, _ = _forward(rules, w, buffers, batch, task.key)
            return (per_sample(output.logits, batch.y, rules.squared) * batch.weight).sum(), {}

        total = total + _value_and_grad(rules, summed, at)[0]
    size: Tensor = task.size
    return total / size


def finish(rules: Rules, carry: Carry, received: Message, kept: Any, task: Task) -> dict[str, Any]:
    """The upload as it arrives, after the wire, and what the client keeps.

    `bytes` counts the encoded payload; buffers travel beside it.
    """
    end = End(
        received=received,
        model=carry["w"],
        delta=carry["w"] - received["model"],
        steps=carry["steps"],
        rate=task.rates[0],
        rate_sum=carry["rate_sum"],
        client=_client(rules, task),
        full_grad_at=lambda at: _full_gradient(rules, carry["buffers"], task, at),
    )
    fields, keeps = rules.method.finish(end, carry["memory"], kept)
    code = rules.method.wire.up
    arrived: dict[str, Vector] = {}
    size = 0
    for number, (name, field) in enumerate(fields.items()):
        payload = code.encode(field, random.fold(task.key, -1 - number))
        arrived[name] = code.decode(payload, field)
        size += nbytes(payload)
    return {
        "fields": rules.method.derive(arrived, end),
        "buffers": carry["buffers"],
        "kept": keeps,
        "measures": rules.method.client_measures(carry["memory"], end),
        "loss": carry["loss_sum"] / carry["steps"].clamp(min=1),
        "steps": carry["steps"],
        "bytes": torch.full_like(carry["steps"], size),
    }


def summary(trained: dict[str, Any], weights: Tensor) -> dict[str, Any]:
    """Of stacked results: Σ_i ω_i of what is averaged, and in `told` one row a client of loss, largest upload, steps
    and bytes. A loss or upload that is no number shows in it.
    """
    averaged = {name: trained[name] for name in ("fields", "buffers", "measures")}
    sizes = [
        leaf.reshape(len(leaf), -1).abs().amax(1).double() for leaf in leaves_of(trained["fields"]) if leaf.numel()
    ]
    largest = torch.stack(sizes).amax(0)
    told = [trained["loss"].double(), largest, trained["steps"].double(), trained["bytes"].double()]
    return {"sum": _weighted_sum(weights, averaged), "told": torch.stack(told, dim=1)}


def _weighted_sum(weights: Tensor, trees: Any) -> Any:
    """Σ_i ω_i · leaf[i] of each leaf; counters are averaged as float64."""
    leaves = [leaf if leaf.is_floating_point() else leaf.double() for leaf in leaves_of(trees)]
    alone = known(weights[0]) if len(weights) == 1 else None
    if alone is not None and leaves:
        return refill(trees, torch._foreach_mul([leaf[0] for leaf in leaves], alone))
    return refill(trees, [torch.tensordot(weights.to(leaf.dtype), leaf, dims=1) for leaf in leaves])


def answers(rules: Rules, w: Vector, buffers: Buffers, x: Tensor) -> Tensor:
    """The network's outputs for raw samples, in evaluation mode."""
    inputs = rules.federation.inputs(x, rules.dtype)
    with torch.autocast(x.device.type, rules.autocast, enabled=rules.autocast is not None, cache_enabled=False):
        return rules.network.evaluate(w, buffers, inputs).to(rules.dtype)


def score(rules: Rules, w: Vector, buffers: Buffers, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(losses in float64, whether the largest logit is right) of each sample, in evaluation mode."""
    logits = answers(rules, w, buffers, x)
    targets = y.to(rules.dtype) if y.is_floating_point() else y
    right = logits.argmax(1) == y if rules.federation.classes else torch.zeros_like(y, dtype=torch.bool)
    return per_sample(logits, targets, rules.squared).double(), right
