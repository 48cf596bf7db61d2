"""A slot that keeps in itself what it computes is refused in its second round; what it computes once is its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headway as hw
from conftest import SMALL, own_problem
from headway.methods.slots import State, Uploads
from headway.vectors import Vector


class InItself:
    """Heavy ball with its momentum in an attribute."""

    def __init__(self) -> None:
        self.momentum: Vector | None = None

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        delta = uploads.mean["delta"]
        self.momentum = delta if self.momentum is None else 0.5 * self.momentum + delta
        return model + self.momentum, state


class Written:
    """A tensor of its own that it writes to."""

    def __init__(self) -> None:
        self.sum = torch.zeros(())

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        self.sum += 1
        return model + uploads.mean["delta"], state


class Counted:
    def __init__(self) -> None:
        self.round = 0

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Any) -> tuple[Vector, State]:
        self.round += 1
        return gradient, memory


class Once:
    """A mask that is made when it is needed for the first time."""

    def __init__(self) -> None:
        self.mask: torch.Tensor | None = None

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        if self.mask is None:
            self.mask = torch.ones(())
        return model + float(self.mask) * uploads.mean["delta"], state


def run(**slots: Any) -> hw.Result:
    chosen = SMALL.changed(executor="serial", rounds=3)
    return hw.simulate(hw.Method(**slots, name="mine"), chosen, **own_problem())


def closed_over() -> Any:
    kept: dict[str, Vector] = {}

    def server(model: Vector, uploads: Uploads) -> Vector:
        kept["momentum"] = uploads.mean["delta"] + 0.5 * kept.get("momentum", uploads.mean["delta"])
        return model + kept["momentum"]

    return server


@pytest.mark.parametrize(
    ("slots", "word"),
    [
        ({"server": InItself()}, "'InItself' of the server slot keeps 'momentum'"),
        ({"server": Written()}, "'Written' of the server slot keeps 'sum'"),
        ({"server": closed_over()}, "'server' of the server slot keeps 'kept\\['momentum'\\]'"),
        ({"local": Counted()}, "'Counted' of the local slot keeps 'round'"),
    ],
)
def test_numbers_that_a_slot_keeps_in_itself_are_refused(slots: dict[str, Any], word: str) -> None:
    with pytest.raises(hw.UserError, match=f"round 2: {word} in itself.*Keep it in"):
        run(**slots)


def test_what_is_made_once_is_no_state() -> None:
    assert len(run(server=Once()).records) == 3
