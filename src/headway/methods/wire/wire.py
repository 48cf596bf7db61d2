from __future__ import annotations

from typing import Any

from headway.methods.arguments import slot
from headway.methods.slots import Code
from headway.methods.wire.plain import plain


@slot
class Wire:
    """One code for each direction."""

    up: Code[Any] = plain()
    down: Code[Any] = plain()
