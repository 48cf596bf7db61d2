"""The executors that have a name: one line each, which the settings, the command line, the engine and the tests read.

The executor NAME is made by the function `executor` of `headway.engine.NAME`, with underscores for hyphens.
`engine/executor.py` says what it must have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ExecutorKind:
    """A line of the table."""

    forms: tuple[str, ...] = ("",)
    """What may stand after its name and a colon; the empty form is its name alone."""
    device: str | None = None
    """The only kind of device that it runs on."""
    alone: bool = False
    """Whether no client shares a tensor with another. Uncompiled, such an executor takes short batches as they are."""


COMPILED = ("", "compiled")
KINDS: Mapping[str, ExecutorKind] = {
    "serial": ExecutorKind(COMPILED, alone=True),
    "batched": ExecutorKind(COMPILED),
    "pool": ExecutorKind(COMPILED, device="cpu", alone=True),
    "graphed": ExecutorKind(("", "streams", "streams:compiled", "stacked", "stacked:compiled"), device="cuda"),
}

EXECUTORS = ("auto", *(f"{name}:{form}".rstrip(":") for name, kind in KINDS.items() for form in kind.forms))
"""`auto` chooses among all of them, `graphed` among those that begin with its name."""


ELSEWHERE = "sites"
"""In the place of an executor's name: the clients were trained at other places."""


def kind_of(name: str) -> ExecutorKind:
    """The line of an executor, by a full name such as `graphed:streams:compiled`."""
    return KINDS[name.partition(":")[0]]


def fills(name: str) -> bool:
    """Whether an executor fills short batches up to a shape; eager ones of a client alone take them as they are."""
    return ":" in name or not kind_of(name).alone


def is_form_of(name: str, asked: str) -> bool:
    """Whether an executor is the one asked for, or a form of it, as `graphed:streams` is of `graphed`."""
    return f"{name}:".startswith(f"{asked}:")
