"""One communication round: broadcast → local training → upload → server. Every executor runs inside this function."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from headway import random
from headway.data.turnout import Turnout
from headway.engine.executor import Assignment, Executor, Foresighted, Work, Works
from headway.engine.failures import Failures, diverged
from headway.engine.local import summary
from headway.engine.network import Buffers
from headway.engine.works import rate_of, shares, together, works_for
from headway.engine.world import World
from headway.errors import Diverged, ServerDiverged, SlotError, UserError, in_words
from headway.methods.parts import part_name
from headway.methods.slots import Message, State, Uploads
from headway.methods.wire import plain
from headway.trees import conformed, copied, laid_out, leaves_of, nbytes, refill, row, tree_map
from headway.vectors import Vector


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
    """Those whose upload counts."""
    lost: int
    """Clients that dropped out and sent nothing."""
    late: int
    """Clients asked beyond the cohort, whose work was not needed."""
    partial: int
    """Clients among `clients` that dropped out and sent what they had done."""
    failed: int | None
    """Clients that failed or diverged and were skipped; None where nobody is skipped."""
    failures: list[dict[str, Any]] | None
    """Which these were, and why; None where there were none."""
    rate: float
    train_loss: float | None
    """None where nothing arrived."""
    update_norm: float
    """‖θ_{t+1} − θ_t‖."""
    steps: int
    """Local steps whose work reached the server."""
    samples: int
    """Samples in these steps."""
    padding: float
    """Share of the samples computed that only filled a shape."""
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
    leaves, forms = leaves_of(server), leaves_of(like)
    if not leaves:
        return server
    owned = world.method.owned(server)
    changed = [number for number, leaf in enumerate(leaves) if id(leaf) not in owned]
    copies = laid_out([leaves[number] for number in changed], [forms[number] for number in changed])
    for number, leaf in zip(changed, copies, strict=True):
        leaves[number] = leaf
    return refill(server, leaves)  # type: ignore[no-any-return]


@contextmanager
def _in_round(round: int) -> Iterator[None]:
    """Failures of hooks that are not a client's, with the round."""
    try:
        yield
    except UserError as mistake:
        raise mistake.at(f"round {round}") from mistake
    except Exception as fault:
        raise SlotError(f"round {round}: {in_words(fault)}") from fault


@contextmanager
def _unchanged(world: World, model: Model, round: int, slot: str) -> Iterator[None]:
    """Refuse hooks that write into θ: the round's update is measured from what they were given.

    Writes that torch counts are seen in every round, others (through `.data` or NumPy) in the first.
    """
    leaves = list(model.theta.leaves.values())
    before = [leaf._version for leaf in leaves]
    copies = [leaf.nan_to_num() for leaf in leaves] if round == 1 else []
    yield
    written = [leaf._version for leaf in leaves] != before
    if written or not all(torch.equal(leaf.nan_to_num(), copy) for leaf, copy in zip(leaves, copies, strict=False)):
        names = " and ".join(part_name(part) for _, part in world.method.parts(slot))
        raise UserError(
            f"{slot} slot {names} of method '{world.method.name}' changed the model that it was given; return a new "
            "Vector, such as model + delta, and write into copies only (model.copy())"
        )


def _broadcast(world: World, model: Model, round: int) -> tuple[Message, int]:
    """The message as clients receive it, after the wire, and its bytes for one client."""
    with _in_round(round), _unchanged(world, model, round, "broadcast"):
        message = world.method.message(model.theta, model.server)
    code = world.method.wire.down
    if type(code) is plain:
        return message, nbytes(message)
    received: dict[str, Vector] = {}
    size = 0
    for number, (name, vector) in enumerate(message.items()):
        key = torch.tensor(random.key(world.scenario.seed, "down", round, number))
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
    sent, down = _sent(world, model, round)
    count = len(cohort)
    cuts = {} if steps_at_most is None else dict.fromkeys(range(count), steps_at_most)
    return replace(sent, works=works_for(world, store.get, cohort, [1 / max(count, 1)] * count, cuts, round)), down


def _sent(world: World, model: Model, round: int) -> tuple[Assignment, int]:
    """What everybody receives, before anybody has work, and the bytes that go down to one client."""
    received, down = _broadcast(world, model, round)
    travelling = 0 if world.scenario.buffers == "keep-local" else nbytes(model.buffers)
    return Assignment(round, received, model.buffers, Works(), world.shapes), down + travelling


def advice(world: World) -> str:
    """What may help where numbers have run away."""
    return f"a smaller rate (now {world.scenario.rate:g}) or clipping (--clip) may help"


class _Intake:
    """Uploads as they arrive: one running weighted sum, and every upload only where the server asks for each."""

    def __init__(
        self, world: World, store: ClientStore, cohort: Sequence[int], round: int, weights: np.ndarray, share: float
    ) -> None:
        self.world, self.store, self.cohort, self.round = world, store, cohort, round
        self.weights, self.share = weights, share
        self.skips = world.scenario.on_failure == "skip"
        self.failures = Failures(cohort, round)
        self.left = list(range(len(cohort)))
        self.sum: dict[str, Any] | None = None
        self.each: dict[int, Any] = {}
        self.kept: dict[int, dict[str, Any]] = {}
        self._told: list[tuple[tuple[int, ...], Tensor]] = []
        self.loss = 0.0
        self.steps = self.bytes_up = self.samples = self.computed = 0

    def held(self, client: int) -> dict[str, Any] | None:
        """What a client holds now: from its last turn in this round, else from before."""
        return self.kept[client] if client in self.kept else self.store.get(client)

    def take(self, positions: Sequence[int], trained: dict[str, Any], works: Works, places: Sequence[int]) -> None:
        """Results of the clients at these positions of the cohort, and the places in `works` that they came of."""
        self.computed += trained["computed"]
        summed = trained.get("summary") or self._summed(trained, works, places)
        if self.skips and (faults := self._diverged(positions, summed["told"])):
            self.failures.faults |= {positions[at]: fault for at, fault in faults.items()}
            self.computed -= works.samples([places[at] for at in faults])
            finite = [at for at in range(len(positions)) if at not in faults]
            positions, places = [positions[at] for at in finite], [places[at] for at in finite]
            if not positions:
                return
            rows = {name: trained[name] for name in trained if name not in ("summary", "computed")}
            trained = tree_map(lambda leaf: leaf[finite], rows)
            summed = self._summed(trained, works, places)
        if self.sum is None:
            self.sum = copied(summed["sum"])
        elif more := leaves_of(summed["sum"]):
            torch._foreach_add_(leaves_of(self.sum), more)
        alone = len(positions) == len(self.cohort)  # no other group is written over what this one told
        self._told.append((tuple(positions), summed["told"] if alone else copied(summed["told"])))
        self.samples += works.samples(places)
        for at, (position, place) in enumerate(zip(positions, places, strict=True)):
            if self.world.method.needs_each:
                self.each[position] = copied(row(trained["fields"], at))
            if self.world.keeps:
                self._keep(works[place], trained, at)

    def _summed(self, trained: dict[str, Any], works: Works, places: Sequence[int]) -> dict[str, Any]:
        given = [work.weight for work in works.at(places)]
        return summary(trained, torch.tensor(given, dtype=torch.float64, device=self.world.device))

    def leave_out(self) -> None:
        """Go on without the clients that failed: the weights of the others sum to 1 again."""
        self.left = self.failures.left()
        factor = 1 / float(self.weights[self.left].sum())
        self.sum = tree_map(lambda leaf: leaf * factor, self.sum)
        self.weights = self.weights.copy()
        self.weights[self.left], self.share = shares(self.world, [self.cohort[place] for place in self.left])

    def settle(self) -> None:
        """Read what clients told of themselves; a device that is still at work is waited for here."""
        for positions, rows in self._told:
            arrived = rows.cpu()
            for fault in self._diverged(positions, arrived).values():
                raise fault
            told = arrived.numpy()
            self.loss += float(self.weights[list(positions)] @ told[:, 0])
            self.steps += int(told[:, 2].sum())
            self.bytes_up += int(told[:, 3].sum())
        self._told.clear()

    def _keep(self, work: Work, trained: dict[str, Any], at: int) -> None:
        kept: dict[str, Any] = {"slots": row(trained["kept"], at)}
        if "cursor" in work.kept:
            kept["cursor"] = work.kept["cursor"] + trained["steps"][at]
        if "buffers" in work.kept:
            kept["buffers"] = row(trained["buffers"], at)
        self.kept[work.client] = laid_out(
            conformed(kept, work.kept, f"the client state of method '{self.world.method.name}'"), work.kept
        )

    def _diverged(self, positions: Sequence[int], told: Tensor) -> dict[int, Diverged]:
        clients = [self.cohort[position] for position in positions]
        words = advice(self.world) + ("" if self.skips else "; --on-failure skip goes on without such clients")
        return diverged(told.cpu().numpy(), clients, self.round, words)


def _train(world: World, assignment: Assignment, store: ClientStore, executor: Executor, turnout: Turnout) -> _Intake:
    """Everybody's local training. A client drawn twice trains twice, from what its first turn left it with."""
    round, expected = assignment.round, _expected(world, turnout, assignment.round)
    weights, share = shares(world, turnout.clients) if expected is None else expected.shares
    intake = _Intake(world, store, turnout.clients, round, weights, share)

    def works_of(wave: Sequence[int], visit: int) -> Works:
        clients = [turnout.clients[place] for place in wave]
        cuts = {at: turnout.cut[place] for at, place in enumerate(wave) if place in turnout.cut}
        return works_for(world, intake.held, clients, [weights[place] for place in wave], cuts, round, visit)

    for visit, wave in enumerate(turnout.waves):
        works = works_of(wave, visit) if expected is None else expected.works
        given = replace(assignment, works=works, failures={} if intake.skips else None)
        for positions, trained in executor.run(given):
            intake.take([wave[at] for at in positions], trained, works, positions)
            works.let_go(positions)
        intake.failures.faults |= {wave[at]: fault for at, fault in (given.failures or {}).items()}
    if len(intake.failures):
        intake.leave_out()
    return intake


def _look_ahead(world: World, executor: Executor, round: int) -> None:
    """The next round's batches, made while a device is still busy with this one's.

    Where clients keep nothing, their tasks are made, for an executor that can take them in before their turn.
    """
    room = getattr(executor, "room", 0)
    if round > world.scenario.rounds or round in world.ahead or (not room and world.device.type == "cpu"):
        return
    turnout = world.turnout(round)
    clients = turnout.clients
    if not 0 < len(clients) <= room or world.keeps or turnout.cut or len(turnout.waves) != 1:
        world.planner.prepare(round, clients)
        return
    weights, share = shares(world, clients)
    tasks = together(world, clients, round)
    works = works_for(world, lambda client: None, clients, weights, {}, round, counts=tasks.counts.sum(1).tolist())
    cast(Foresighted, executor).expect(works, tasks, weights)  # for it has room
    world.ahead[round] = _Ahead(turnout, works, (weights, share))


@dataclass(frozen=True)
class _Ahead:
    """What was made of a round, of one wave of clients, before its turn."""

    turnout: Turnout
    works: Works
    shares: tuple[np.ndarray, float]


def _expected(world: World, turnout: Turnout, round: int) -> _Ahead | None:
    """What was made before its turn, if it is this turnout's."""
    made: _Ahead | None = world.ahead.pop(round, None)
    return made if made is not None and made.turnout is turnout else None


def play(
    world: World,
    model: Model,
    store: ClientStore,
    executor: Executor,
    cohort: Turnout | Sequence[int],
    round: int,
) -> tuple[Model, Outcome]:
    """θ_t, server state → θ_{t+1}, server state. The one place where a round happens.

    Where nothing arrives, both stay as they are.
    """
    turnout = cohort if isinstance(cohort, Turnout) else Turnout(tuple(cohort))
    assignment, down = _sent(world, model, round)
    outcome = Outcome(
        clients=turnout.clients,
        lost=turnout.lost,
        late=turnout.late,
        partial=len(turnout.cut),
        failed=0 if world.scenario.on_failure == "skip" else None,
        failures=None,
        rate=rate_of(world, round),
        train_loss=None,
        update_norm=0.0,
        steps=0,
        samples=0,
        padding=0.0,
        bytes_down=0 if world.method.pooled else down * turnout.asked,
        bytes_up=0,
        measures={},
    )
    if not turnout.clients:
        return model, outcome
    intake = _train(world, assignment, store, executor, turnout)
    assert intake.sum is not None
    clients = tuple(turnout.clients[place] for place in intake.left)
    uploads = Uploads(
        mean=intake.sum["fields"],
        sent=assignment.received,
        rate=outcome.rate,
        share=intake.share,
        clients=clients,
        weights=tuple(intake.weights[intake.left]),
        population=world.population,
        each=tuple(fields for _, fields in sorted(intake.each.items())) if world.method.needs_each else None,
    )
    if world.device.type == "cpu" or world.method.owned(model.server):
        _look_ahead(world, executor, round + 1)
        intake.settle()  # a GPU goes on, but what is changed in place must not see a client's failure
    try:
        with _in_round(round), _unchanged(world, model, round, "server"):
            theta, server = world.method.update(model.theta, uploads, model.server)
            server = conformed(server, model.server, f"the server state of method '{world.method.name}'")
            measured = world.method.server_measures(server)
    except Exception:
        intake.settle()  # a client that diverged is the better reason
        raise
    norm = (theta - model.theta).norm(torch.float64)
    after = Model(laid_out(theta, model.theta), model.buffers, _kept(world, server, model.server))
    _look_ahead(world, executor, round + 1)  # everything that the device has to do is under way
    intake.settle()
    moved_by = float(norm)
    if not math.isfinite(moved_by):
        raise ServerDiverged(f"round {round}: the server's step is not a finite number; {advice(world)}")
    averaged = world.scenario.buffers != "keep-local"
    buffers = _as(intake.sum["buffers"], model.buffers) if averaged else model.buffers
    travelling = nbytes(model.buffers) * len(clients) if averaged else 0
    outcome = replace(
        outcome,
        clients=clients,
        partial=len(turnout.cut.keys() & set(intake.left)),
        failed=len(intake.failures) if intake.skips else None,
        failures=intake.failures.as_rows(),
        train_loss=intake.loss,
        update_norm=moved_by,
        steps=intake.steps,
        samples=intake.samples,
        padding=1 - intake.samples / intake.computed,
        bytes_up=0 if world.method.pooled else intake.bytes_up + travelling,
        measures={name: float(value) for name, value in (intake.sum["measures"] | measured).items()},
    )
    for client in dict.fromkeys(turnout.clients):  # only now: a round that fails leaves every client as it was
        if client in intake.kept:
            store.put(client, intake.kept[client])
    return replace(after, buffers=buffers), outcome


def _as(buffers: Buffers, like: Buffers) -> Buffers:
    """Averaged buffers in their own types, as a copy; counters are rounded."""
    return {
        name: (mean if like[name].is_floating_point() else mean.round()).to(like[name].dtype, copy=True)
        for name, mean in buffers.items()
    }
