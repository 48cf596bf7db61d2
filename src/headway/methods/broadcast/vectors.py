from __future__ import annotations

from headway.methods.arguments import slot
from headway.methods.slots import Message
from headway.vectors import Vector


@slot
class vectors:
    """Several more server vectors beside the model, such as the averaged memory of the clients' optimiser.

    Traffic down: what each of them takes.
    """

    names: tuple[str, ...]

    adds = True

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(f"server:{name}" for name in self.names)

    @property
    def provides(self) -> tuple[str, ...]:
        return tuple(f"message:{name}" for name in self.names)

    def message(self, model: Vector, server: Message) -> Message:
        return {name: server[name] for name in self.names}
