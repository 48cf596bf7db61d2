"""VGG-9 of FedACG's program and VGG-11 of GradMA's."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from headway.errors import UserError
from headway.models.staged import Staged, image


def vgg9(shape: tuple[int, ...], classes: int) -> nn.Module:
    """3×3 convolutions of 32, 64, 128, 128, 256, 256, max-pooling after every second, average to 4×4, 512-512-C.

    Each convolution has a bias, GroupNorm(2) and ReLU; weights from N(0, 2/(k²·c_out)), biases 0. From the program of
    FedACG (Kim et al. 2024), which takes the 4096 numbers before the three linear layers as the feature: these layers
    are the last stage. 3,493,258, 3,539,428, 3,590,728 parameters for 10, 100, 200 classes.
    """
    channels, height, width = image("vgg9", shape, least=32)
    if height % 32 or width % 32:
        raise UserError(f"model 'vgg9' takes images with sides that are multiples of 32, not of {height} × {width}")
    stages = []
    for number, (before, after) in enumerate(pairwise((channels, 32, 64, 128, 128, 256, 256))):
        convolution = nn.Conv2d(before, after, 3, padding=1)
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        assert convolution.bias is not None
        nn.init.zeros_(convolution.bias)
        pooling = [nn.MaxPool2d(2)] if number % 2 else []
        stages.append(nn.Sequential(convolution, nn.GroupNorm(2, after), nn.ReLU(), *pooling))
    stages[-1].extend([nn.AvgPool2d((height // 32, width // 32)), nn.Flatten()])
    head = (nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, classes))
    return Staged(*stages, nn.Sequential(*head))


def vgg11(shape: tuple[int, ...], classes: int) -> nn.Module:
    """3×3 convolutions 64-M-128-M-256-256-M-512-512-M-512-512-M, then 128, dropout ½, C.

    Each convolution has a bias, BatchNorm and ReLU; M is 2×2 max-pooling. The "VGG-11" of GradMA's program (Luo et al.
    2023). 9,304,548 parameters (3×32×32, 100). The dropout opens the last stage, so the feature is not dropped.
    """
    channels, height, width = image("vgg11", shape, least=32)
    stages = []
    before = channels
    for widths in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        layers: list[nn.Module] = []
        for after in widths:
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
            before = after
        stages.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
    return Staged(
        *stages,
        nn.Sequential(nn.Flatten(), nn.Linear(512 * (height // 32) * (width // 32), 128), nn.ReLU()),
        nn.Sequential(nn.Dropout(0.5), nn.Linear(128, classes)),
    )
