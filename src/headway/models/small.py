"""Networks of a few layers: our own small ones, and those of GradMA, FedNAG and pfl-research."""

from __future__ import annotations

from math import prod

from torch import nn

from headway.models.staged import Staged, image


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """d-C: logistic regression, or linear regression where targets are numbers. 7,850 parameters (784, 10)."""
    return Staged(nn.Flatten(), nn.Linear(prod(shape), classes))


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """d-200-100-C with ReLU. 178,110 parameters (784, 10)."""
    return Staged(
        nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 200), nn.ReLU()),
        nn.Sequential(nn.Linear(200, 100), nn.ReLU()),
        nn.Linear(100, classes),
    )


def gradma_mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """d-200-100-C, BatchNorm and ReLU after each hidden layer: the "NN" of GradMA's program (Luo et al. 2023).

    178,710 parameters (784, 10), 183,962 (784, 62).
    """
    return Staged(
        nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 200), nn.BatchNorm1d(200), nn.ReLU()),
        nn.Sequential(nn.Linear(200, 100), nn.BatchNorm1d(100), nn.ReLU()),
        nn.Linear(100, classes),
    )


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5×5 convolutions (8 and 16 channels, stride 2) with GroupNorm(2), a hidden layer of 64.

    54,362 parameters (1×28×28, 10).
    """
    channels, height, width = image("cnn", shape)
    rows, columns = (height + 3) // 4, (width + 3) // 4
    return Staged(
        nn.Sequential(nn.Conv2d(channels, 8, 5, stride=2, padding=2), nn.GroupNorm(2, 8), nn.ReLU()),
        nn.Sequential(nn.Conv2d(8, 16, 5, stride=2, padding=2), nn.GroupNorm(2, 16), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(16 * rows * columns, 64), nn.ReLU()),
        nn.Linear(64, classes),
    )


def fednag_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5×5 convolutions (32 and 64 channels), each with ReLU and 2×2 max-pooling, then C (Yang et al., section V).

    The paper gives neither padding nor the sizes of linear layers: here there is no padding, as in the tutorial it
    cites, and one linear layer. 62,346 parameters (1×28×28, 10), 69,706 (3×32×32, 10).
    """
    channels, height, width = image("fednag-cnn", shape, least=16)
    rows, columns = ((side - 4) // 2 - 4 for side in (height, width))
    return Staged(
        nn.Sequential(nn.Conv2d(channels, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        nn.Linear(64 * (rows // 2) * (columns // 2), classes),
    )


def pfl_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 3×3 convolutions (32 and 64), max-pooling, dropout ¼, a hidden layer of 128, dropout ½, C.

    pfl-research's CIFAR benchmark: ReLU, no padding, Xavier-uniform weights. 1,626,442 parameters (3×32×32, 10). A
    dropout opens the stage after it, so the feature is not dropped.
    """
    channels, height, width = image("pfl-cnn", shape, least=6)
    rows, columns = (height - 4) // 2, (width - 4) // 2
    network = Staged(
        nn.Sequential(nn.Conv2d(channels, 32, 3), nn.ReLU()),
        nn.Sequential(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Dropout(0.25), nn.Flatten(), nn.Linear(64 * rows * columns, 128), nn.ReLU()),
        nn.Sequential(nn.Dropout(0.5), nn.Linear(128, classes)),
    )
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return network
