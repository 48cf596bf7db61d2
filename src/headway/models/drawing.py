"""Dropout that a model calls as a function, drawn from a key as the twin of a dropout layer draws it.

`F.dropout` and the dropout of `F.scaled_dot_product_attention` take numbers from a global stream, which no two
executors share. Inside `KeyedDraws` they are functions of a key, of how many calls came before, and of the element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from headway import random
from headway.models.twins import dropped
from headway.tracing import is_stacked


class KeyedDraws(TorchFunctionMode):
    """Inside, functions that can drop something are noticed, and draw from a key; no two calls draw the same.

    Without a key they draw as they always do.
    """

    def __init__(self, key: Tensor | None = None) -> None:
        super().__init__()
        self.found = False
        self._key, self._calls = key, 0

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        keyed = _KEYED.get(func)
        self.found = self.found or keyed is not None
        if keyed is None or self._key is None:
            return func(*args, **(kwargs or {}))
        return keyed(self._next_key, *args, **(kwargs or {}))

    def _next_key(self) -> Tensor:
        assert self._key is not None
        self._calls += 1
        return random.fold(self._key, self._calls)


NextKey = Callable[[], Tensor]


def _dropout(
    next_key: NextKey,
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    spatial: bool = False,
) -> Tensor:
    """`F.dropout`."""
    if not training or p == 0:
        return input
    found = dropped(input, p, next_key(), spatial)
    return input.copy_(found) if inplace else found


def _spatial(next_key: NextKey, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`F.dropout1d` and its kin, which drop whole channels."""
    return _dropout(next_key, input, p, training, inplace, spatial=True)


def _attention(
    next_key: NextKey,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`F.scaled_dot_product_attention`: softmax(s QKᵀ + mask), of which some are dropped, times V.

    Torch's fused kernels take a stack of clients one after another, so it is written out for one.
    """
    if dropout_p == 0 and not is_stacked():
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        key, value = (part.repeat_interleave(query.shape[-3] // part.shape[-3], -3) for part in (key, value))
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        place = torch.arange(max(scores.shape[-2:]), device=scores.device)
        attn_mask = place[: scores.shape[-2], None] >= place[: scores.shape[-1]]
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    seen = _softmax(scores)
    return (seen if dropout_p == 0 else dropped(seen, dropout_p, next_key(), spatial=False)) @ value


def _softmax(scores: Tensor) -> Tensor:
    """Over the last axis; zeros where a whole row is masked, as in torch's attention."""
    unseen = (scores == -math.inf).all(-1, keepdim=True)
    return F.softmax(scores.masked_fill(unseen, 0.0), dim=-1).masked_fill(unseen, 0.0)


_KEYED: dict[Callable[..., object], Callable[..., Tensor]] = {
    F.dropout: _dropout,
    F.dropout1d: _spatial,
    F.dropout2d: _spatial,
    F.dropout3d: _spatial,
    F.scaled_dot_product_attention: _attention,
}
