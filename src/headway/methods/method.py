"""`Method`: five slot values in a frozen record, checked when it is made, and the hooks an engine calls.

>>> Method(broadcast=lookahead(0.85), objective=proximal(0.01), server=momentum(0.85))

A slot holds one *base* and any *additions* (values with `adds = True`): the objective's base is the task loss, a
proximal pull is an addition. A single value, a tuple of values or a plain function may be given; a base that is
missing is FedAvg's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from torch import Tensor

from headway.errors import SlotError, UserError, in_words, note_hook
from headway.methods import chain, needs, returned
from headway.methods.broadcast import model
from headway.methods.hooks import BroadcastSlot, LocalSlot, ObjectiveSlot, ServerSlot
from headway.methods.local import sgd
from headway.methods.objective import task
from headway.methods.parts import check_code, filled, part_name, parts_of, shown, sloped, strays, takes
from headway.methods.server import average
from headway.methods.slots import Client, End, Facts, Fields, Message, Output, States, Step, Uploads
from headway.methods.wire import Wire
from headway.vectors import Vector

Value = TypeVar("Value")

SLOTS = ("broadcast", "objective", "local", "server")
_BASES: dict[str, Callable[[], object]] = {
    "broadcast": model,
    "objective": task,
    "local": sgd,
    "server": average,
}


class _Naming:
    """Around a call of a hook: an exception says or remembers whose hook it was. It adds no frame to the call."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> None:
        if isinstance(fault, UserError):
            raise fault.at(self.place) from fault
        if isinstance(fault, Exception):
            note_hook(fault, self.place)


@dataclass(frozen=True)
class Method:
    """A federated method: what is sent, minimised, stepped, aggregated and how it is written on the wire."""

    broadcast: BroadcastSlot = None
    objective: ObjectiveSlot = None
    local: LocalSlot = None
    server: ServerSlot = None
    wire: Wire = field(default_factory=Wire)
    pooled: bool = False
    """One client holds everybody's data and nothing is sent: the centralised reference."""
    name: str = field(default="composed", compare=False)

    def __post_init__(self) -> None:
        for slot in SLOTS:
            given = parts_of(slot, getattr(self, slot))
            parts = chain.arranged(given, sgd) if slot == "local" else filled(slot, given, _BASES[slot])
            object.__setattr__(self, slot, parts)
        if not isinstance(self.wire, Wire):
            raise UserError(f"wire slot: {self.wire!r} is not a Wire(up=…, down=…)")
        for code in (self.wire.up, self.wire.down):
            check_code(code)
        self._check_names()
        self._check_strays()
        needs.check(list(self.parts()), self.pooled)
        needs.check_wire(list(self.parts()), self.wire)

    def parts(self, *slots: str) -> Iterator[tuple[str, Any]]:
        """(name, value) of every slot value; the name is unique and heads that value's state.

        A value has any of its slot's hooks, and only it knows the form of its state: what hooks return is checked.
        """
        for slot in slots or SLOTS:
            for part in getattr(self, slot):
                yield f"{slot}.{part_name(part)}", part

    def needs(self, kind: str) -> frozenset[str]:
        """What the slots ask of one side, such as `stages` of `model`."""
        declared = {need for _, part in self.parts() for need in getattr(part, "needs", ())}
        return frozenset(need.split(":", 1)[1] for need in declared if need.startswith(f"{kind}:"))

    @cached_property
    def needs_each(self) -> bool:
        return any(getattr(part, "needs_each", False) for _, part in self.parts("server"))

    @cached_property
    def keeps_best(self) -> bool:
        return any(getattr(part, "keeps_best", False) for _, part in self.parts())

    @property
    def suggests(self) -> dict[str, float]:
        return {name: value for _, part in self.parts() for name, value in getattr(part, "suggests", {}).items()}

    def for_model(self, roles: Mapping[str, str]) -> Method:
        """The method for a model whose parameters have these roles, by name."""
        if not any(hasattr(part, "for_model") for _, part in self.parts()):
            return self
        changed: dict[str, Any] = {
            slot: tuple(part.for_model(roles) if hasattr(part, "for_model") else part for part in getattr(self, slot))
            for slot in SLOTS
        }
        return dataclasses.replace(self, **changed)

    def fits(self, population: int, cohort: int) -> None:
        """Refuse a population or a cohort that some slot cannot work with."""
        with self._outside("before the first round"):
            for name, part in self.parts():
                if hasattr(part, "fits"):
                    with self._naming[name]:
                        part.fits(population, cohort)

    @cached_property
    def owned(self) -> dict[str, frozenset[str]]:
        """The names of the server's state that a value changes in place, by the name of the value."""
        owners = {name: frozenset(getattr(part, "owns", ())) for name, part in self.parts("server")}
        return {name: owns for name, owns in owners.items() if owns}

    def _check_names(self) -> None:
        seen: dict[str, object] = {}
        for name, part in self.parts():
            if name in seen:
                slot = name.split(".")[0]
                raise UserError(f"{slot} slot: {shown(seen[name])} and {shown(part)} are the same addition twice")
            seen[name] = part

    def _check_strays(self) -> None:
        """Refuse a hook or an attribute of another slot, unless the value stands there too."""
        for slot in SLOTS:
            for part in getattr(self, slot):
                for name, others in strays(slot, part).items():
                    if not any(part in getattr(self, other) for other in others):
                        raise UserError(
                            f"{slot} slot: {shown(part)} has {name}, which is asked of the {others[0]} slot only; give "
                            f"it there too, or write it there (if it is its own: _{name})"
                        )

    # What an engine calls. States are by the name of the part; parts without state have no entry.

    @cached_property
    def _places(self) -> dict[str, str]:
        """How messages name each value."""
        return {name: f"{name.replace('.', ' slot ', 1)} of method '{self.name}'" for name, _ in self.parts()}

    @cached_property
    def _naming(self) -> dict[str, _Naming]:
        """Names each value in an exception that one of its hooks raises."""
        return {name: _Naming(place) for name, place in self._places.items()}

    @contextmanager
    def _outside(self, when: str) -> Iterator[None]:
        """Failures of hooks that are called outside of rounds, with the place."""
        try:
            yield
        except (UserError, SlotError):
            raise
        except Exception as fault:
            raise SlotError(f"{when}: {in_words(fault)}") from fault

    def server_state(self, model: Vector, population: int) -> States:
        found: States = {}
        with self._outside("before the first round"):
            for name, part in self.parts("server"):
                if hasattr(part, "server_state"):
                    with self._naming[name]:
                        given = part.server_state(model, population)
                    found[name] = returned.state(self._places[name], "server_state", given)
        self._check_owned(found)
        if self.broadcast != (_BASES["broadcast"](),):  # another one may read what the server keeps
            self._check_offer(found)
        return found

    def _check_owned(self, server: States) -> None:
        """Refuse a name of state to be changed in place that is not there."""
        for name, owns in self.owned.items():
            for own in sorted(owns - server[name].keys()):
                raise UserError(f"{self._places[name]}: it owns '{own}', which its server_state does not have")

    def _check_offer(self, server: States) -> None:
        """Refuse names of state that a broadcast cannot tell apart."""
        for what in {what: None for state in server.values() for what in state}:
            holders = [name for name, state in server.items() if what in state]
            if len(holders) > 1 and not self._providers(what):
                one, two = (self._places[name].split(" of ")[0] for name in holders[:2])
                raise UserError(
                    f"{one} and {two} of method '{self.name}' both keep '{what}', so a broadcast cannot tell which is "
                    f"meant; give one another name, or write provides = ('server:{what}',) in the one to be sent"
                )

    def _providers(self, what: str) -> list[str]:
        """The server value that says that it provides a state of this name."""
        return [name for name, part in self.parts("server") if f"server:{what}" in getattr(part, "provides", ())]

    def message(self, model: Vector, server: States) -> Message:
        offered = {name: value for state in server.values() for name, value in state.items()}
        for what in offered:
            offered[what] = next((server[name][what] for name in self._providers(what)), offered[what])
        message: dict[str, Vector] = {}
        for name, part in self.parts("broadcast"):
            place = self._places[name]
            with self._naming[name]:
                answer = part.message(model, offered)
            found = returned.vectors(place, "message", answer)
            returned.once(place, "message", found, message)
            message |= found
            if "model" not in message:
                raise UserError(f"{place}: message returned no 'model'; it must return {{'model': φ}} at least")
        return message

    def client_state(self, model: Vector) -> States:
        """What a client holds before its first round."""
        found: States = {}
        with self._outside("before the first round"):
            for name, part in self.parts("objective", "local"):
                if hasattr(part, "client_state"):
                    with self._naming[name]:
                        given = part.client_state(model)
                    found[name] = returned.state(self._places[name], "client_state", given)
        return found

    def begin(self, received: Message, kept: States, client: Client) -> States:
        found: States = {}
        for name, part in self.parts("objective", "local"):
            if hasattr(part, "begin"):
                with self._naming[name]:
                    given = part.begin(received, kept.get(name, {}), client)
                found[name] = returned.dictionary(self._places[name], "begin", given)
        return self.chain.begun(found, received["model"])

    def value(self, w: Vector, output: Output, memory: States, step: Step) -> Tensor:
        """The objective on one batch, but for its terms with a slope: the base and every addition."""
        values = []
        for name, part in self.parts("objective"):
            if not sloped(part):
                with self._naming[name]:
                    value = part.value(w, output, memory.get(name, {}), step)
                values.append(returned.scalar(self._places[name], value))
        total: Tensor = sum(values[1:], start=values[0])
        return total

    def sloped(self, w: Vector, memory: States, step: Step) -> Iterator[tuple[Tensor, Vector]]:
        """(value, gradient) of each term of w alone."""
        for name, part in self.parts("objective"):
            if sloped(part):
                own, place = memory.get(name, {}), self._places[name]
                with self._naming[name]:
                    value, slope = part.value(w, None, own, step), part.slope(w, own, step)
                yield returned.scalar(place, value), returned.point(place, "slope", slope, w)

    @cached_property
    def chain(self) -> chain.Chain:
        """The local slot: where the gradient is taken, and what is made of it."""
        return chain.Chain.of(list(self.parts("local")), self._places, self._naming, self.needs("local"))

    def finish(self, end: End, memory: States, kept: States) -> tuple[dict[str, Vector], States]:
        """The upload (Δ_i and what slots add) and what the client keeps."""
        added: dict[str, Vector] = {}
        keeps = dict(kept)
        for name, part in self.parts("objective", "local"):
            if hasattr(part, "finish"):
                place, before = self._places[name], kept.get(name)
                with self._naming[name]:
                    answer = part.finish(end, memory.get(name, {}), {} if before is None else before)
                fields, keep = returned.pair(place, "finish", answer, "(upload, what the client keeps)")
                returned.once(place, "finish", returned.vectors(place, "finish", fields), added)
                added.update(fields)
                keep = returned.same_names(place, "finish", "a client state", keep, before, ("local", "client_state"))
                if before is not None:
                    keeps[name] = keep
        return added if needs.replaces_delta(self.parts()) else {"delta": end.delta, **added}, keeps

    def derive(self, fields: Fields, facts: Facts) -> dict[str, Vector]:
        """What the server makes of one upload before the mean, beside the fields themselves; at last it is bounded."""
        derived: dict[str, Vector] = {}
        for name, part in self.parts("server"):
            if hasattr(part, "derive"):
                place = self._places[name]
                with self._naming[name]:
                    answer = part.derive(fields, facts)
                found = returned.vectors(place, "derive", answer)
                returned.once(place, "derive", found, derived)
                derived |= found
        found = {**fields, **derived}
        for name, part in self.guards:
            with self._naming[name]:
                bounded = returned.vectors(self._places[name], "bound", part.bound(found))
            found = returned.same_fields(self._places[name], bounded, found)
        return found

    def update(self, model: Vector, uploads: Uploads, server: States) -> tuple[Vector, States]:
        """Additions may prepare the uploads; then the base moves the model, and each addition in turn."""
        after = dict(server)
        for name, part in dict((*self.guards, *self.parts("server"))).items():
            if hasattr(part, "prepare"):
                with self._naming[name]:
                    answer = part.prepare(uploads, after.get(name, {}))
                uploads, state = returned.pair(self._places[name], "prepare", answer, "(uploads, state)")
                self._keep(name, "prepare", state, after)
        for name, part in self.parts("server"):
            place = self._places[name]
            with self._naming[name]:
                answer = part.update(model, uploads, after.get(name, {}))
            moved, state = returned.pair(place, "update", answer, "(model, state)")
            model = returned.point(place, "update", moved, model)
            self._keep(name, "update", state, after)
        return model, after

    @cached_property
    def guards(self) -> list[tuple[str, Any]]:
        """The server values that stand between the clients and all others."""
        return [(name, part) for name, part in self.parts("server") if hasattr(part, "bound")]

    def _keep(self, name: str, hook: str, state: object, after: States) -> None:
        kept = returned.same_names(
            self._places[name], hook, "a state", state, after.get(name), ("server", "server_state")
        )
        if name in after:
            after[name] = kept

    def client_measures(self, memory: States, end: End) -> dict[str, Tensor]:
        """Scalars of one client's round that are recorded as weighted means."""
        found: dict[str, Tensor] = {}
        for name, part in self.parts("objective", "local"):
            if hasattr(part, "measures"):
                own = memory.get(name, {})
                given = (own, end) if self._measures_end[name] else (own,)
                with self._naming[name]:
                    measured = part.measures(*given)
                self._measured(name, measured, found)
        return found

    @cached_property
    def _measures_end(self) -> dict[str, bool]:
        """Whether the measures of a value are of the memory and the round's end, and not of the memory alone."""
        clients = self.parts("objective", "local")
        return {name: takes(part.measures, 2) for name, part in clients if hasattr(part, "measures")}

    def server_measures(self, server: States) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, part in self.parts("server"):
            if hasattr(part, "measures"):
                with self._naming[name]:
                    measured = part.measures(server.get(name, {}))
                self._measured(name, measured, found)
        return found

    def _measured(self, name: str, new: dict[str, Tensor], found: dict[str, Tensor]) -> None:
        place = self._places[name]
        returned.once(place, "measures", returned.dictionary(place, "measures", new), found)
        found.update(new)


def combine(left: Method, right: Method) -> Method:
    """`left+right`: the slots of both. Where both change a slot's base, they cannot be combined."""
    name = f"{left.name} + {right.name}"
    slots = {slot: _joined(name, slot, getattr(left, slot), getattr(right, slot)) for slot in SLOTS}
    plain = Wire()
    wire = Wire(
        up=_either(name, "wire slot up", left.wire.up, right.wire.up, plain.up),
        down=_either(name, "wire slot down", left.wire.down, right.wire.down, plain.down),
    )
    return Method(**slots, wire=wire, pooled=left.pooled or right.pooled, name=f"{left.name}+{right.name}")


def _joined(name: str, slot: str, left: Sequence[Value], right: Sequence[Value]) -> tuple[Value, ...]:
    """The values of a slot of both methods: one base, and each addition once."""
    if slot == "local":
        plain: Any = sgd()
        return chain.joined(left, right, plain, lambda one, two: _either(name, "local slot", one, two, plain))
    (mine, *additions), (theirs, *more) = left, right
    base = _either(name, f"{slot} slot", mine, theirs, _BASES[slot]())
    return (base, *additions, *(part for part in more if part not in additions))


def _either(name: str, place: str, mine: Value, theirs: Value, default: object) -> Value:
    """The one of two values that is not the default; refused where there are two such."""
    if mine != theirs and default not in (mine, theirs):
        raise UserError(f"{name}: both set the {place}, to {mine!r} and {theirs!r}; only one can")
    return theirs if mine == default else mine
