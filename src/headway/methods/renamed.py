"""Slots that had another name in an earlier version, so that what was stored under it is still read.

The state of a slot is stored under its slot and class, such as `server.update_memory`, and the fingerprints of an own
method have these names too. A checkpoint is read through `with_current_names`; fingerprints are made with `first_name`,
so that they stay as they were.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TypeVar

Value = TypeVar("Value")

RENAMED = {
    "local.changes": "local.delta_changes",
    "local.remembering": "local.gradient_memory",
    "local.steered": "local.server_momentum_step",
    "server.latest_mean": "server.latest_update_mean",
    "server.remembering": "server.update_memory",
    "server.statistics_mean": "server.gradient_momentum",
}
"""The name under which state was stored → the name it has now."""

ADDED_ARGUMENTS = {"sgd": {"momentum": 0.0, "nesterov": False, "decay": "coupled", "state": "reset"}}
"""Arguments that a slot got later, with the values that leave it as it was: fingerprints leave these out."""

_FIRST_NAMES = {now.partition(".")[2]: before.partition(".")[2] for before, now in RENAMED.items()}
_BEFORE = "server/|slots/|the method's part '"
"""What stands before a name: among the server's tensors, among a client's tensors, and in a fingerprint's words."""


def first_name(kind: type) -> str:
    """The name that a class of Headway had when it came."""
    return _FIRST_NAMES.get(kind.__qualname__, kind.__qualname__)


def current_name(stored: str, parts: Collection[str]) -> str:
    """A stored name, such as `server/server.remembering/rows/weight`, as it is for a method with these parts.

    It changes only where the method has the part under its new name, and none under the old one: a user's own class
    may have that.
    """
    for before, now in RENAMED.items():
        if now in parts and before not in parts:
            stored = re.sub(rf"^({_BEFORE}){re.escape(before)}(?=[/']|$)", rf"\g<1>{now}", stored)
    return stored


def with_current_names(stored: Mapping[str, Value], parts: Collection[str]) -> dict[str, Value]:
    """Stored tensors, or fingerprints, under their current names."""
    return {current_name(name, parts): value for name, value in stored.items()}
