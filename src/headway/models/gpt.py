"""A small GPT: from (B, T) tokens to (B, T, V) logits, of which those at place t depend on tokens 0 … t only.

Decoder-only and pre-norm, with learned positions, GELU, no biases, and one matrix for embedding and output. The sizes
and the initialisation are those of nanoGPT (Karpathy 2022), after GPT-2 (Radford et al. 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.errors import UserError
from headway.models.staged import Staged

_DEVIATION = 0.02


@dataclass(frozen=True)
class Size:
    """The size of a GPT."""

    layers: int
    heads: int
    width: int
    block: int
    """The most tokens of a sample: there is one learned vector for each place."""
    dropout: float = 0.0

    def drop(self) -> nn.Module:
        """A dropout layer, or none: a model without dropout draws no random numbers."""
        return nn.Dropout(self.dropout) if self.dropout else nn.Identity()


class Embedded(nn.Module):
    """x_t = E[token_t] + P[t], then dropout; tokens are whole numbers (B, T), x has shape (B, T, width)."""

    def __init__(self, name: str, classes: int, size: Size) -> None:
        super().__init__()
        self.name, self.block = name, size.block
        self.tokens = nn.Embedding(classes, size.width)
        self.places = nn.Embedding(size.block, size.width)
        self.drop = size.drop()

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        check_length(self.name, length, self.block)
        embedded: Tensor = self.drop(self.tokens(tokens) + self.places.weight[:length])
        return embedded


class Attention(nn.Module):
    """Each head: softmax(QKᵀ/√d, over the places up to its own) V; then all heads are mixed by one matrix.

    The weights are written out: PyTorch's fused attention draws its dropout from a stream that executors do not share.
    """

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.queries_keys_values = nn.Linear(size.width, 3 * size.width, bias=False)
        self.mixed = nn.Linear(size.width, size.width, bias=False)
        self.drop_weights, self.drop = size.drop(), size.drop()

    def forward(self, x: Tensor) -> Tensor:
        parts = self.queries_keys_values(x).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        place = torch.arange(x.shape[1], device=x.device)
        later = place > place.unsqueeze(1)
        scores = (query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])).masked_fill(later, -math.inf)
        seen = self.drop_weights(F.softmax(scores, dim=-1)) @ value
        attended: Tensor = self.drop(self.mixed(seen.transpose(1, 2).flatten(2)))
        return attended


class Block(nn.Module):
    """x ← x + attention(norm x), then x ← x + W₂ GELU(W₁ norm x) with a hidden layer four times as wide."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention_norm, self.hidden_norm = (nn.LayerNorm(size.width, bias=False) for _ in range(2))
        self.attention = Attention(size)
        self.widened = nn.Linear(size.width, 4 * size.width, bias=False)
        self.narrowed = nn.Linear(4 * size.width, size.width, bias=False)
        self.drop = size.drop()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        hidden = F.gelu(self.widened(self.hidden_norm(x)))
        out: Tensor = x + self.drop(self.narrowed(hidden))
        return out


def check_length(name: str, length: int, block: int) -> None:
    """Refuse samples of more tokens than there are learned places."""
    if length > block:
        raise UserError(f"model '{name}' takes at most {block} tokens a sample, not {length}; use shorter blocks")


def gpt(name: str, shape: tuple[int, ...], classes: int, size: Size) -> nn.Module:
    """A GPT for samples of `shape` (T,) and an alphabet of `classes` tokens; errors call it `name`.

    All matrices ~ N(0, 0.02²), those that write into x divided by √(2 · layers). The stages are the embedding, the
    blocks, the last norm, and the output layer, so that the feature is the normed x.
    """
    if len(shape) != 1:
        raise UserError(f"model '{name}' takes series of tokens (length,), not samples of shape {shape}")
    check_length(name, shape[0], size.block)
    embedded, output = Embedded(name, classes, size), nn.Linear(size.width, classes, bias=False)
    blocks = [Block(size) for _ in range(size.layers)]
    output.weight = embedded.tokens.weight
    network = Staged(embedded, *blocks, nn.LayerNorm(size.width, bias=False), output)
    for parameter in network.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=_DEVIATION)
    for block in blocks:
        for layer in (block.attention.mixed, block.narrowed):
            nn.init.normal_(layer.weight, std=_DEVIATION / math.sqrt(2 * size.layers))
    return network


CHAR = Size(layers=6, heads=6, width=384, block=256, dropout=0.2)
CHAR_SMALL = Size(layers=2, heads=4, width=128, block=128)


def gpt_char(shape: tuple[int, ...], classes: int) -> nn.Module:
    """6 layers, 6 heads, width 384, at most 256 characters, dropout 0.2: nanoGPT's size for Shakespeare.

    10,750,848 parameters (80 characters), whatever the length of a sample.
    """
    return gpt("gpt-char", shape, classes, CHAR)


def gpt_char_small(shape: tuple[int, ...], classes: int) -> nn.Module:
    """2 layers, 4 heads, width 128, at most 128 characters, no dropout: for a CPU.

    420,480 parameters (80 characters), whatever the length of a sample.
    """
    return gpt("gpt-char-small", shape, classes, CHAR_SMALL)
