"""Twins of layers that draw random numbers or couple the samples of a batch.

`nn.Dropout` draws from a global stream and `nn.BatchNorm` counts padding rows; neither can be the same in every
executor. Their twins take a key and the batch's weights as injected buffers, so a forward pass stays a function of
its inputs. Parameter and buffer names do not change.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from headway import random
from headway.errors import UserError

INJECTED = ("headway_key", "headway_weight")


class KeyedDropout(nn.Module):
    """y = x · b/(1−p), b ~ Bernoulli(1−p) from (key, call, element). `spatial` drops whole channels.

    `calls` counts its uses within one pass, so a layer used twice drops differently each time.
    """

    headway_key: Tensor

    def __init__(self, p: float, spatial: bool) -> None:
        super().__init__()
        self.p, self.spatial, self.calls = p, spatial, 0
        self.register_buffer("headway_key", torch.zeros(2, dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        key = random.fold(self.headway_key, self.calls)
        self.calls += 1
        return dropped(x, self.p, key, self.spatial)


def dropped(x: Tensor, p: float, key: Tensor, spatial: bool) -> Tensor:
    """x · b/(1−p), b ~ Bernoulli(1−p) from (key, element); the same b for a whole channel where it is `spatial`."""
    if p == 1:
        return x * 0
    shape = x.shape[:2] + (1,) * (x.dim() - 2) if spatial else x.shape
    kept = random.uniform(key, tuple(shape)) >= p
    return x * kept.to(x.dtype) / (1 - p)


class WeightedBatchNorm(nn.Module):
    """BatchNorm over the samples of weight 1 only: μ = Σ wx / Σ w, σ² = Σ w(x−μ)² / Σ w, both per channel.

    Running statistics follow PyTorch (unbiased variance). New ones are assigned, never written in place. With
    `stays_local` there are none of the whole federation, and evaluation normalises with the batch at hand.
    """

    headway_weight: Tensor
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(self, original: _BatchNorm) -> None:
        super().__init__()
        self.eps, self.momentum, self.stays_local = original.eps, original.momentum, False
        self.weight, self.bias = original.weight, original.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(original, name))
        self.register_buffer("headway_weight", torch.ones(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        channel = (1, -1) + (1,) * (x.dim() - 2)
        if self.training or self.stays_local or self.running_mean is None or self.running_var is None:
            mean, variance = self._measured(x)
        else:
            mean, variance = self.running_mean, self.running_var
        y = (x - mean.reshape(channel)) * torch.rsqrt(variance.reshape(channel) + self.eps)
        if self.weight is not None:
            y = y * self.weight.reshape(channel)
        return y if self.bias is None else y + self.bias.reshape(channel)

    def _measured(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.to(torch.promote_types(x.dtype, torch.float32))  # sums over a batch are never taken in half precision
        over = [axis for axis in range(x.dim()) if axis != 1]
        rows = self.headway_weight.to(x.dtype).reshape(-1, *[1] * (x.dim() - 1)).expand(len(x), *[1] * (x.dim() - 1))
        count = (rows.sum() * x[0, 0].numel()).clamp(min=1)
        mean = (x * rows).sum(over) / count
        centred = x - mean.reshape(1, -1, *[1] * (x.dim() - 2))
        variance = (centred**2 * rows).sum(over) / count
        if self.training and self.running_mean is not None and self.running_var is not None:
            self._remember(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        return mean, variance

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked = self.num_batches_tracked + 1
        new = self.momentum if self.momentum is not None else 1 / self.num_batches_tracked.to(self.running_mean.dtype)
        self.running_mean = self.running_mean + new * (mean.to(self.running_mean.dtype) - self.running_mean)
        self.running_var = self.running_var + new * (variance.to(self.running_var.dtype) - self.running_var)


def twinned(module: nn.Module) -> nn.Module:
    """A copy of the module in which every dropout and BatchNorm layer is its twin."""
    check_module(module)
    return _replaced(copy.deepcopy(module), {})


def check_module(module: object) -> None:
    """Refuse what is not a network."""
    if isinstance(module, type):
        raise UserError(
            f"model is the class {module.__name__}; it must be a torch.nn.Module, such as {module.__name__}(…)"
        )
    if not isinstance(module, nn.Module):
        raise UserError(f"model is of type {type(module).__name__}; it must be a torch.nn.Module")


_NORMALISING = (_BatchNorm.forward, nn.SyncBatchNorm.forward)
"""The passes whose twin `WeightedBatchNorm` is, of whatever class."""


def _replaced(module: nn.Module, norms: dict[nn.Module, nn.Module], path: str = "") -> nn.Module:
    """`norms` keeps a BatchNorm layer that stands in two places one layer; a dropout layer draws anew in each."""
    if type(module) in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d):
        assert isinstance(module, nn.modules.dropout._DropoutNd)
        return KeyedDropout(module.p, spatial=type(module) is not nn.Dropout)
    if isinstance(module, _BatchNorm):
        if type(module).forward not in _NORMALISING:
            raise UserError(
                f"the model's layer '{path or 'itself'}' is of class {type(module).__name__}, a BatchNorm that "
                "defines its own pass, which counts rows that only fill a batch; use torch.nn.BatchNorm or GroupNorm"
            )
        return norms.setdefault(module, WeightedBatchNorm(module))
    for name, child in module._modules.items():
        if child is not None:
            module._modules[name] = _replaced(child, norms, f"{path}.{name}" if path else name)
    return module
