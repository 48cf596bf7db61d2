"""LeNet-5, the classic one and GradMA's."""

from __future__ import annotations

from torch import nn

from headway.models.staged import Staged, image


def _convolved(side: int) -> int:
    """A side after two 5×5 convolutions without padding, each halved by pooling."""
    return ((side - 4) // 2 - 4) // 2


def lenet5(shape: tuple[int, ...], classes: int) -> nn.Module:
    """5×5 convolutions of 6 and 16, each with ReLU and 2×2 max-pooling, then 120-84-C (LeCun et al. 1998).

    ReLU and max-pooling, as is usual today, where the original has tanh-like units and averages. 62,006 parameters
    (3×32×32, 10). MNIST's images must be padded to 32×32 to be the original's.
    """
    channels, height, width = image("lenet5", shape, least=16)
    return Staged(
        nn.Sequential(nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(16 * _convolved(height) * _convolved(width), 120), nn.ReLU()),
        nn.Sequential(nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, classes),
    )


def gradma_lenet(shape: tuple[int, ...], classes: int) -> nn.Module:
    """5×5 convolutions of 32 and 64 with BatchNorm, ReLU, 2×2 max-pooling, then 512-128-C with BatchNorm, dropout ½.

    The "LeNet-5" of GradMA's program (Luo et al. 2023). 941,834 parameters (3×32×32, 10) in 18 tensors, 12 buffers. A
    dropout opens the stage after it, so the feature is not dropped.
    """
    channels, height, width = image("gradma-lenet", shape, least=16)
    size = 64 * _convolved(height) * _convolved(width)
    return Staged(
        nn.Sequential(nn.Conv2d(channels, 32, 5), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(32, 64, 5), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(size, 512), nn.BatchNorm1d(512), nn.ReLU()),
        nn.Sequential(nn.Dropout(0.5), nn.Linear(512, 128), nn.BatchNorm1d(128), nn.ReLU()),
        nn.Sequential(nn.Dropout(0.5), nn.Linear(128, classes)),
    )
