"""What a user gives as `callbacks=`, checked before a run begins."""

from __future__ import annotations

import copy
import difflib
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headway.errors import UserError, nearest, shown
from headway.methods.parts import CLOSE, construction
from headway.runs.observer import can_be_called

if TYPE_CHECKING:
    from headway.runs.callbacks.run import Run

HOOKS = ("on_start", "on_round", "on_end")
NEEDS = ("updates",)
"""What is computed only where a callback has it in its attribute `needs`."""
_ALLOWED = f"a callback has any of {', '.join(f'{hook}(run)' for hook in HOOKS)}"


class OnStart(Protocol):
    def on_start(self, run: Run, /) -> object:
        """A run begins, or goes on after some rounds."""


class OnRound(Protocol):
    def on_round(self, run: Run, /) -> object:
        """A round has ended."""


class OnEnd(Protocol):
    def on_end(self, run: Run, /) -> object:
        """The run has ended, in whichever way: `run.status` says how."""


Callback = Callable[["Run"], object] | OnStart | OnRound | OnEnd
"""A function, which is called after every round, or an object with one hook or several.

Two attributes are optional: `needs`, a tuple with "updates" in it where `run.updates` is read, and `may_fail`, True
where the run goes on without a callback that fails.
"""

Callbacks = Callback | Sequence[Callback]


@dataclass(frozen=True)
class Hooked:
    """A callback with its hooks."""

    name: str
    """As messages have it."""
    given: Callback
    hooks: dict[str, Callable[[Run], object]]
    needs: tuple[str, ...] = ()
    may_fail: bool = False


def hooked(given: Callbacks) -> tuple[Hooked, ...]:
    """A user's callbacks, each of them checked."""
    every = list(given) if isinstance(given, list | tuple) else [given]
    for place, one in enumerate(every):
        if any(one is other for other in every[:place]) and not inspect.isfunction(one):
            raise UserError(f"callbacks: {shown(one)} is given twice; each would be called twice with one state")
    return tuple(_hooked(one) for one in every)


def hooked_as(name: str, given: Callback) -> Hooked:
    """A callback that messages call by another name than its own."""
    one = _hooked(given)
    return Hooked(name, one.given, one.hooks, one.needs, one.may_fail)


def copies(given: Callbacks) -> tuple[Callback, ...]:
    """The callbacks for one of several runs: a function is the same for all, an object is copied as it was given."""
    return tuple(_copied(one) for one in hooked(given))


def _copied(one: Hooked) -> Callback:
    try:
        return copy.deepcopy(one.given)
    except Exception as fault:
        raise UserError(
            f"callbacks: {one.name} cannot be copied ({type(fault).__name__}: {fault}), and each run has its own; open "
            "what it holds in on_start, or give a function, which all runs share"
        ) from fault


def _hooked(given: object) -> Hooked:
    if inspect.isclass(given):
        raise UserError(f"callbacks: {given.__name__} is a class; give an instance: {construction(given)}")
    name = getattr(given, "__name__", None) or type(given).__name__
    _check_names(name, given)
    hooks = {hook: getattr(given, hook) for hook in HOOKS if hasattr(given, hook)}
    if not hooks and not callable(given):
        raise UserError(f"callbacks: {shown(given)} is neither a function nor has it a hook; {_ALLOWED}")
    for hook, function in (hooks or {"": given}).items():
        _check_function(f"{name}.{hook}" if hook else name, function)
    needs, may_fail = getattr(given, "needs", ()), getattr(given, "may_fail", False)
    _check_needs(name, needs)
    if not isinstance(may_fail, bool):
        raise UserError(f"callbacks: the may_fail of {name} is {shown(may_fail)}; it must be True or False")
    every = hooks or {"on_round": given}
    return Hooked(name, given, every, tuple(needs), may_fail)  # type: ignore[arg-type]


def _check_names(name: str, given: object) -> None:
    """Refuse a method that is almost a hook, or named like one: nobody would call it."""
    plain = {hook.replace("_", ""): hook for hook in HOOKS}
    for own in dir(given):
        if own in HOOKS or own.startswith("_") or not callable(inspect.getattr_static(given, own, None)):
            continue
        near = difflib.get_close_matches(own.replace("_", "").lower(), plain, n=1, cutoff=CLOSE)
        if near or own.startswith("on_"):
            meant = f"; did you mean '{plain[near[0]]}'?" if near else nearest(own, HOOKS)
            raise UserError(f"callbacks: {name} has {own}, which is never called{meant} ({_ALLOWED})")
    for own in ("need", "requires", "needed"):
        if hasattr(given, own) and not callable(getattr(given, own)):
            raise UserError(f"callbacks: {name} has {own}, which is not read; did you mean 'needs'?")


def _check_function(name: str, function: object) -> None:
    if not can_be_called(function, 1):
        raise UserError(f"callbacks: {name} cannot be called with the run alone; write it as a function of (run)")
    body = function if inspect.isroutine(function) else getattr(function, "__call__", None)  # noqa: B004
    if inspect.iscoroutinefunction(body) or inspect.isgeneratorfunction(body):
        raise UserError(f"callbacks: {name} is an async function or a generator, whose body would never run")


def _check_needs(name: str, needs: object) -> None:
    if not isinstance(needs, tuple | list) or not all(isinstance(one, str) for one in needs):
        raise UserError(f'callbacks: the needs of {name} are {shown(needs)}; write a tuple: needs = ("updates",)')
    unknown: Iterable[str] = (one for one in needs if one not in NEEDS)
    for one in unknown:
        raise UserError(f"callbacks: {name} needs '{one}'; allowed: {', '.join(NEEDS)}{nearest(one, NEEDS)}")
