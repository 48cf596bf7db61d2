"""`Staged`: a network in stages. Methods that look inside (MOON, FedDecorr, FedMLB) ask for its attribute `stages`.

The composition of the stages is the network, the input of the last one is the feature, and `branch_points` are where
FedMLB leaves the local network. A user's module may have the same attribute: an iterable of submodules.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from headway.errors import UserError


class Staged(nn.Module):
    """x → stage 1 → … → stage L."""

    def __init__(self, *stages: nn.Module) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        return x


def branch_points(stages: Iterable[nn.Module]) -> tuple[int, ...]:
    """The stages after which a hybrid path leaves for the frozen model, the last stage never among them.

    A stage that learns nothing (pooling) is the same function in every model, so the path that leaves after it is the
    path that leaves before it and is not counted again.
    """
    *before, _ = stages
    learns = [any(leaf.requires_grad for leaf in stage.parameters()) for stage in before]
    return tuple(number for number, does in enumerate(learns) if does or number == 0)


def image(model: str, shape: tuple[int, ...], least: int = 1) -> tuple[int, int, int]:
    """(channels, height, width) of the samples, or what the model takes instead."""
    if len(shape) != 3:
        raise UserError(f"model '{model}' takes images (channels, height, width), not samples of shape {shape}")
    channels, height, width = shape
    if min(height, width) < least:
        raise UserError(f"model '{model}' takes images of at least {least} × {least}, not of {height} × {width}")
    return channels, height, width
