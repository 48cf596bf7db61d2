"""What hooks return, looked at before it is used: nothing that nobody declared is dropped without a word.

`place` names the value whose hook it was, as in "server slot Heavy of method 'mine'". The checks read names and shapes
only, so they work while a program is traced and take next to no time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

from headway.errors import UserError
from headway.methods.hooks import call
from headway.vectors import Vector


def pair(place: str, hook: str, answer: object, form: str) -> tuple[Any, Any]:
    """The two things that a hook returns."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise UserError(f"{place}: {hook} returned {_kind(answer)}; it must return {form}")
    return answer


def _kind(answer: object) -> str:
    if isinstance(answer, tuple | list):
        return f"a {type(answer).__name__} of length {len(answer)}"
    return "nothing" if answer is None else f"a {type(answer).__name__}"


def same_names(
    place: str, hook: str, what: str, state: object, before: Collection[str] | None, source: tuple[str, str]
) -> dict[str, object]:
    """A state or memory with the names it had before; `source` is the slot and the hook that says where it begins.

    `before` is None where the value does not have this hook.
    """
    if state is None and not before:
        return {}
    if not isinstance(state, dict):
        raise UserError(f"{place}: {hook} returned {_kind(state)} for {what}; it must be a dictionary")
    if before is None:
        if state:
            names = ", ".join(f"'{name}'" for name in state)
            raise UserError(
                f"{place}: {hook} returned {what} with {names}, which would be lost: nothing says where it begins; "
                f"add {call(*source)}"
            )
    elif state.keys() != set(before):
        odd = sorted(map(str, state.keys() ^ set(before)))[0]
        where = "is new" if odd in state else "is missing"
        raise UserError(f"{place}: {hook} returned {what} in which '{odd}' {where}; its names are those of {source[1]}")
    return state


def state(place: str, hook: str, given: object) -> dict[str, object]:
    """The state with which something begins: a dictionary of vectors and tensors, perhaps of further ones of these."""
    if not isinstance(given, Mapping):
        raise UserError(f"{place}: {hook} returned {_kind(given)}; it must be a dictionary of vectors and tensors")
    for name, value in given.items():
        if isinstance(value, Mapping):
            state(place, hook, value)
        elif not isinstance(value, Vector | Tensor):
            raise UserError(
                f"{place}: {hook} has {_kind(value)} for '{name}'; a state holds vectors and tensors, such as "
                "model.zeros() or torch.zeros(())"
            )
    return dict(given)


def dictionary(place: str, hook: str, given: object) -> dict[str, object]:
    """What a hook returned, which must be a dictionary."""
    if not isinstance(given, dict):
        raise UserError(f"{place}: {hook} returned {_kind(given)}; it must return a dictionary")
    return given


def vectors(place: str, hook: str, given: object) -> dict[str, Vector]:
    """Named vectors, as messages and uploads are made of."""
    found: dict[str, Vector] = {}
    for name, value in dictionary(place, hook, given).items():
        if not isinstance(value, Vector):
            raise UserError(f"{place}: {hook} returned {_kind(value)} for '{name}'; it must be a Vector")
        found[name] = value
    return found


def same_fields(place: str, given: dict[str, Vector], before: Collection[str]) -> dict[str, Vector]:
    """What `bound` made of an upload: the same names, or something of a client would enter the mean unbounded."""
    for odd in sorted(given.keys() ^ set(before)):
        where = "is new" if odd in given else "is missing"
        raise UserError(f"{place}: bound returned fields in which '{odd}' {where}; its names are those it was given")
    return given


def once(place: str, hook: str, new: Collection[str], there: Collection[str]) -> None:
    """Refuse a name that another value gave already."""
    for name in new:
        if name in there:
            raise UserError(
                f"{place}: {hook} returned '{name}', which another value returned too; give it another name"
            )


def point(place: str, hook: str, given: object, like: Vector) -> Vector:
    """A vector over the model's parameters: a leaf of another shape would be stretched without a word."""
    if not isinstance(given, Vector):
        raise UserError(f"{place}: {hook} returned {_kind(given)} where a Vector belongs")
    if given is like:
        return given
    for name, leaf in like.leaves.items():
        own = given.leaves.get(name)
        if own is None or own.shape != leaf.shape:
            found = "is missing" if own is None else f"has shape {tuple(own.shape)}, not {tuple(leaf.shape)}"
            raise UserError(f"{place}: {hook} returned a Vector in which '{name}' {found}")
    if len(given.leaves) != len(like.leaves):
        odd = next(name for name in given.leaves if name not in like.leaves)
        raise UserError(f"{place}: {hook} returned a Vector with '{odd}', which the model does not have")
    return given


def scalar(place: str, given: object) -> Tensor:
    """One number as a tensor."""
    if not isinstance(given, Tensor):
        raise UserError(f"{place} returned {_kind(given)}; a value is a tensor, or it has no gradient")
    if given.dim():
        raise UserError(
            f"{place}: value returned a tensor of shape {tuple(given.shape)}; it must be one number, such as "
            "step.batch.mean(…)"
        )
    return given
