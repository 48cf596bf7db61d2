"""What slots need of one another: every need must be met when a method is made, and each thing be given once."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import NoReturn

from headway.errors import UserError
from headway.methods import local, objective, server
from headway.methods.chain import is_optimiser
from headway.methods.parts import shown
from headway.methods.wire import Wire

Parts = Sequence[tuple[str, object]]
"""(name, value) of every slot value of a method."""
_GIVER = {"server": "server", "message": "broadcast", "upload": "local", "local": "local"}
"""The slot whose base should give what is needed of a kind."""


def check(parts: Parts, pooled: bool = False) -> None:
    """Refuse slots of which one needs what none provides, or two provide the same."""
    givers = _givers(parts)
    for name, part in parts:
        for need in getattr(part, "needs", ()):
            if not need.startswith(("model:", "wire:")) and need != "local:mean_direction" and need not in givers:
                _refuse(parts, name, part, need)
    _check_guard([part for _, part in parts], pooled)


def _check_guard(parts: Sequence[object], pooled: bool) -> None:
    """Refuse a server value that must see more than a mean beside one that lets nothing else through."""
    guard = next((part for part in parts if hasattr(part, "bound")), None)
    if guard is not None and pooled:
        raise UserError(
            f"server slot: {shown(guard)} protects clients, and a centralised method has all data in one place; "
            "take a federated one, such as fedavg"
        )
    seen = seen_beside_the_mean(parts)
    if guard is not None and seen is not None:
        raise UserError(
            f"server slot: {seen}, and {shown(guard)} lets through only a mean with noise; take a "
            "method whose server uses the mean (docs/privacy.md lists them)"
        )


_BESIDE_THE_MEAN = {
    "needs_each": "each client's upload",
    "needs_clients": "who took part",
    "keeps_best": "the loss on all clients' data",
}


def seen_beside_the_mean(parts: Iterable[object]) -> str | None:
    """The first value that must see more of clients than the mean of their uploads, and what; None where none does."""
    found = (
        f"{type(part).__name__} must see {what}"
        for part in parts
        for attribute, what in _BESIDE_THE_MEAN.items()
        if getattr(part, attribute, False)
    )
    return next(found, None)


def check_wire(parts: Parts, wire: Wire) -> None:
    """Refuse codes that round what a value cannot have rounded."""
    for name, part in parts:
        if "wire:plain" in getattr(part, "needs", ()) and wire != Wire():
            raise UserError(
                f"{name.split('.')[0]} slot: {shown(part)} averages second moments, which a code of the wire may round "
                f"to zero or below; leave out {shown(wire.up if wire.down == Wire().down else wire.down)}, or take "
                "state=reset or keep"
            )


def _givers(parts: Parts) -> dict[str, object]:
    """Who provides each thing, such as `upload:control`; the local rule provides Δ_i unless it replaces it."""
    givers: dict[str, object] = {}
    rule = _base(parts, "local")
    gifts = [(gift, part) for _, part in parts for gift in getattr(part, "provides", ())]
    if not replaces_delta(parts):
        gifts.append(("upload:delta", rule))
    if not any(is_optimiser(part) for _, part in parts):
        gifts.append(("local:gradient_steps", rule))
    for gift, part in gifts:
        if gift in givers:
            kind, what = gift.split(":", 1)
            raise UserError(f"{shown(givers[gift])} and {shown(part)} both provide the {kind}'s '{what}'; only one can")
        givers[gift] = part
    return givers


def _base(parts: Parts, slot: str) -> object:
    """The base of a slot, its first value; in the local slot the last one, which makes the step."""
    found = [part for name, part in parts if name.startswith(f"{slot}.")]
    return found[-1 if slot == "local" else 0]


def replaces_delta(parts: Iterable[tuple[str, object]]) -> bool:
    """Whether a local value uploads something in place of Δ_i."""
    return any(getattr(part, "replaces_delta", False) for name, part in parts if name.startswith("local."))


def _refuse(parts: Parts, name: str, part: object, need: str) -> NoReturn:
    """Say who needs what, and what can be added that gives it."""
    kind, what = need.split(":", 1)
    giver = _GIVER[kind]
    averaged = kind == "message" and what in getattr(part, "averaged", ())
    advice = _for_average(part) if averaged else _advice(kind, what, replaces_delta(parts))
    raise UserError(
        f"{name.split('.')[0]} slot: {shown(part)} needs '{what}' from the {giver} slot, which "
        f"{shown(_base(parts, giver))} does not provide; {advice}"
    )


def _for_average(optimiser: object) -> str:
    """What else an optimiser needs whose memory is averaged."""
    return (
        "an average travels both ways: add hw.broadcast.vectors(o.averaged) and hw.server.optimiser_mean(o), o the "
        f"optimiser, or spell it, such as fedavg+{type(optimiser).__name__}:state=average"
    )


def _advice(kind: str, what: str, replaces: bool) -> str:
    """What to add, so that the need is met."""
    if kind == "message":
        return f"add it to the message: broadcast=(…, hw.broadcast.vector('{what}'))"
    if kind == "local":
        return "its vectors are in units of a gradient, so the optimiser must be plain SGD: leave out the other one"
    if (kind, what) == ("upload", "delta") and replaces:
        return "take a local rule without replaces_delta"
    homes = (server,) if kind == "server" else (local, objective)
    known = [_construction(home, name) for home in homes for name in home.__all__ if _provides(home, name, kind, what)]
    hook = "whose server_state has it" if kind == "server" else "whose finish uploads it"
    own = f"a value of your own {hook} and that has provides = ('{kind}:{what}',)"
    return f"add {' or '.join([*known, own])}"


def _provides(home: ModuleType, name: str, kind: str, what: str) -> bool:
    given = getattr(getattr(home, name), "provides", ())
    return not isinstance(given, property) and f"{kind}:{what}" in given


def _construction(home: ModuleType, name: str) -> str:
    parameters = inspect.signature(getattr(home, name)).parameters.values()
    arguments = ", ".join(f"{one.name}=…" for one in parameters if one.default is one.empty)
    return f"hw.{home.__name__.rsplit('.', 1)[-1]}.{name}({arguments})"
