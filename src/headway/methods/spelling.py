"""Methods as text: `fedacg`, `fedacg:lam=0.9,beta=0.001`, `fedprox+acg:lam=0.85`."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args, get_type_hints

from headway.errors import UserError, nearest
from headway.methods.arguments import check
from headway.methods.catalogue import METHODS, MODIFIERS, Entry
from headway.methods.method import Method, combine

Argument = bool | int | float | str | None
"""What an argument of a catalogue entry can be."""


def method(spelled: str | Method) -> Method:
    """The method that a text names; a `Method` is returned as it is."""
    if isinstance(spelled, Method):
        return spelled
    if not isinstance(spelled, str):
        raise UserError(f"method is of type {type(spelled).__name__}; give a name such as 'fedacg' or a headway.Method")
    return _named(spelled)


@lru_cache(maxsize=1024)
def _named(spelled: str) -> Method:
    """A text names the same frozen value each time; the papers' tables name one method for hundreds of runs."""
    first, *others = pieces(spelled)
    built = _single(first, METHODS)
    for other in others:
        built = combine(built, _single(other, {**METHODS, **MODIFIERS}))
    return dataclasses.replace(built, name=spelled.strip())


def pieces(spelled: str) -> list[str]:
    """`a:x=1e+2+b` → `a:x=1e+2`, `b`."""
    return [piece.strip() for piece in re.split(r"(?<!\de)\+", spelled)]


def chosen(spelled: str, known: dict[str, Entry] | None = None) -> tuple[Entry, dict[str, Argument]]:
    """The entry that one piece names, and the arguments in force."""
    name, colon, options = spelled.partition(":")
    entry = _entry(spelled, name, known or {**METHODS, **MODIFIERS})
    if colon and not all(option.strip() for option in options.split(",")):
        shipped = next((f"{option}={value}" for option, value in defaults(entry).items() if value is not None), "")
        example = f" or {name}:{shipped}" if shipped else ""
        raise UserError(f"'{spelled}': an option is missing after its colon or comma; write {name}{example}")
    return entry, {**defaults(entry), **_options(entry, options)}


def _entry(spelled: str, name: str, known: Mapping[str, Entry]) -> Entry:
    """The entry of a name among those known at its place."""
    if not name:
        raise UserError("a method's name is missing; write fedacg, fedacg:lam=0.9 or fedprox+acg")
    if name not in known:
        if name in MODIFIERS:
            raise UserError(f"'{name}' is not a method by itself; put it after one: fedavg+{spelled}")
        raise UserError(f"there is no method '{name}'{nearest(name, known)} (headway methods lists them)")
    return known[name]


@dataclass(frozen=True)
class Owner:
    """The piece of a spelled method that has an argument."""

    entry: Entry
    place: int
    name: str
    given: bool
    """Whether the text gives its value."""

    def parse(self, text: str) -> Argument:
        return _value(self.entry.name, self.name, text, get_type_hints(self.entry.build)[self.name])


def owner(spelled: str, name: str) -> Owner | None:
    """The piece of the method that has an argument of this name; None where none has."""
    found = []
    for place, piece in enumerate(pieces(spelled)):
        entry, values = chosen(piece)
        if name in values:
            found.append(Owner(entry, place, name, name in _options(entry, piece.partition(":")[2])))
    if len(found) > 1:
        names = " and ".join(one.entry.name for one in found)
        raise UserError(f"'{name}' is an argument of {names} in '{spelled}'; write its value in the method")
    return found[0] if found else None


def with_option(spelled: str, name: str, value: str) -> str:
    """`fedprox+acg` with lam, 0.9 → `fedprox+acg:lam=0.9`."""
    found = owner(spelled, name)
    assert found is not None
    assert not found.given
    parts = pieces(spelled)
    parts[found.place] += f"{',' if ':' in parts[found.place] else ':'}{name}={value}"
    return "+".join(parts)


def _single(spelled: str, known: dict[str, Entry]) -> Method:
    entry, values = chosen(spelled, known)
    check(entry.name, entry.build, values)
    return dataclasses.replace(entry.build(**values), name=spelled)


def defaults(entry: Entry) -> dict[str, Argument]:
    """The arguments of a catalogue entry with their shipped values."""
    parameters = inspect.signature(entry.build).parameters
    return {name: parameter.default for name, parameter in parameters.items()}


def _options(entry: Entry, text: str) -> dict[str, Argument]:
    known = defaults(entry)
    hints = get_type_hints(entry.build)
    found: dict[str, Argument] = {}
    for option in filter(None, text.split(",")):
        name, equals, value = (piece.strip() for piece in option.partition("="))
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise UserError(f"{entry.name} has no option '{name}'{nearest(name, known)} (its options: {allowed})")
        if not equals or not value:
            raise UserError(f"{entry.name}: option '{name}' has no value; write {name}={known[name]}")
        if name in found:
            raise UserError(f"{entry.name}: option '{name}' is given twice")
        found[name] = _value(entry.name, name, value, hints[name])
    return found


def _value(owner: str, name: str, text: str, hint: object) -> Argument:
    """The text as the option's type: a number, a truth value or a word."""
    kind: type = next(one for one in (*get_args(hint), hint) if isinstance(one, type))
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise UserError(f"{owner}: {name} is '{text}'; allowed: true or false")
        return text.lower() == "true"
    try:
        value: Argument = kind(text)
    except ValueError:
        number = "a whole number" if kind is int else "a number"
        raise UserError(f"{owner}: {name} is '{text}'; it must be {number}") from None
    return value
