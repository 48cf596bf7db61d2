"""One client's local training, as pure functions: `begin`, `advance` for each step, `finish`.

    φ, kept state ─begin→ carry ─advance→ carry ─…→ carry ─finish→ upload, what the client keeps

Inside a step the order is fixed: gradient of the whole objective → clip → local rule → weight decay → step.
`serial` and `pool` call these for one client, `batched` calls the same functions under `torch.func.vmap`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headway import random
from headway.data.federation import Federation, Pool
from headway.engine.network import Buffers, Network
from headway.methods.method import Method
from headway.methods.slots import Batch, Client, End, Message, Output, Step
from headway.vectors import Vector, nbytes, tree_map

Carry = dict[str, Any]
"""What changes from step to step: w, buffers, memory, loss_sum, rate_sum, steps."""


@dataclass(frozen=True)
class Rules:
    """What is the same for every client and every round of a run."""

    method: Method
    network: Network
    federation: Federation
    pool: Pool
    """The training samples on the run's device."""
    dtype: torch.dtype
    autocast: torch.dtype | None
    """Type of the forward pass, where it differs from the parameters'."""
    clip: float
    """0: none."""
    weight_decay: float
    functional: bool = False
    """Gradients by `torch.func.grad` (under vmap) or by plain autograd (always right)."""


@dataclass(frozen=True)
class Task:
    """One client's place in one round; every leaf is a tensor, so a cohort of them stacks."""

    size: Tensor
    share: Tensor
    seen: Tensor
    class_counts: Tensor
    rows: Tensor
    """Shape (K, batch)."""
    counts: Tensor
    """Shape (K,)."""
    rates: Tensor
    """Shape (K,)."""
    steps: Tensor
    """K_i ≤ K."""
    key: Tensor
    whole: Tensor
    """Shape (n,): all rows of the client, for `full_grad_at`; empty where no slot asks for it."""


torch.utils._pytree.register_dataclass(Task)


def per_sample(logits: Tensor, y: Tensor) -> Tensor:
    """Task losses of shape (batch,): cross-entropy for classes, squared error for numbers."""
    if y.is_floating_point():
        return ((logits.reshape(len(logits), -1) - y.reshape(len(y), -1)) ** 2).mean(1)
    return F.cross_entropy(logits, y, reduction="none")


def _client(rules: Rules, task: Task) -> Client:
    return Client(task.size, task.share, task.seen, task.class_counts, len(rules.federation.clients))


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
    return replace(output, logits=output.logits.to(rules.dtype)), after


def _resumed(
    rules: Rules, w: Vector, buffers: Buffers, stage: int, hidden: Tensor, batch: Batch, key: Tensor
) -> Tensor:
    with torch.autocast(hidden.device.type, rules.autocast, enabled=rules.autocast is not None, cache_enabled=False):
        logits = rules.network.resume(w, buffers, stage, hidden, batch.weight, key)
    return logits.to(rules.dtype)


def _batch(rules: Rules, rows: Tensor, count: Tensor) -> Batch:
    weight = (torch.arange(rows.shape[0], device=rows.device) < count).to(rules.dtype)
    return Batch(rules.federation.inputs(rules.pool.x[rows], rules.dtype), _targets(rules, rows), weight)


def _targets(rules: Rules, rows: Tensor) -> Tensor:
    y = rules.pool.y[rows]
    return y.to(rules.dtype) if y.is_floating_point() else y


def _clipped(gradient: Vector, limit: float) -> Vector:
    """g · min(1, c/(‖g‖ + 1e-6)): the global-norm clipping of PyTorch."""
    if limit == 0:
        return gradient
    return gradient * (limit / (gradient.norm() + 1e-6)).clamp(max=1.0)


def advance(rules: Rules, carry: Carry, received: Message, task: Task, index: Tensor, round: Tensor) -> Carry:
    """One local step k of one client. A client whose K_i steps are over stays as it is."""
    batch = _batch(rules, task.rows[index], task.counts[index])
    key = random.fold(task.key, index)
    w, buffers, memory = carry["w"], carry["buffers"], carry["memory"]

    def objective(at: Vector) -> tuple[Tensor, Buffers]:
        output, after = _forward(rules, at, buffers, batch, key)
        return rules.method.value(at, output, memory, step), after

    step = Step(
        batch=batch,
        client=_client(rules, task),
        received=received,
        rate=task.rates[index],
        index=index,
        round=round,
        key=key,
        losses=lambda logits: per_sample(logits, batch.y),
        forward=lambda at: _forward(rules, at, buffers, batch, key)[0],
        resume=lambda at, stage, hidden: _resumed(rules, at, buffers, stage, hidden, batch, key),
        grad_at=lambda at: _value_and_grad(rules, objective, at)[0],
    )
    gradient, value, buffers_after = _value_and_grad(rules, objective, w)
    direction, memory_after = rules.method.direction(w, _clipped(gradient, rules.clip), memory, step)
    if rules.weight_decay:
        direction = direction + rules.weight_decay * w
    after = {
        "w": w - step.rate * direction,
        "buffers": buffers_after,
        "memory": memory_after,
        "loss_sum": carry["loss_sum"] + value,
        "rate_sum": carry["rate_sum"] + step.rate,
        "steps": carry["steps"] + 1,
    }
    if not rules.functional:
        return after
    working = index < task.steps
    return tree_map(lambda new, old: torch.where(working, new, old), after, carry)  # type: ignore[no-any-return]


FULL_GRADIENT_CHUNK = 256


def _full_gradient(rules: Rules, buffers: Buffers, task: Task, at: Vector) -> Vector:
    """∇f_i over the client's whole data in chunks; rows beyond n_i are padding."""
    total = at.zeros()
    for start in range(0, task.whole.shape[0], FULL_GRADIENT_CHUNK):
        rows = task.whole[start : start + FULL_GRADIENT_CHUNK]
        batch = _batch(rules, rows, task.size - start)

        def summed(w: Vector, batch: Batch = batch) -> tuple[Tensor, Buffers]:
            output, _ = _forward(rules, w, buffers, batch, task.key)
            return (per_sample(output.logits, batch.y) * batch.weight).sum(), {}

        total = total + _value_and_grad(rules, summed, at)[0]
    return total / task.size


def finish(rules: Rules, carry: Carry, received: Message, kept: Any, task: Task) -> dict[str, Any]:
    """The upload as it arrives, after the wire, and what the client keeps.

    `bytes` counts the encoded payload and the buffers that travel with it.
    """
    end = End(
        received=received,
        model=carry["w"],
        delta=carry["w"] - received["model"],
        steps=carry["steps"],
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
        "measures": rules.method.client_measures(carry["memory"]),
        "loss": carry["loss_sum"] / carry["steps"].clamp(min=1),
        "steps": carry["steps"],
        "bytes": torch.full_like(carry["steps"], size),
    }
