"""Small networks in stages. The composition of the stages is the network; the input of the last is the feature.

Methods that look inside a network (MOON, FedMLB, FedDecorr) ask for `stages`; a user's module may have the same
attribute: an iterable of submodules.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from torch import Tensor, nn

from headway.errors import UserError, nearest


class Staged(nn.Module):
    """x → stage 1 → … → stage L."""

    def __init__(self, *stages: nn.Module) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        return x


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Logistic regression."""
    return Staged(nn.Flatten(), nn.Linear(prod(shape), classes))


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """d-200-100-C with ReLU."""
    return Staged(
        nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 200), nn.ReLU()),
        nn.Sequential(nn.Linear(200, 100), nn.ReLU()),
        nn.Linear(100, classes),
    )


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5×5 convolutions (8 and 16 channels, stride 2) with GroupNorm(2), a hidden layer of 64."""
    channels, height, width = shape
    rows, columns = (height + 3) // 4, (width + 3) // 4
    return Staged(
        nn.Sequential(nn.Conv2d(channels, 8, 5, stride=2, padding=2), nn.GroupNorm(2, 8), nn.ReLU()),
        nn.Sequential(nn.Conv2d(8, 16, 5, stride=2, padding=2), nn.GroupNorm(2, 16), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(16 * rows * columns, 64), nn.ReLU()),
        nn.Linear(64, classes),
    )


NETWORKS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {"linear": linear, "mlp": mlp, "cnn": cnn}


def network(name: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    if name not in NETWORKS:
        raise UserError(f"there is no model '{name}'{nearest(name, NETWORKS)} (known: {', '.join(NETWORKS)})")
    if name == "cnn" and len(shape) != 3:
        raise UserError(f"model 'cnn' takes images (channels, height, width), not samples of shape {shape}")
    return NETWORKS[name](shape, classes)
