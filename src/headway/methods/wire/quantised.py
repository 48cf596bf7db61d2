from __future__ import annotations

from typing import Annotated, TypedDict

import torch
from torch import Tensor

from headway.methods.arguments import Among, Within, slot
from headway.random import fold, uniform
from headway.vectors import Vector


class Codes(TypedDict):
    """A vector as integers: one piece for the whole of it, or one for each tensor."""

    codes: list[Tensor]
    """The codes of each piece, packed into bytes."""
    scales: list[Tensor]
    """s of each piece."""


@slot
class quantised:
    """Q(x): 2^b points on [−s, s], s = max|x|, unbiased stochastic rounding: FedPAQ's low-precision upload.

    |Q − x| ≤ 2s/(2^b − 1) and E‖Q − x‖² ≤ d·s²/(2^b − 1)². s travels as a float32 rounded up, one for the whole
    vector (`vector`) or one for each `tensor`; the b-bit codes travel packed into bytes.
    """

    bits: Annotated[int, Within(1, 16)] = 8
    scope: Annotated[str, Among("vector", "tensor")] = "vector"

    def encode(self, vector: Vector, key: Tensor) -> Codes:
        leaves = list(vector.leaves.values())
        pieces = [vector.flat()] if self.scope == "vector" else [leaf.reshape(-1) for leaf in leaves]
        coded = [self._encode(piece, fold(key, number)) for number, piece in enumerate(pieces)]
        return {"codes": [codes for codes, _ in coded], "scales": [scale for _, scale in coded]}

    def _encode(self, x: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        top = x.abs().max() if x.numel() else x.new_zeros(())
        near = top.to(torch.float32)
        scale = torch.where(near.to(x.dtype) < top, torch.nextafter(near, torch.full_like(near, torch.inf)), near)
        levels = 2**self.bits - 1
        safe = torch.where(scale > 0, scale, 1.0).to(torch.float64)
        place = (x.to(torch.float64) / safe + 1) * (levels / 2)
        down = place.floor()
        up = uniform(key.to(x.device), tuple(x.shape)) < (place - down)
        return packed((down + up).clamp(0, levels).to(torch.int64), self.bits), scale

    def decode(self, payload: Codes, like: Vector) -> Vector:
        whole = self.scope == "vector"
        sizes = [len(like)] if whole else [leaf.numel() for leaf in like.leaves.values()]
        dtype = next(iter(like.leaves.values())).dtype
        pieces = [
            self._decode(codes, scale, size).to(dtype)
            for codes, scale, size in zip(payload["codes"], payload["scales"], sizes, strict=True)
        ]
        return like.unflat(pieces[0] if whole else torch.cat(pieces))

    def _decode(self, codes: Tensor, scale: Tensor, size: int) -> Tensor:
        place = unpacked(codes, self.bits, size).to(torch.float64)
        steps: Tensor = place * (2 / (2**self.bits - 1)) - 1
        return steps * scale.to(torch.float64)


def packed(codes: Tensor, bits: int) -> Tensor:
    """Codes of `bits` bits each as bytes, the lowest bit first; the last byte is filled with zeros."""
    table = (codes[:, None] >> torch.arange(bits, device=codes.device)) & 1
    stream = torch.nn.functional.pad(table.reshape(-1), (0, -table.numel() % 8)).reshape(-1, 8)
    return (stream << torch.arange(8, device=codes.device)).sum(1).to(torch.uint8)


def unpacked(content: Tensor, bits: int, size: int) -> Tensor:
    """The codes that `packed` wrote."""
    stream = (content.to(torch.int64)[:, None] >> torch.arange(8, device=content.device)) & 1
    table = stream.reshape(-1)[: size * bits].reshape(size, bits)
    return (table << torch.arange(bits, device=content.device)).sum(1)
