"""Operations written anew for compiled programs, where torch's own form is slow there. Same numbers up to rounding.

Group normalisation is taken apart so that it reads and writes any memory layout: torch's kernel wants channels apart,
convolutions want them together, and half of the time would go into moving between the two. A convolution of stacked
clients whose channels are not a multiple of four has no fast kernel; it becomes a product of matrices. One client's
convolution of fewer than eight channels in 16 bits has none either; it gets channels of zeros.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten


def _over_image(tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor of shape (batch, channels), to be multiplied with images."""
    return tensor.reshape(*tensor.shape, *[1] * (like.dim() - 2))


def _per_channel(groups: Tensor, channels: int) -> Tensor:
    """(batch, groups) → (batch, channels)."""
    return groups.repeat_interleave(channels // groups.shape[1], dim=1)


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: int, channels: int, size: int, groups: int, eps: float
) -> Any:
    """y = (x − μ)/√(σ² + ε)·γ + β, with μ, σ² of a group put together from those of its channels."""
    if x.dim() < 3 or size == 1:
        return NotImplemented
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    variances, means = torch.var_mean(wide, dim=list(range(2, x.dim())), correction=0)
    means, variances = (part.reshape(batch, groups, -1) for part in (means, variances))
    mean = means.mean(2)
    variance = (variances + (means - mean[:, :, None]) ** 2).mean(2)
    inverse = torch.rsqrt(variance + eps)
    factor = _per_channel(inverse, channels)
    if weight is not None:
        factor = factor * weight
    shift = -_per_channel(mean, channels) * factor
    if bias is not None:
        shift = shift + bias
    y = wide * _over_image(factor, x) + _over_image(shift, x)
    return y.to(x.dtype), mean.to(x.dtype), inverse.to(x.dtype)


def _group_norm_backward(
    slope: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    batch: int,
    channels: int,
    size: int,
    groups: int,
    wanted: list[bool],
) -> Any:
    """Two sums over each image, g = Σ ∂y and h = Σ ∂y·x, carry the whole gradient."""
    if x.dim() < 3 or size == 1:
        return NotImplemented
    kind = torch.promote_types(x.dtype, torch.float32)
    over = list(range(2, x.dim()))
    g, h = slope.to(kind).sum(over), (slope.to(kind) * x.to(kind)).sum(over)
    middle, scale = _per_channel(mean.to(kind), channels), _per_channel(inverse.to(kind), channels)
    along = (h - middle * g) * scale  # Σ ∂y·x̂
    factor = scale if weight is None else scale * weight
    count = size * (channels // groups)

    def grouped(values: Tensor) -> Tensor:
        weighted = values if weight is None else values * weight
        return _per_channel(weighted.reshape(batch, groups, -1).sum(2) / count, channels) * scale

    tilt = grouped(along) * scale
    level = grouped(g) - tilt * middle
    back = slope.to(kind) * _over_image(factor, x) - x.to(kind) * _over_image(tilt, x) - _over_image(level, x)
    return (
        back.to(x.dtype) if wanted[0] else None,
        along.sum(0).to(x.dtype) if wanted[1] else None,
        g.sum(0).to(x.dtype) if wanted[2] else None,
    )


def _odd(x: Tensor, weight: Tensor, dilation: list[int], transposed: bool, groups: int) -> bool:
    """Whether a convolution of stacked clients has no fast kernel, and can be a product of matrices."""
    if groups == 1 or x.dim() != 4 or transposed or any(step != 1 for step in dilation):
        return False
    return bool(weight.shape[1] % 4 or (weight.shape[0] // groups) % 4)


def _patches(x: Tensor, kernel: tuple[int, int], stride: list[int], padding: list[int], groups: int) -> Tensor:
    """Images (batch, groups·c, height, width) as columns, shape (groups·batch, c·kh·kw, places)."""
    batch = x.shape[0]
    around = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    views = around.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])
    split = views.reshape(batch, groups, -1, *views.shape[2:])
    return split.permute(1, 0, 2, 5, 6, 3, 4).reshape(groups * batch, split.shape[2] * kernel[0] * kernel[1], -1)


def _each(rows: Tensor, batch: int) -> Tensor:
    """(groups, m, n) → (groups·batch, m, n): the same matrix for each sample of a group."""
    groups, m, n = rows.shape
    return rows.unsqueeze(1).expand(groups, batch, m, n).reshape(groups * batch, m, n)


def _places(x: Tensor, groups: int) -> Tensor:
    """(batch, groups·c, height, width) → (groups·batch, c, height·width)."""
    batch, channels, height, width = x.shape
    split = x.reshape(batch, groups, channels // groups, height * width)
    return split.transpose(0, 1).reshape(groups * batch, channels // groups, -1)


def _images(columns: Tensor, batch: int, height: int, width: int) -> Tensor:
    """The inverse of `_places`."""
    channels = columns.shape[1]
    split = columns.reshape(-1, batch, channels, height, width).transpose(0, 1)
    return split.reshape(batch, -1, height, width)


def _sides(x: Tensor, kernel: tuple[int, int], stride: list[int], padding: list[int]) -> tuple[int, int]:
    height, width = ((x.shape[2 + at] + 2 * padding[at] - kernel[at]) // stride[at] + 1 for at in (0, 1))
    return height, width


NARROW = 8
"""Channels that a GPU's matrix units take at once, in 16 bits."""


def _narrow(x: Tensor, groups: int, transposed: bool) -> bool:
    """Whether a convolution has too few channels for a GPU's matrix units."""
    return x.is_cuda and x.element_size() == 2 and groups == 1 and not transposed and x.shape[1] < NARROW


def _widened(channels: Tensor) -> Tensor:
    """Channels (the second axis) of zeros after those that are there, up to `NARROW`."""
    return F.pad(channels, (*[0] * (2 * channels.dim() - 3), NARROW - channels.shape[1]))


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    how = (stride, padding, dilation, transposed, output_padding, groups)
    if _narrow(x, groups, transposed):
        return aten.convolution(_widened(x), _widened(weight), bias, *how)
    if not _odd(x, weight, dilation, transposed, groups):
        return NotImplemented
    kernel = (weight.shape[2], weight.shape[3])
    rows = weight.reshape(groups, weight.shape[0] // groups, -1)
    columns = torch.bmm(_each(rows, x.shape[0]), _patches(x, kernel, stride, padding, groups))
    y = _images(columns, x.shape[0], *_sides(x, kernel, stride, padding))
    return y if bias is None else y + bias.reshape(1, -1, 1, 1)


def _convolution_backward(
    slope: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    wanted: list[bool],
) -> Any:
    how = (bias_sizes, stride, padding, dilation, transposed, output_padding, groups)
    if _narrow(x, groups, transposed):
        back, steep, sums = aten.convolution_backward(slope, _widened(x), _widened(weight), *how, wanted)
        return *(None if wide is None else wide[:, : x.shape[1]] for wide in (back, steep)), sums
    if not _odd(x, weight, dilation, transposed, groups):
        return NotImplemented
    kernel = (weight.shape[2], weight.shape[3])
    strided = any(step != 1 for step in stride) or any(pad >= side for pad, side in zip(padding, kernel, strict=True))
    if wanted[0] and strided:
        return NotImplemented
    places = _places(slope, groups)
    back = None
    if wanted[0]:
        turned = weight.reshape(groups, -1, *weight.shape[1:]).flip(3, 4).transpose(1, 2)
        around = [side - 1 - pad for pad, side in zip(padding, kernel, strict=True)]
        rows = turned.reshape(groups, weight.shape[1], -1)
        columns = torch.bmm(_each(rows, x.shape[0]), _patches(slope, kernel, [1, 1], around, groups))
        back = _images(columns, x.shape[0], x.shape[2], x.shape[3])
    steep = None
    if wanted[1]:
        products = torch.bmm(places, _patches(x, kernel, stride, padding, groups).transpose(1, 2))
        steep = products.reshape(groups, x.shape[0], *products.shape[1:]).sum(1).reshape(weight.shape)
    return back, steep, slope.sum((0, 2, 3)) if wanted[2] else None


DECOMPOSITIONS: dict[Any, Any] = {
    aten.native_group_norm.default: _group_norm,
    aten.native_group_norm_backward.default: _group_norm_backward,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
}
