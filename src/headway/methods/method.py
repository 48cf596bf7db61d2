"""`Method`: five slot values in a frozen record, checked when it is made, and the hooks an engine calls.

>>> Method(broadcast=lookahead(0.85), objective=proximal(0.01), server=momentum(0.85))

A slot holds one *base* and any *additions* (values with `adds = True`): the objective's base is the task loss, a
proximal pull is an addition. A single value, a tuple of values or a plain function may be given; a base that is
missing is FedAvg's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType
from typing import Any

from torch import Tensor

from headway.errors import UserError
from headway.methods.broadcast import model
from headway.methods.local import sgd
from headway.methods.objective import task
from headway.methods.server import average
from headway.methods.slots import Client, End, Fields, Message, Output, State, Step, Uploads
from headway.methods.wire import Wire
from headway.vectors import Vector, leaves_of

SLOTS = ("broadcast", "objective", "local", "server")
_BASES: dict[str, Callable[[], Any]] = {
    "broadcast": model,
    "objective": task,
    "local": sgd,
    "server": average,
}
_REQUIRED = {"broadcast": "message", "objective": "value", "local": "direction", "server": "update"}


@dataclass(frozen=True)
class plain_function:
    """A user's function in a slot, without state of its own.

    broadcast `f(model, server) → {"model": φ}` · objective `f(w, output, step) → a term added to the task loss` ·
    local `f(w, gradient, step) → direction` · server `f(model, uploads) → model`
    """

    slot: str
    function: Callable[..., Any]

    @property
    def adds(self) -> bool:
        return self.slot == "objective"

    def message(self, model: Vector, server: Message) -> Any:
        return self.function(model, server)

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Any:
        return self.function(w, output, step)

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Any, State]:
        return self.function(w, gradient, step), memory

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Any, State]:
        return self.function(model, uploads), state

    def __repr__(self) -> str:
        return self.function.__name__


def part_name(part: Any) -> str:
    return part.function.__name__ if isinstance(part, plain_function) else type(part).__name__


def _sloped(part: Any) -> bool:
    """Whether an addition to the objective gives its own gradient."""
    return getattr(part, "adds", False) and callable(getattr(part, "slope", None))


def _filled(slot: str, given: Any) -> tuple[Any, ...]:
    """The slot's values with its base first."""
    parts = given if isinstance(given, tuple) else () if given is None else (given,)
    parts = tuple(plain_function(slot, part) if isinstance(part, FunctionType) else part for part in parts)
    for part in parts:
        if not callable(getattr(part, _REQUIRED[slot], None)):
            raise UserError(f"{slot} slot: {part!r} has no {_REQUIRED[slot]}(…) and is no function")
    bases = [part for part in parts if not getattr(part, "adds", False)]
    if len(bases) > 1:
        raise UserError(f"{slot} slot: {bases[0]!r} and {bases[1]!r} cannot both be its base")
    additions = tuple(part for part in parts if getattr(part, "adds", False))
    return (bases[0] if bases else _BASES[slot](), *additions)


@dataclass(frozen=True)
class Method:
    """A federated method: what is sent, minimised, stepped, aggregated and how it is written on the wire."""

    broadcast: Any = None
    objective: Any = None
    local: Any = None
    server: Any = None
    wire: Wire = field(default_factory=Wire)
    pooled: bool = False
    """One client holds everybody's data and nothing is sent: the centralised reference."""
    name: str = field(default="composed", compare=False)

    def __post_init__(self) -> None:
        for slot in SLOTS:
            object.__setattr__(self, slot, _filled(slot, getattr(self, slot)))
        if not isinstance(self.wire, Wire):
            raise UserError(f"wire slot: {self.wire!r} is no Wire(up=…, down=…)")
        self._check_names()
        self._check_needs()

    def parts(self, *slots: str) -> Iterator[tuple[str, Any]]:
        """(name, value) of every slot value; the name is unique and heads that value's state."""
        for slot in slots or SLOTS:
            for part in getattr(self, slot):
                yield f"{slot}.{part_name(part)}", part

    def needs(self, kind: str) -> frozenset[str]:
        """What the slots ask of one side, such as `stages` of `model`."""
        asked = {need for _, part in self.parts() for need in getattr(part, "needs", ())}
        return frozenset(need.split(":", 1)[1] for need in asked if need.startswith(f"{kind}:"))

    @cached_property
    def needs_each(self) -> bool:
        return any(getattr(part, "needs_each", False) for _, part in self.parts("server"))

    @cached_property
    def keeps_best(self) -> bool:
        return any(getattr(part, "keeps_best", False) for _, part in self.parts())

    @property
    def suggests(self) -> dict[str, Any]:
        return {name: value for _, part in self.parts() for name, value in getattr(part, "suggests", {}).items()}

    def fits(self, population: int, cohort: int) -> None:
        """Refuse a population or a cohort that some slot cannot work with."""
        for _, part in self.parts():
            if hasattr(part, "fits"):
                part.fits(population, cohort)

    def owned(self, server: State) -> set[int]:
        """The identities of the server's tensors that a slot changes in place."""
        trees = [server[name][own] for name, part in self.parts("server") for own in getattr(part, "owns", ())]
        return {id(leaf) for tree in trees for leaf in leaves_of(tree)}

    def _check_names(self) -> None:
        seen: dict[str, Any] = {}
        for name, part in self.parts():
            if name in seen:
                slot = name.split(".")[0]
                raise UserError(f"{slot} slot: {seen[name]!r} and {part!r} are the same addition twice")
            seen[name] = part

    def _check_needs(self) -> None:
        provided = {gift: part for _, part in self.parts() for gift in getattr(part, "provides", ())}
        if not any(getattr(part, "replaces_delta", False) for _, part in self.parts("local")):
            provided["upload:delta"] = self.local[0]
        gifts = [gift for _, part in self.parts() for gift in getattr(part, "provides", ())]
        twice = next((gift for gift in gifts if gifts.count(gift) > 1), None)
        if twice is not None:
            one, two = [part for _, part in self.parts() if twice in getattr(part, "provides", ())][:2]
            kind, what = twice.split(":", 1)
            raise UserError(f"{one!r} and {two!r} both provide the {kind}'s '{what}'; only one can")
        for name, part in self.parts():
            for need in getattr(part, "needs", ()):
                kind, what = need.split(":", 1)
                if kind != "model" and need not in provided:
                    owner, slot = (
                        name.split(".")[0],
                        {"server": "server", "message": "broadcast"}.get(kind, "local"),
                    )
                    there = getattr(self, slot)[0]
                    raise UserError(
                        f"{owner} slot: {part!r} needs '{what}' from the {slot} slot, which {there!r} does not provide"
                    )

    # What an engine calls. State is a dictionary by part name; parts without state have no entry.

    def server_state(self, model: Vector, population: int) -> State:
        return {
            name: part.server_state(model, population)
            for name, part in self.parts("server")
            if hasattr(part, "server_state")
        }

    def message(self, model: Vector, server: State) -> Message:
        offered = {name: value for state in server.values() for name, value in state.items()}
        message: dict[str, Vector] = {}
        for _, part in self.parts("broadcast"):
            message.update(part.message(model, offered))
        return message

    def client_state(self, model: Vector) -> State:
        """What a newcomer holds."""
        return {
            name: part.client_state(model)
            for name, part in self.parts("objective", "local")
            if hasattr(part, "client_state")
        }

    def begin(self, received: Message, kept: State, client: Client) -> State:
        return {
            name: part.begin(received, kept.get(name, {}), client)
            for name, part in self.parts("objective", "local")
            if hasattr(part, "begin")
        }

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> Tensor:
        """The objective on one batch, but for its terms with a slope: the base and every addition."""
        parts = [(name, part) for name, part in self.parts("objective") if not _sloped(part)]
        values = [part.value(w, output, memory.get(name, {}), step) for name, part in parts]
        for (name, _), value in zip(parts, values, strict=True):
            if not isinstance(value, Tensor):
                raise UserError(f"{name} returned a {type(value).__name__}; a value is a tensor, or it has no gradient")
        total: Tensor = sum(values[1:], start=values[0])
        return total

    def sloped(self, w: Vector, memory: State, step: Step) -> Iterator[tuple[Tensor, Vector]]:
        """(value, gradient) of each term of w alone."""
        for name, part in self.parts("objective"):
            if _sloped(part):
                own = memory.get(name, {})
                yield part.value(w, None, own, step), part.slope(w, own, step)

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        ((name, rule),) = self.parts("local")
        direction, after = rule.direction(w, gradient, memory.get(name, {}), step)
        return direction, {**memory, name: after} if name in memory else memory

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        """The upload (Δ_i and what slots add) and what the client keeps."""
        replaced = any(getattr(part, "replaces_delta", False) for _, part in self.parts("local"))
        fields: dict[str, Vector] = {} if replaced else {"delta": end.delta}
        keeps = dict(kept)
        for name, part in self.parts("objective", "local"):
            if hasattr(part, "finish"):
                added, keep = part.finish(end, memory.get(name, {}), kept.get(name, {}))
                fields.update(added)
                if name in kept:
                    keeps[name] = keep
        return fields, keeps

    def derive(self, fields: Fields, end: End) -> dict[str, Vector]:
        """What the server makes of one upload before the mean, beside the fields themselves."""
        derived = dict(fields)
        for _, part in self.parts("server"):
            if hasattr(part, "derive"):
                derived.update(part.derive(fields, end))
        return derived

    def update(self, model: Vector, uploads: Uploads, server: State) -> tuple[Vector, State]:
        """Additions may prepare the uploads; then the base moves the model, and each addition in turn."""
        after = dict(server)
        for name, part in self.parts("server"):
            if hasattr(part, "prepare"):
                uploads, after[name] = part.prepare(uploads, after.get(name, {}))
        for name, part in self.parts("server"):
            model, state = part.update(model, uploads, after.get(name, {}))
            if name in server:
                after[name] = state
        return model, after

    def client_measures(self, memory: State) -> dict[str, Tensor]:
        """Scalars of one client's round that are recorded as weighted means."""
        return _measured(self.parts("objective", "local"), memory)

    def server_measures(self, server: State) -> dict[str, Tensor]:
        return _measured(self.parts("server"), server)


def _measured(parts: Iterator[tuple[str, Any]], states: State) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, part in parts:
        if hasattr(part, "measures"):
            found.update(part.measures(states.get(name, {})))
    return found


def combine(left: Method, right: Method) -> Method:
    """`left+right`: the slots of both. Where both change a slot's base, they cannot be combined."""
    slots: dict[str, Any] = {}
    for slot in SLOTS:
        default = _BASES[slot]()
        (mine, *additions), (theirs, *more) = getattr(left, slot), getattr(right, slot)
        if mine != theirs and default not in (mine, theirs):
            raise UserError(
                f"{left.name} + {right.name}: both set the {slot} slot, to {mine!r} and {theirs!r}; only one can"
            )
        base = theirs if mine == default else mine
        slots[slot] = (base, *additions, *(part for part in more if part not in additions))
    wire = {}
    for way in ("up", "down"):
        codes = [getattr(left.wire, way), getattr(right.wire, way)]
        other = [code for code in codes if code != getattr(Wire(), way)]
        if len(other) == 2 and other[0] != other[1]:
            raise UserError(
                f"{left.name} + {right.name}: both set the wire slot {way}, to {other[0]!r} and {other[1]!r}"
            )
        wire[way] = other[0] if other else codes[0]
    return Method(**slots, wire=Wire(**wire), pooled=left.pooled or right.pooled, name=f"{left.name}+{right.name}")
