"""One value in a slot: a user's function made into one, its name, and the checks before it is used."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.errors import UserError, nearest
from headway.methods.hooks import ATTRIBUTES, HOOKS, arguments, call, entrances, required
from headway.methods.slots import Message, Output, State, Step, Uploads
from headway.vectors import Vector

CLOSE = 0.81
"""How alike a name and a hook's are, from 0 to 1, for the name to be taken for a misspelling."""
MODEL_NEEDS = ("stages", "full_gradient", "classes")
WIRE_NEEDS = ("plain",)
LOCAL_NEEDS = ("gradient_steps", "mean_direction")
KINDS = ("server", "message", "upload", "local")
"""What can be needed and provided; a need can also be of the `model` or of the `wire`."""
_FUNCTIONS = {
    "broadcast": ("model", "server"),
    "objective": ("w", "output", "step"),
    "local": ("w", "gradient", "step"),
    "server": ("model", "uploads"),
}


@dataclass(frozen=True)
class plain_function:
    """A user's function in a slot, which keeps no state; or a `functools.partial`, or an object that can be called.

    broadcast `f(model, server) → {"model": φ}` · objective `f(w, output, step) → a term added to the task loss` ·
    local `f(w, gradient, step) → direction` · server `f(model, uploads) → model`
    """

    slot: str
    function: Callable[..., object]

    @property
    def adds(self) -> bool:
        return self.slot == "objective"

    def message(self, model: Vector, server: Message) -> object:
        return self.function(model, server)

    def value(self, w: Vector, output: Output, memory: State, step: Step) -> object:
        return self.function(w, output, step)

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[object, State]:
        return self.function(w, gradient, step), memory

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[object, State]:
        return self.function(model, uploads), state

    def __repr__(self) -> str:
        return _function_name(self.function)


def _function_name(function: object) -> str:
    if isinstance(function, functools.partial):
        return _function_name(function.func)
    return str(getattr(function, "__name__", type(function).__name__))


def part_name(part: object) -> str:
    """The name of a slot's value, which is the name of its state too: its class, or the user's function."""
    return repr(part) if isinstance(part, plain_function) else type(part).__name__


def shown(part: object) -> str:
    """A value as messages show it: without an address in memory."""
    kind = type(part)
    return f"{kind.__name__}()" if kind.__repr__ is object.__repr__ else repr(part)


def adds(part: object) -> bool:
    """Whether a value joins its slot's base instead of being it."""
    return bool(getattr(part, "adds", False))


def sloped(part: object) -> bool:
    """Whether an addition to the objective gives its own gradient."""
    return adds(part) and callable(getattr(part, "slope", None))


def parts_of(slot: str, given: object) -> list[object]:
    """What was given for a slot as its values, each checked."""
    return [_part(slot, value) for value in _values(slot, given)]


def filled(slot: str, parts: Sequence[object], base: Callable[[], object]) -> tuple[object, ...]:
    """The slot's values with its base first; `base` makes the one that is taken where none is given."""
    bases = [part for part in parts if not adds(part)]
    if len(bases) > 1:
        raise UserError(f"{slot} slot: {shown(bases[0])} and {shown(bases[1])} cannot both be its base")
    return (bases[0] if bases else base(), *(part for part in parts if adds(part)))


def _values(slot: str, given: object) -> tuple[object, ...]:
    """What was given for a slot, one by one; a tuple that has the slot's hook is a value itself."""
    if isinstance(given, tuple) and not any(hasattr(given, name) for name in entrances(slot)):
        return given
    return () if given is None else (given,)


def _part(slot: str, given: object) -> object:
    """What was given for a slot as a value of it: a function becomes one, anything else is checked."""
    if isinstance(given, plain_function):
        return plain_function(slot, given.function)
    if inspect.isclass(given):
        raise UserError(f"{slot} slot: {given.__name__} is a class; give an instance: {construction(given)}")
    if any(callable(getattr(given, name, None)) for name in entrances(slot)):
        check(slot, given)
        return given
    if not callable(given):
        near = _misspelt(required(slot), _public(given))
        raise UserError(f"{slot} slot: {shown(given)} has no {call(slot, required(slot))} and is not a function{near}")
    _check_callable(slot, given)
    return plain_function(slot, given)


def construction(kind: type) -> str:
    """`Clipped()`, or with the arguments it cannot do without."""
    try:
        parameters = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return f"{kind.__name__}()"
    named = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return f"{kind.__name__}({', '.join(f'{one.name}=…' for one in named if one.default is one.empty)})"


def _misspelt(wanted: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(wanted, list(names), n=1, cutoff=CLOSE)
    return f"; is {near[0]} meant to be {wanted}?" if near else ""


def _check_callable(slot: str, function: Callable[..., object]) -> None:
    names = _FUNCTIONS[slot]
    extra = [name for name in _own_names(function) if name in ATTRIBUTES[slot] or name in HOOKS[slot]]
    if extra:
        wanted = call(slot, required(slot))
        raise UserError(
            f"{slot} slot: {_function_name(function)} has {extra[0]}, which is not asked of a function; write a class "
            f"with {wanted}"
        )
    what = f"{slot} slot: {_function_name(function)}"
    _check_call(what, function, names, f"a function here is called with ({', '.join(names)})")


def _own_names(function: object) -> list[str]:
    """Names that somebody gave a function or the class of a callable object."""
    return [*getattr(function, "__dict__", {})] if inspect.isroutine(function) else _public(function)


def _check_call(what: str, function: Callable[..., object], names: Iterable[str], words: str) -> None:
    """Refuse a function that cannot be called with these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # some functions written in C say nothing of their arguments
    try:
        signature.bind(*names)
    except TypeError:
        raise UserError(f"{what} takes {signature}; {words}") from None


# ── one value with hooks ─────────────────────────────────────────────────────────────────────────────────────────────


def check(slot: str, part: object) -> None:
    """Refuse a value whose hooks could not be called, or whose names say that something would be lost."""
    what = f"{slot} slot: {shown(part)}"
    for name in _public(part):
        if name in HOOKS[slot]:
            _check_hook(slot, what, name, getattr(part, name))
        elif name not in ATTRIBUTES[slot] and not _elsewhere(part, name):
            _check_spelling(slot, what, part, name)
    _check_declared(what, part)
    if callable(getattr(part, "slope", None)) and slot == "objective" and not adds(part):
        raise UserError(f"{what} has a slope and is a base; only an addition (adds = True) gives its own gradient")
    if getattr(part, "owns", ()) and not hasattr(part, "server_state"):
        raise UserError(f"{what} has owns, and no {call('server', 'server_state')} that holds what it names")


def check_code(code: object) -> None:
    """Refuse what is not a code of the wire."""
    if inspect.isclass(code):
        raise UserError(f"wire slot: {code.__name__} is a class; give an instance: {construction(code)}")
    for name in HOOKS["wire"]:
        if not callable(getattr(code, name, None)):
            near = _misspelt(name, _public(code))
            raise UserError(f"wire slot: {shown(code)} has no {call('wire', name)}{near}")
        _check_hook("wire", f"wire slot: {shown(code)}", name, getattr(code, name))


def _public(part: object) -> list[str]:
    return [name for name in dir(part) if not name.startswith("_")]


def _check_hook(slot: str, what: str, name: str, hook: object) -> None:
    if not callable(hook):
        raise UserError(f"{what}: its {name} is {hook!r}; it must be a method, {call(slot, name)}")
    names = arguments(slot, name)
    if name == "measures" and slot in ("objective", "local") and not takes(hook, len(names)):
        names = names[:1]
    _check_call(f"{what}: its {name}", hook, names, f"it is called as {call(slot, name)}")


def takes(hook: Callable[..., object], count: int) -> bool:
    """Whether a hook can be called with this many arguments."""
    try:
        inspect.signature(hook).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


def _is_method(part: object, name: str) -> bool:
    found = inspect.getattr_static(part, name)
    return callable(found) or isinstance(found, staticmethod | classmethod | functools.partialmethod)


def _check_spelling(slot: str, what: str, part: object, name: str) -> None:
    """Refuse a method almost named like a hook, and other names almost those of an attribute."""
    method = _is_method(part, name)
    known = HOOKS[slot] if method else ATTRIBUTES[slot]
    plain = {one.replace("_", ""): one for one in known}
    spelled = name.replace("_", "").lower()
    near = difflib.get_close_matches(spelled, plain, n=1, cutoff=CLOSE)
    near += [one for one in plain if sorted(one) == sorted(spelled)]
    if near:
        kind = "a hook" if method else "an attribute"
        raise UserError(
            f"{what} has {name}, which is not {kind} of this slot; did you mean '{plain[near[0]]}'? "
            f"(if it is its own: _{name})"
        )


def _elsewhere(part: object, name: str) -> list[str]:
    """The slots in which a name would mean something; a code for the wire is nothing else."""
    table: Mapping[str, Iterable[str]] = HOOKS if _is_method(part, name) else ATTRIBUTES
    return [slot for slot, names in table.items() if slot != "wire" and name in names]


def strays(slot: str, part: object) -> dict[str, list[str]]:
    """Hooks of other slots that a value has, and attributes of other slots that it sets; with these slots."""
    if isinstance(part, plain_function):
        return {}
    names = [name for name in _public(part) if name not in HOOKS[slot] and name not in ATTRIBUTES[slot]]
    return {name: found for name in names if (found := _elsewhere(part, name)) and getattr(part, name)}


# ── what it says of itself ───────────────────────────────────────────────────────────────────────────────────────────


def _check_declared(what: str, part: object) -> None:
    for name in ("needs", "provides", "owns"):
        given = getattr(part, name, ())
        if not isinstance(given, tuple | list | set | frozenset) or not all(isinstance(one, str) for one in given):
            raise UserError(f"{what}: its {name} is {given!r}; write a tuple of names, such as {_example(name)}")
    for name in ("needs", "provides"):
        for entry in getattr(part, name, ()):
            _check_entry(what, name, entry)
    for name in getattr(part, "suggests", {}):
        if name != "participation":
            raise UserError(f"{what}: it suggests '{name}'; only a participation is asked of a slot")


def _example(name: str) -> str:
    return {"needs": '("server:momentum",)', "provides": '("upload:control",)', "owns": '("rows",)'}[name]


def _check_entry(what: str, name: str, entry: str) -> None:
    """`KIND:NAME`, of a kind that there is."""
    kind, _, thing = entry.partition(":")
    kinds = (*KINDS, "model", "wire") if name == "needs" else KINDS
    if kind not in kinds or not thing:
        forms = ", ".join(f"{one}:NAME" for one in kinds)
        raise UserError(f"{what}: its {name} has '{entry}'; allowed: {forms}{nearest(kind, kinds)}")
    known = {"model": MODEL_NEEDS, "local": LOCAL_NEEDS, "wire": WIRE_NEEDS}.get(kind, (thing,))
    if thing not in known:
        raise UserError(
            f"{what}: it needs '{entry}'; allowed: {', '.join(f'{kind}:{one}' for one in known)}{nearest(thing, known)}"
        )
