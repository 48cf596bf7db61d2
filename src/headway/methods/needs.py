"""What slots need of one another: every need must be met when a method is made, and each thing be given once."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Sequence
from typing import Any

from headway.errors import UserError
from headway.methods import local, objective, server
from headway.methods.parts import shown

Parts = Sequence[tuple[str, Any]]
"""(name, value) of every slot value of a method."""
_GIVER = {"server": "server", "message": "broadcast", "upload": "local"}
"""The slot whose base should give what is needed of a kind."""


def check(parts: Parts) -> None:
    """Refuse slots of which one needs what none provides, or two provide the same."""
    rule = next(part for name, part in parts if name.startswith("local."))
    replaces = getattr(rule, "replaces_delta", False)
    gifts = [(gift, part) for _, part in parts for gift in getattr(part, "provides", ())]
    gifts += [] if replaces else [("upload:delta", rule)]
    for gift, count in Counter(gift for gift, _ in gifts).items():
        if count > 1:
            one, two = [shown(part) for given, part in gifts if given == gift][:2]
            kind, what = gift.split(":", 1)
            raise UserError(f"{one} and {two} both provide the {kind}'s '{what}'; only one can")
    provided = {gift for gift, _ in gifts}
    for name, part in parts:
        for need in getattr(part, "needs", ()):
            kind, what = need.split(":", 1)
            if kind != "model" and need not in provided:
                giver = _GIVER[kind]
                there = next(one for other, one in parts if other.startswith(f"{giver}."))
                raise UserError(
                    f"{name.split('.')[0]} slot: {shown(part)} needs '{what}' from the {giver} slot, which "
                    f"{shown(there)} does not provide; {_advice(kind, what, giver, replaces)}"
                )


def _advice(kind: str, what: str, giver: str, replaces: bool) -> str:
    """What to add, so that the need is met."""
    if kind == "message":
        return f"add it to the message: broadcast=(…, hw.broadcast.vector('{what}'))"
    if (kind, what) == ("upload", "delta") and replaces:
        return "take a local rule without replaces_delta"
    homes = (server,) if kind == "server" else (local, objective)
    known = [_construction(home, name) for home in homes for name in home.__all__ if _provides(home, name, kind, what)]
    hook = "whose server_state has it" if kind == "server" else "whose finish uploads it"
    own = f"a value of your own {hook} and that has provides = ('{kind}:{what}',)"
    return f"add {' or '.join([*known, own])}"


def _provides(home: Any, name: str, kind: str, what: str) -> bool:
    given = getattr(getattr(home, name), "provides", ())
    return not isinstance(given, property) and f"{kind}:{what}" in given


def _construction(home: Any, name: str) -> str:
    parameters = inspect.signature(getattr(home, name)).parameters.values()
    asked = ", ".join(f"{one.name}=…" for one in parameters if one.default is one.empty)
    return f"hw.{home.__name__.rsplit('.', 1)[-1]}.{name}({asked})"
