"""ResNets for small images, with GroupNorm(2), in stages that end before their last ReLU.

Every block applies ReLU first and none after its sum; so does the pooling stage. The network is He et al.'s all the
same, and the output of each stage is what FedMLB's hybrid paths take (Kim et al. 2022): five of them in ResNet-18.
Pooling is a separate stage, so that the feature is the pooled vector.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from headway.models.staged import Staged, image


def _convolution(before: int, after: int, size: int, stride: int) -> nn.Sequential:
    layer = nn.Conv2d(before, after, size, stride=stride, padding=size // 2, bias=False)
    return nn.Sequential(layer, nn.GroupNorm(2, after))


def _projection(before: int, after: int) -> nn.Module:
    """The shortcut where the image is halved and channels come in addition."""
    return _convolution(before, after, 1, 2)


class _Padded(nn.Module):
    """Every second pixel, and zeros for the channels that come in addition: He et al.'s option A."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[..., ::2, ::2], (0, 0, 0, 0, 0, self.channels))


class _Block(nn.Module):
    """x ↦ F(ReLU x) + S(ReLU x), F = conv3×3-norm-ReLU-conv3×3-norm."""

    def __init__(self, before: int, after: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.first, self.second = _convolution(before, after, 3, stride), _convolution(after, after, 3, 1)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        summed: Tensor = self.second(F.relu(self.first(x))) + self.shortcut(x)
        return summed


def _resnet(
    stem: nn.Module, classes: int, widths: tuple[int, ...], blocks: int, shortcut: Callable[[int, int], nn.Module]
) -> nn.Module:
    """Stem, one stage for each width (the later ones halve the image), pooling, classifier."""
    before = widths[0]
    stages: list[nn.Module] = [stem]
    for width in widths:
        same = width == before
        first = _Block(before, width, 1 if same else 2, nn.Identity() if same else shortcut(before, width))
        others = (_Block(width, width, 1, nn.Identity()) for _ in range(blocks - 1))
        stages.append(nn.Sequential(first, *others))
        before = width
    pooled = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Staged(*stages, pooled, nn.Linear(before, classes))


def resnet18(shape: tuple[int, ...], classes: int) -> nn.Module:
    """3×3 stem of 64 without max-pooling, 4 stages of 2 blocks (64, 128, 256, 512), mean over the image, C.

    Shortcuts that change shape are 1×1 convolutions with GroupNorm(2). The network of every main table of FedACG (Kim
    et al. 2024), for 32×32 and 64×64. 11,173,962, 11,220,132, 11,271,432 parameters for 10, 100, 200 classes, in 62
    tensors; feature of 512.
    """
    channels, _, _ = image("resnet18", shape)
    return _resnet(_convolution(channels, 64, 3, 1), classes, (64, 128, 256, 512), 2, _projection)


def resnet18_imagenet(shape: tuple[int, ...], classes: int) -> nn.Module:
    """7×7 stem of 64 with stride 2, max-pooling, then as resnet18: He et al.'s for 224×224, with GroupNorm(2).

    torchvision's ResNet-18 with each BatchNorm replaced, which FL-Simulator trains on 32×32, where the last stage sees
    one pixel. Convolutions begin as torchvision's: N(0, 2/(k²·channels out)). 11,181,642 parameters for 10 classes.
    """
    channels, _, _ = image("resnet18-imagenet", shape)
    stem = nn.Sequential(_convolution(channels, 64, 7, 2), nn.MaxPool2d(3, stride=2, padding=1))
    network = _resnet(stem, classes, (64, 128, 256, 512), 2, _projection)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return network


def resnet20(shape: tuple[int, ...], classes: int) -> nn.Module:
    """3×3 stem of 16, 3 stages of 3 blocks (16, 32, 64), mean over the image, C (He et al. 2016, section 4.2).

    GroupNorm(2) stands where He et al. have BatchNorm; shortcuts have no parameters (option A). GradMA names a
    ResNet-20 that its program cannot build. 269,722 parameters (3 channels, 10), 282,072 (3, 200); feature of 64.
    """
    channels, _, _ = image("resnet20", shape)
    stem = _convolution(channels, 16, 3, 1)
    return _resnet(stem, classes, (16, 32, 64), 3, lambda before, after: _Padded(after - before))
