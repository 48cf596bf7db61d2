from __future__ import annotations

from headway.methods.arguments import slot
from headway.methods.slots import Message
from headway.vectors import Vector


@slot
class vector:
    """One more server vector beside the model: `vector("control")` sends SCAFFOLD's c. Traffic down: one model more."""

    name: str

    adds = True

    @property
    def needs(self) -> tuple[str, ...]:
        return (f"server:{self.name}",)

    @property
    def provides(self) -> tuple[str, ...]:
        return (f"message:{self.name}",)

    def message(self, model: Vector, server: Message) -> Message:
        return {self.name: server[self.name]}
