"""Segmentation: which pixels are background, disc or square? Each client sees its own sizes of shapes.

python examples/segmentation.py

The images are drawn from a seed. Pixels on a border belong to nobody: they have the label −100, which neither the loss
nor a metric counts. With `pip install 'headway[metrics]'` the headline is the mean IoU of torchmetrics.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor, nn

import headway as hw

SIZE, CLASSES, BORDER = 24, 3, -100


def images(count: int, largest: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noisy images of shape (count, 1, 24, 24), and the class of each pixel."""
    draw = torch.Generator().manual_seed(seed)
    down, across = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    labels = torch.zeros(count, SIZE, SIZE, dtype=torch.int64)
    for label in labels:
        for kind in (1, 2):
            radius = int(torch.randint(3, largest, (1,), generator=draw))
            y, x = torch.randint(radius, SIZE - radius, (2,), generator=draw)
            apart = (
                ((down - y) ** 2 + (across - x) ** 2).sqrt()
                if kind == 1
                else torch.maximum((down - y).abs(), (across - x).abs())
            )
            label[apart < radius - 0.5] = kind
            label[(apart - radius).abs() <= 0.5] = BORDER
    light = torch.tensor([0.0, 1.0, -1.0])[labels.clamp(min=0)]
    return (light + 0.7 * torch.randn(labels.shape, generator=draw)).unsqueeze(1), labels


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2), nn.GroupNorm(2, 8), nn.ReLU(),
        nn.Conv2d(8, 16, 5, padding=2), nn.GroupNorm(2, 16), nn.ReLU(),
        nn.Conv2d(16, CLASSES, 1),
    )  # fmt: skip


def main(rounds: int = 10) -> None:
    torch.manual_seed(0)  # of the model
    clients = [images(12 + 4 * number, largest=5 + number % 4, seed=number) for number in range(8)]
    iou = f"torchmetrics:JaccardIndex:task=multiclass:num_classes={CLASSES}:ignore_index={BORDER}"
    result = hw.simulate(
        "fedacg",
        model=network(),
        clients=clients,
        test=images(60, largest=8, seed=100),
        task="segmentation",
        metrics=iou if find_spec("torchmetrics") else (),
        rounds=rounds,
        participation=0.5,
        epochs=2,
        batch_size=4,
        rate=0.1,
    )
    last = result.records[-1]
    of_classes = f", mean IoU {last['JaccardIndex']:.3f}" if "JaccardIndex" in last else ""
    print(f"after {last['round']} rounds: {last['accuracy']:.1%} of the pixels are right{of_classes}")


if __name__ == "__main__":
    main()
