"""One communication round: broadcast → local training → upload → server. Every executor runs inside this function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from headway import random
from headway.data.batches import plan
from headway.engine.executor import Assignment, Executor, Work
from headway.engine.local import Task
from headway.engine.network import Buffers
from headway.engine.world import World
from headway.errors import Diverged, ServerDiverged
from headway.methods.slots import Message, State, Uploads
from headway.vectors import Vector, conformed, copied, laid_out, leaves_of, moved, nbytes, row, tree_map


class ClientStore(Protocol):
    """Client states by id. What is put in is the store's own: nobody else keeps it."""

    def get(self, client: int) -> dict[str, Any] | None: ...
    def put(self, client: int, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Model:
    """Everything the server holds between rounds."""

    theta: Vector
    buffers: Buffers
    server: State


@dataclass(frozen=True)
class Outcome:
    """What happened in a round, besides the new model."""

    clients: tuple[int, ...]
    rate: float
    train_loss: float
    update_norm: float
    """‖θ_{t+1} − θ_t‖."""
    steps: int
    bytes_down: int
    bytes_up: int
    measures: dict[str, float]
    """What the method's slots measured."""


def start(world: World) -> Model:
    theta = world.network.parameters.copy()
    server = world.method.server_state(theta, world.population)
    return Model(theta, copied(world.network.buffers), _kept(world, server, server))


def _kept(world: World, server: State, like: State) -> State:
    """The server's state as its own copy, laid out as another, but for what a slot owns and changes in place."""
    owned = world.method.owned(server)
    return tree_map(  # type: ignore[no-any-return]
        lambda leaf, form: leaf if id(leaf) in owned else laid_out(leaf.detach(), form), server, like
    )


def _rates(world: World, round: int, epochs: np.ndarray) -> np.ndarray:
    """η · d^(t−1) · d_e^e for the local epoch e of each step."""
    scenario = world.scenario
    first: float = scenario.rate * scenario.rate_decay ** (round - 1)
    return first * scenario.rate_decay_epoch**epochs


def work_for(world: World, store: ClientStore, client: int, round: int, steps_at_most: int | None = None) -> Work:
    """One client's work: its batches, rates, key and what it kept from before."""
    scenario, rows = world.scenario, world.federation.clients[client]
    held = store.get(client)
    kept = world.newcomer if held is None else held
    batches = plan(scenario, rows, scenario.seed, round, client, int(kept.get("cursor", 0)))
    words = random.key(scenario.seed, "client", round, client)
    steps = min(len(batches), steps_at_most or len(batches))
    whole = rows if "full_gradient" in world.method.needs("model") else rows[:0]

    def tensor(values: Any, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.as_tensor(np.asarray(values)).to(world.device, dtype)

    task = Task(
        size=tensor(len(rows)),
        share=tensor(world.weight(client) / world.weight_total, world.rules.dtype),
        seen=tensor(held is not None, torch.bool),
        class_counts=tensor(world.federation.class_counts(client)),
        rows=tensor(batches.rows[:steps]),
        counts=tensor(batches.counts[:steps]),
        rates=tensor(_rates(world, round, batches.epochs)[:steps], world.rules.dtype),
        steps=tensor(steps),
        key=tensor(words),
        whole=tensor(whole),
    )
    return Work(client, task, moved(kept, world.device), steps, words)


def _broadcast(world: World, model: Model, round: int) -> tuple[Message, int]:
    """The message as clients receive it, after the wire, and its bytes for one client."""
    message = world.method.message(model.theta, model.server)
    code = world.method.wire.down
    received: dict[str, Vector] = {}
    size = 0
    for number, (name, vector) in enumerate(message.items()):
        key = torch.tensor(random.key(world.scenario.seed, "down", round, number), device=world.device)
        payload = code.encode(vector, key)
        received[name] = code.decode(payload, vector)
        size += nbytes(payload)
    return received, size


def assign(
    world: World,
    model: Model,
    store: ClientStore,
    cohort: Sequence[int],
    round: int,
    steps_at_most: int | None = None,
) -> tuple[Assignment, int]:
    """The cohort's work, and the bytes that go down to one client."""
    received, down = _broadcast(world, model, round)
    works = tuple(work_for(world, store, client, round, steps_at_most) for client in cohort)
    travelling = 0 if world.scenario.buffers == "keep-local" else nbytes(model.buffers)
    return Assignment(round, received, model.buffers, works), down + travelling


def _advice(world: World) -> str:
    return f"a smaller rate (now {world.scenario.rate:g}) or clipping (--clip) may help"


def _weighted_sum(weights: Tensor, leaf: Tensor) -> Tensor:
    """Σ_i ω_i · leaf[i]; counters are averaged as float64."""
    values = leaf if leaf.is_floating_point() else leaf.double()
    summed: Tensor = torch.tensordot(weights.to(values.dtype), values, dims=1)
    return summed


class _Intake:
    """Uploads as they arrive: one running weighted sum, and every upload only where the server asks for each."""

    def __init__(self, world: World, cohort: Sequence[int], round: int) -> None:
        weights = np.array([world.weight(client) for client in cohort])
        self.world, self.cohort, self.round = world, cohort, round
        self.weights = weights / weights.sum()
        self.share = float(weights.sum() / world.weight_total)
        self.sum: dict[str, Any] | None = None
        self.each: list[Any] = []
        self.kept: dict[int, dict[str, Any]] = {}
        self.loss = 0.0
        self.steps = self.bytes_up = 0

    def take(self, positions: Sequence[int], trained: dict[str, Any], works: Sequence[Work]) -> None:
        trained = moved(trained, self.world.device)
        losses = trained["loss"].double().cpu()
        self._check_finite(positions, losses, trained["fields"])
        weights = torch.as_tensor(self.weights[list(positions)], device=self.world.device)
        summed = tree_map(
            lambda leaf: _weighted_sum(weights, leaf),
            {name: trained[name] for name in ("fields", "buffers", "measures")},
        )
        self.sum = summed if self.sum is None else tree_map(torch.add, self.sum, summed)
        self.loss += float((torch.as_tensor(self.weights[list(positions)]) * losses).sum())
        self.steps += int(trained["steps"].sum())
        self.bytes_up += int(trained["bytes"].sum())
        for at, position in enumerate(positions):
            if self.world.method.needs_each:
                self.each.append(copied(row(trained["fields"], at)))
            self._keep(works[position], row(trained, at))

    def _keep(self, work: Work, trained: dict[str, Any]) -> None:
        kept: dict[str, Any] = {"slots": trained["kept"]}
        if "cursor" in work.kept:
            kept["cursor"] = work.kept["cursor"] + trained["steps"]
        if "buffers" in work.kept:
            kept["buffers"] = trained["buffers"]
        if leaves_of(kept):
            self.kept[work.client] = laid_out(conformed(kept, work.kept, "the client state"), work.kept)

    def _check_finite(self, positions: Sequence[int], losses: Tensor, fields: Any) -> None:
        sizes = torch.stack([leaf.flatten(1).abs().amax(1).double() for leaf in leaves_of(fields)]).amax(0).cpu()
        for at, position in enumerate(positions):
            if not (math.isfinite(losses[at]) and math.isfinite(sizes[at])):
                what = "loss" if not math.isfinite(losses[at]) else "update"
                raise Diverged(
                    f"round {self.round}, client {self.cohort[position]}: the {what} is not a finite number; "
                    f"{_advice(self.world)}"
                )


def play(
    world: World, model: Model, store: ClientStore, executor: Executor, cohort: Sequence[int], round: int
) -> tuple[Model, Outcome]:
    """θ_t, server state → θ_{t+1}, server state. The one place where a round happens."""
    assignment, down = assign(world, model, store, cohort, round)
    intake = _Intake(world, cohort, round)
    for positions, trained in executor.run(assignment):
        intake.take(positions, trained, assignment.works)
    assert intake.sum is not None
    uploads = Uploads(
        mean=intake.sum["fields"],
        sent=assignment.received,
        rate=float(_rates(world, round, np.zeros(1))[0]),
        share=intake.share,
        clients=tuple(cohort),
        weights=tuple(intake.weights),
        population=world.population,
        each=tuple(intake.each) if world.method.needs_each else None,
    )
    theta, server = world.method.update(model.theta, uploads, model.server)
    server = conformed(server, model.server, "the server state")
    moved_by = float((theta - model.theta).to(torch.float64).norm())
    if not math.isfinite(moved_by):
        raise ServerDiverged(f"round {round}: the server's step is not a finite number; {_advice(world)}")
    averaged = world.scenario.buffers != "keep-local"
    buffers = _as(intake.sum["buffers"], model.buffers) if averaged else model.buffers
    outcome = Outcome(
        clients=tuple(cohort),
        rate=uploads.rate,
        train_loss=intake.loss,
        update_norm=moved_by,
        steps=intake.steps,
        bytes_down=0 if world.method.pooled else down * len(cohort),
        bytes_up=0
        if world.method.pooled
        else intake.bytes_up + (nbytes(model.buffers) * len(cohort) if averaged else 0),
        measures={
            name: float(value)
            for name, value in (intake.sum["measures"] | world.method.server_measures(server)).items()
        },
    )
    for client, kept in intake.kept.items():
        store.put(client, kept)  # only now: a round that fails leaves every client as it was
    return Model(laid_out(theta, model.theta), buffers, _kept(world, server, model.server)), outcome


def _as(buffers: Buffers, like: Buffers) -> Buffers:
    """Averaged buffers in their own types; counters are rounded."""
    return {
        name: (mean if like[name].is_floating_point() else mean.round()).to(like[name].dtype)
        for name, mean in buffers.items()
    }
