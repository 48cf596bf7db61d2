"""Random views of training images, made on the device inside the step that reads them.

`papers` is what both programs of FedACG's authors do (no paper says so): rotation by an angle uniform in ±10° (nearest
neighbour, fill 0) → crop to the image's size after zero padding of 4 → mirrored with probability ½. `crop-flip` is
GradMA's: the same without the rotation. `half-crop-flip` is FL-Simulator's: that, and only half of the images cropped.
Normalisation follows, in `Federation.inputs`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headway import random
from headway.data.columns import Columns, Windows, shapes
from headway.errors import UserError

DEGREES = {"papers": 10.0, "crop-flip": 0.0, "half-crop-flip": 0.0}
"""The largest angle of a rotation, in degrees, for each kind of augmentation."""
CROPPED = {"half-crop-flip": 0.5}
"""The share of the images that are cropped, where not all are."""
PADDING = 4
_BITS = 20
"""Sine and cosine are rounded to this many binary places."""


def check(kind: str, samples: Columns) -> None:
    """Refuse samples that are not uint8 images, for which augmentation is not defined."""
    images = isinstance(samples, Tensor) and samples.dtype == torch.uint8 and samples.dim() == 4
    if kind != "none" and not images:
        raise UserError(
            f"augmentation is '{kind}', which is for uint8 images (channels, height, width), but samples are "
            f"{_kind(samples)} of shape {shapes(samples)}; use --augmentation none"
        )


def _kind(samples: Columns) -> str:
    if isinstance(samples, Tensor):
        return str(samples.dtype).removeprefix("torch.")
    return "text" if isinstance(samples, Windows) else "several tensors"


def augmented(x: Tensor, words: Tensor, kind: str) -> Tensor:
    """A random view of each image, uint8 (batch, channels, height, width); view b depends on (x_b, key, b) only.

    Rotation, crop and mirror are maps of places, so their composition is one gather. Sine and cosine are rounded to a
    grid of 2⁻²⁰ and all that follows is whole numbers: the same pixels on every device, stacked or compiled.
    """
    batch, channels, height, width = x.shape
    draws = random.uniform(random.apart(words, "augmentation"), (batch, 4, 1, 1)).to(torch.float64)
    turn, down, right, mirror = draws.unbind(1)
    downwards, rightwards = _offset(down), _offset(right)
    if kind in CROPPED:  # without a rotation, the first number is free to say which are cropped
        downwards, rightwards = (torch.where(turn < CROPPED[kind], part, 0) for part in (downwards, rightwards))
    row = torch.arange(height, device=x.device).reshape(1, -1, 1) + downwards
    column = torch.arange(width, device=x.device).reshape(1, 1, -1)
    column = torch.where(mirror < 0.5, width - 1 - column, column) + rightwards
    from_row, from_column = _rotated(row, column, height, width, (2 * turn - 1) * math.radians(DEGREES[kind]))
    inside = _within(row, height) & _within(column, width) & _within(from_row, height) & _within(from_column, width)
    place = torch.where(inside, from_row * width + from_column, 0).reshape(batch, 1, -1)
    seen = x.reshape(batch, channels, -1).gather(2, place.expand(-1, channels, -1)).reshape(x.shape)
    return torch.where(inside.unsqueeze(1), seen, 0)


def _offset(u: Tensor) -> Tensor:
    """Where the crop begins, relative to the image without padding: uniform in {−4, …, 4}, from u uniform in [0, 1)."""
    return (u * (2 * PADDING + 1)).long() - PADDING


def _rotated(row: Tensor, column: Tensor, height: int, width: int, angle: Tensor) -> tuple[Tensor, Tensor]:
    """The place of the pixel that comes to (row, column) when an image turns left about its centre.

    The centre is ((height − 1)/2, (width − 1)/2). With distances y, x from it the nearest pixel is
    (⌊cos·y + sin·x + height/2⌋, ⌊cos·x − sin·y + width/2⌋). Here y and x are doubled, so that they are whole.
    """
    one = 1 << _BITS
    cosine, sine = ((one * part).round().long() for part in (angle.cos(), angle.sin()))
    y, x = 2 * row - (height - 1), 2 * column - (width - 1)
    from_row = cosine * y + (sine * x + one * height)
    from_column = (cosine * x + one * width) - sine * y
    return from_row >> (_BITS + 1), from_column >> (_BITS + 1)


def _within(place: Tensor, side: int) -> Tensor:
    return (place >= 0) & (place < side)
