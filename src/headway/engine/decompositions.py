"""Operations written anew for compiled programs, where torch's own form is slow there. Same numbers up to rounding.

Group normalisation is taken apart so that it reads and writes any memory layout: torch's kernel wants channels apart,
convolutions want them together, and half of the time would go into moving between the two. A convolution of stacked
clients whose channels are not a multiple of four has no fast kernel; it becomes a product of matrices. One client's
convolution of fewer than eight channels in 16 bits has none either; it gets channels of zeros.

A function here returns `NotImplemented` where torch's own form is to stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
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
) -> object:
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
) -> object:
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


class _Convolving(NamedTuple):
    """How a convolution goes over its images, as torch says it."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    output_padding: list[int]
    groups: int


_Settings = tuple[list[int], list[int], list[int], bool, list[int], int]
"""The fields of a `_Convolving`, as torch passes them."""
_SettingsAndWanted = tuple[list[int], list[int], list[int], bool, list[int], int, list[bool]]
"""The same, and which gradients are wanted: of the images, the kernels, the bias."""


def _odd(x: Tensor, weight: Tensor, how: _Convolving) -> bool:
    """Whether a convolution of stacked clients has no fast kernel, and can be a product of matrices."""
    if how.groups == 1 or x.dim() != 4 or how.transposed or any(step != 1 for step in how.dilation):
        return False
    return bool(weight.shape[1] % 4 or (weight.shape[0] // how.groups) % 4)


def _kernel(weight: Tensor) -> tuple[int, int]:
    """Height and width of a convolution's kernels."""
    return weight.shape[2], weight.shape[3]


def _strides(weight: Tensor, how: _Convolving) -> bool:
    """Whether the gradient of a convolution's images is not a plain convolution."""
    sides = zip(how.padding, _kernel(weight), strict=True)
    return any(step != 1 for step in how.stride) or any(pad >= side for pad, side in sides)


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


def _narrow(x: Tensor, how: _Convolving) -> bool:
    """Whether a convolution has too few channels for a GPU's matrix units."""
    return x.is_cuda and x.element_size() == 2 and how.groups == 1 and not how.transposed and x.shape[1] < NARROW


def _widened(channels: Tensor) -> Tensor:
    """The tensor with channels (the second axis) of zeros added behind its own, up to `NARROW`."""
    return F.pad(channels, (*[0] * (2 * channels.dim() - 3), NARROW - channels.shape[1]))


def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *settings: *_Settings) -> object:
    how = _Convolving(*settings)
    if _narrow(x, how):
        return aten.convolution(_widened(x), _widened(weight), bias, *how)
    if not _odd(x, weight, how):
        return NotImplemented
    rows = weight.reshape(how.groups, weight.shape[0] // how.groups, -1)
    columns = torch.bmm(_each(rows, x.shape[0]), _patches(x, _kernel(weight), how.stride, how.padding, how.groups))
    y = _images(columns, x.shape[0], *_sides(x, _kernel(weight), how.stride, how.padding))
    return y if bias is None else y + bias.reshape(1, -1, 1, 1)


def _convolution_backward(
    slope: Tensor, x: Tensor, weight: Tensor, bias_sizes: list[int] | None, *given: *_SettingsAndWanted
) -> object:
    how, wanted = _Convolving(*given[:6]), given[6]
    if _narrow(x, how):
        back, steep, sums = aten.convolution_backward(slope, _widened(x), _widened(weight), bias_sizes, *how, wanted)
        return *(None if wide is None else wide[:, : x.shape[1]] for wide in (back, steep)), sums
    if not _odd(x, weight, how) or (wanted[0] and _strides(weight, how)):
        return NotImplemented
    return (
        _slope_of_images(slope, x, weight, how) if wanted[0] else None,
        _slope_of_weights(slope, x, weight, how) if wanted[1] else None,
        slope.sum((0, 2, 3)) if wanted[2] else None,
    )


def _slope_of_images(slope: Tensor, x: Tensor, weight: Tensor, how: _Convolving) -> Tensor:
    """The gradient of a convolution's images: a convolution of its slope with the kernels turned around."""
    kernel, groups = _kernel(weight), how.groups
    turned = weight.reshape(groups, -1, *weight.shape[1:]).flip(3, 4).transpose(1, 2)
    around = [side - 1 - pad for pad, side in zip(how.padding, kernel, strict=True)]
    rows = turned.reshape(groups, weight.shape[1], -1)
    columns = torch.bmm(_each(rows, x.shape[0]), _patches(slope, kernel, [1, 1], around, groups))
    return _images(columns, x.shape[0], x.shape[2], x.shape[3])


def _slope_of_weights(slope: Tensor, x: Tensor, weight: Tensor, how: _Convolving) -> Tensor:
    """The gradient of a convolution's kernels: products of its slope with the patches of its images."""
    patches = _patches(x, _kernel(weight), how.stride, how.padding, how.groups)
    products = torch.bmm(_places(slope, how.groups), patches.transpose(1, 2))
    return products.reshape(how.groups, x.shape[0], *products.shape[1:]).sum(1).reshape(weight.shape)


DECOMPOSITIONS: dict[OpOverload, Callable[..., object]] = {
    aten.native_group_norm.default: _group_norm,
    aten.native_group_norm_backward.default: _group_norm_backward,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
}
