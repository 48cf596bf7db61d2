from __future__ import annotations

from headway.methods.arguments import slot
from headway.methods.slots import Message
from headway.vectors import Vector


@slot
class model:
    """φ = θ: the server's model as it is (McMahan et al. 2017)."""

    def message(self, model: Vector, server: Message) -> Message:
        return {"model": model}
