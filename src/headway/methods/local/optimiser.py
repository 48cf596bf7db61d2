"""What every optimiser does with its memory between a client's rounds.

`reset` begins anew in each round. `keep` goes on with the client's own memory: it is client state. `average` goes on
with the weighted mean of what the clients of the last round uploaded, so it travels both ways.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar

from headway.methods.arguments import Among
from headway.methods.slots import Client, End, Message, State, Step
from headway.vectors import Vector

Lifetime = Annotated[str, Among("reset", "keep", "average")]


class Optimiser(ABC):
    """A value of the local slot that makes the step; a subclass says what it remembers and which direction it takes."""

    state: str
    """What becomes of the memory between rounds."""
    averaged: ClassVar[tuple[str, ...]]
    """The names in the memory: all of it is averaged where `state` is so."""
    _plain_wire: ClassVar[bool] = False
    """Whether an average must travel as it is: rounded, a second moment near zero would be zero or less."""

    optimises = True

    @abstractmethod
    def optimiser_state(self, model: Vector) -> State:
        """What it remembers before its first step."""

    @abstractmethod
    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]: ...

    @property
    def needs(self) -> tuple[str, ...]:
        if self.state != "average":
            return ()
        return (*(f"message:{name}" for name in self.averaged), *(["wire:plain"] if self._plain_wire else []))

    @property
    def provides(self) -> tuple[str, ...]:
        return tuple(f"upload:{name}" for name in self.averaged) if self.state == "average" else ()

    def client_state(self, model: Vector) -> State:
        return self.optimiser_state(model) if self.state == "keep" else {}

    def begin(self, received: Message, kept: State, client: Client) -> State:
        if self.state == "average":
            return {name: received[name] for name in self.averaged}
        return kept if self.state == "keep" else self.optimiser_state(received["model"])

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        return memory if self.state == "average" else {}, memory if self.state == "keep" else {}
