"""Pieces of slots that tests put together, and the hook that a message calls each slot by."""

from __future__ import annotations

from typing import Any


def slot(name: str, **members: Any) -> Any:
    """A value of a class of this name."""
    return type(name, (), members)()


def update(self: Any, model: Any, uploads: Any, state: Any) -> Any:
    return model + uploads.mean["delta"], state


def direction(self: Any, w: Any, gradient: Any, memory: Any, step: Any) -> Any:
    return gradient, memory


def value(self: Any, w: Any, output: Any, memory: Any, step: Any) -> Any:
    return 1e-3 * w.square()


def message(self: Any, model: Any, server: Any) -> Any:
    return {"model": model}


def finish(self: Any, end: Any, memory: Any, kept: Any) -> Any:
    return {}, kept


HOOK: dict[str, Any] = {"broadcast": message, "objective": value, "local": direction, "server": update}
NAME = {"broadcast": "message", "objective": "value", "local": "direction", "server": "update"}
