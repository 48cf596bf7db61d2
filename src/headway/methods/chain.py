"""The chain of the local slot: start → (probe → gradient → corrections → optimiser) in every step.

A value's hooks and attributes say where it stands, so the order in which values are given does not matter but among
corrections. A start has `start`, which says where a client begins; a probe has `point` or `point_from`; a correction
has `direction`; an optimiser is a `direction` with `optimises = True`, and makes the last step. Where no optimiser is
given, it is plain SGD, which leaves a direction as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar, cast

from headway.errors import UserError
from headway.methods import returned
from headway.methods.parts import adds, shown
from headway.methods.slots import Client, Message, States, Step
from headway.vectors import Vector

Value = TypeVar("Value")


def is_probe(part: object) -> bool:
    """Whether a value chooses the point at which the gradient is taken."""
    return callable(getattr(part, "point", None)) or callable(getattr(part, "point_from", None))


def is_start(part: object) -> bool:
    """Whether a value chooses where a client begins."""
    return callable(getattr(part, "start", None))


def is_optimiser(part: object) -> bool:
    """Whether a value makes the step itself, so that none can come after it."""
    return bool(getattr(part, "optimises", False))


def corrects(part: object) -> bool:
    """Whether a value changes the gradient before the optimiser is given it."""
    return callable(getattr(part, "direction", None)) and not is_optimiser(part)


def steps_along(part: object) -> bool:
    """Whether an optimiser steps along the direction that it is given: w ← w − ηd."""
    return "local:gradient_steps" in getattr(part, "provides", ())


def arranged(parts: Sequence[object], plain: Callable[[], object]) -> tuple[object, ...]:
    """The values of a local slot in the order in which they act.

    `plain` makes the optimiser that changes nothing; it stands only where nothing else steps.
    """
    for part in parts:
        if adds(part):
            raise UserError(
                f"local slot: {shown(part)} has adds = True; a client steps by one rule only, and a value's hooks say "
                "whether it is a probe, a correction or the optimiser of it"
            )
    starts, probes, corrections, optimisers = _kinds(parts)
    for kind, found in (
        ("start", [part for part in parts if is_start(part)]),
        ("probe", [part for part in parts if is_probe(part)]),
        ("optimiser", optimisers),
    ):
        if len(found) > 1:
            raise UserError(f"local slot: {shown(found[0])} and {shown(found[1])} cannot both be its {kind}")
    if not optimisers and not corrections:
        optimisers = [plain()]
    elif corrections and optimisers == [plain()]:
        optimisers = []
    _check_last(corrections)
    return (*starts, *probes, *corrections, *optimisers)


def _kinds(parts: Sequence[Value]) -> tuple[list[Value], list[Value], list[Value], list[Value]]:
    """The values sorted into those that only start, those that only probe, corrections, and optimisers."""
    optimisers = [part for part in parts if is_optimiser(part)]
    corrections = [part for part in parts if corrects(part)]
    others = [part for part in parts if not corrects(part) and not is_optimiser(part)]
    probes = [part for part in others if is_probe(part)]
    return [part for part in others if not is_probe(part)], probes, corrections, optimisers


def _check_last(corrections: Sequence[object]) -> None:
    """Refuse a correction after one whose state is made of the mean direction: that would be of another rule."""
    for part, later in pairwise(corrections):
        if "local:mean_direction" in getattr(part, "needs", ()):
            raise UserError(
                f"local slot: {shown(part)} takes the round's mean direction for its own, so {shown(later)} cannot "
                "change it afterwards; give it before"
            )


def joined(
    left: Sequence[Value], right: Sequence[Value], plain: Value, either: Callable[[Value, Value], object]
) -> tuple[Value, ...]:
    """The chains of two methods as one. Where both have a value of a kind, `either` refuses two that differ."""

    def kinds(parts: Sequence[Value]) -> list[list[Value]]:
        return [[part for part in kind if part != plain] for kind in _kinds(parts)]

    found: list[Value] = []
    for mine, theirs in zip(kinds(left), kinds(right), strict=True):
        if mine and theirs and mine != theirs:
            either(mine[0], theirs[0])
        found += mine or theirs
    return tuple(found)


# ── a step of it ─────────────────────────────────────────────────────────────────────────────────────────────────────

Named = tuple[str, Any]
"""The name of a value in its method, and the value."""
_SUM = "direction sum"
"""Where the memory holds Σ_k η_k d_k: no value has this name."""


@dataclass(frozen=True)
class Chain:
    """The values of a local slot, as a local step calls them. States are by the name of the value."""

    beginning: Named | None
    """The value that says where a client begins."""
    probe: Named | None
    steps: tuple[Named, ...]
    """The corrections, then the optimiser where one is given."""
    optimiser: str | None
    """Its name."""
    couples_decay: bool
    sums: bool
    """Whether Σ_k η_k d_k is kept, d_k what the optimiser is given: some value asks for their mean."""
    steps_along: bool
    """Whether the step is along d_k: the optimiser is plain SGD."""
    places: Mapping[str, str]
    naming: Mapping[str, AbstractContextManager[None]]

    @classmethod
    def of(
        cls,
        parts: Sequence[Named],
        places: Mapping[str, str],
        naming: Mapping[str, AbstractContextManager[None]],
        needs: Collection[str],
    ) -> Chain:
        """The chain of a local slot's values; `needs` is what the method's values need of it."""
        optimiser = next(((name, part) for name, part in parts if is_optimiser(part)), None)
        along = optimiser is None or steps_along(optimiser[1])
        return cls(
            beginning=next(((name, part) for name, part in parts if is_start(part)), None),
            probe=next(((name, part) for name, part in parts if is_probe(part)), None),
            steps=tuple((name, part) for name, part in parts if callable(getattr(part, "direction", None))),
            optimiser=optimiser[0] if optimiser else None,
            couples_decay=bool(optimiser and getattr(optimiser[1], "couples_decay", False)),
            sums=not along and "mean_direction" in needs,
            steps_along=along,
            places=places,
            naming=naming,
        )

    def begun(self, memory: States, model: Vector) -> States:
        """The memory with which a client begins."""
        return {**memory, _SUM: {"sum": model.zeros()}} if self.sums else memory

    def start(self, received: Message, kept: States, client: Client) -> Vector:
        """w₀: φ, where no value says otherwise."""
        if self.beginning is None:
            return received["model"]
        name, part = self.beginning
        with self.naming[name]:
            answer = part.start(received, kept.get(name, {}), client)
        return returned.point(self.places[name], "start", answer, received["model"])

    def point(self, w: Vector, gradient: Vector | None, memory: States, step: Step) -> Vector | None:
        """Where the gradient is taken: w without a probe; None where a probe must see the gradient at w first."""
        if self.probe is None:
            return w
        name, part = self.probe
        own, before = memory.get(name, {}), callable(getattr(part, "point", None))
        if not before and gradient is None:
            return None
        with self.naming[name]:
            answer = part.point(w, own, step) if before else part.point_from(w, gradient, own, step)
        return returned.point(self.places[name], "point" if before else "point_from", answer, w)

    def direction(
        self, w: Vector, gradient: Vector, memory: States, step: Step, decay: float = 0.0
    ) -> tuple[Vector, States]:
        """u of w ← w − ηu: the corrections, then the optimiser, with λw before or after it."""
        return self.stepped(w, *self.corrected(w, gradient, memory, step), step, decay)

    def corrected(self, w: Vector, gradient: Vector, memory: States, step: Step) -> tuple[Vector, States]:
        """What the optimiser is given: the gradient after all corrections, and the memory after these."""
        direction = gradient
        for name, part in self.steps:
            if name != self.optimiser:
                with self.naming[name]:
                    answer = part.direction(w, direction, memory.get(name, {}), step)
                direction, memory = self._taken(name, answer, direction, memory)
        return direction, memory

    def stepped(
        self, w: Vector, direction: Vector, memory: States, step: Step, decay: float = 0.0
    ) -> tuple[Vector, States]:
        """u of w ← w − ηu, from what the optimiser is given."""
        for name, part in self.steps:
            if name == self.optimiser:
                if decay and self.couples_decay:
                    direction, decay = direction.plus(decay, w), 0.0
                memory = self._summed(memory, direction, step) if self.sums else memory
                with self.naming[name]:
                    answer = part.direction(w, direction, memory.get(name, {}), step)
                direction, memory = self._taken(name, answer, direction, memory)
        return direction.plus(decay, w) if decay else direction, memory

    def _taken(self, name: str, answer: object, given: Vector, memory: States) -> tuple[Vector, States]:
        """What one value made of the direction it was given, and the memory with that of the value."""
        before, place = memory.get(name), self.places[name]
        found, after = returned.pair(place, "direction", answer, "(direction, memory)")
        direction = returned.point(place, "direction", found, given)
        after = returned.same_names(place, "direction", "a memory", after, before, ("local", "begin"))
        return direction, memory if before is None else {**memory, name: after}

    def _summed(self, memory: States, direction: Vector, step: Step) -> States:
        before = cast(Vector, memory[_SUM]["sum"])
        return {**memory, _SUM: {"sum": before.plus(step.rate, direction)}}

    def direction_sum(self, memory: States, moved: Vector) -> Vector:
        """Σ_k η_k d_k over a client's steps; where these are along d_k, it is −(θ_i − w₀), less what it `moved`."""
        if self.steps_along:
            return -moved
        if not self.sums:
            raise UserError(
                "end.mean_direction is read and not declared, and the optimiser does not step along its gradient; add "
                'needs = ("local:mean_direction",) to the slot'
            )
        return cast(Vector, memory[_SUM]["sum"])
