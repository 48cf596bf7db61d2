"""Models of the library transformers, tiny, with random weights, and samples of unequal lengths for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headway.random import built

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'headway[finetune]'")

from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

WORDS, LONGEST, CLASSES = 30, 10, 3
SIZE = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
PADDING = {"input_ids": 0, "attention_mask": 0}
Item = dict[str, Any]


def bert(drop: float, **settings: Any) -> nn.Module:
    drops = {"hidden_dropout_prob": drop, "attention_probs_dropout_prob": drop}
    config = BertConfig(vocab_size=WORDS, max_position_embeddings=16, num_labels=CLASSES, **SIZE, **drops, **settings)
    return BertForSequenceClassification(config)


def gpt2(drop: float) -> nn.Module:
    """With the embedding tied to the output."""
    drops = {"resid_pdrop": drop, "embd_pdrop": drop, "attn_pdrop": drop}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_embd=8, n_layer=2, n_head=2, n_positions=16, **drops, **ends))


def llama(drop: float) -> nn.Module:
    """With rotated positions, and one head of keys for two of queries."""
    config = LlamaConfig(
        vocab_size=WORDS, max_position_embeddings=16, num_key_value_heads=1, attention_dropout=drop, **SIZE
    )
    return LlamaForCausalLM(config)


def vit(drop: float) -> nn.Module:
    drops = {"hidden_dropout_prob": drop, "attention_probs_dropout_prob": drop}
    config = ViTConfig(image_size=8, patch_size=4, num_channels=1, num_labels=CLASSES, **SIZE, **drops)
    return ViTForImageClassification(config)


MODELS: dict[str, Callable[[float], nn.Module]] = {"bert": bert, "gpt2": gpt2, "llama": llama, "vit": vit}


def model(name: str, drop: float = 0.1, **settings: Any) -> nn.Module:
    """One of these models, with the same weights each time."""
    return built(lambda: MODELS[name](drop, **settings), 0, name)


def items(name: str, count: int, seed: int) -> list[Item]:
    """Samples as the datasets of Hugging Face give them: a dictionary, `labels` among it."""
    draw = np.random.default_rng(seed)
    if name == "vit":
        return [
            {"pixel_values": torch.tensor(draw.normal(size=(1, 8, 8))), "labels": int(draw.integers(CLASSES))}
            for _ in range(count)
        ]
    found: list[Item] = []
    for length in draw.integers(3, LONGEST + 1, count).tolist():
        ids = torch.tensor(draw.integers(1, WORDS, length))
        label: int | Tensor = int(draw.integers(CLASSES))
        if name != "bert":  # the next token, and none after the last
            label = torch.cat([ids[1:], torch.tensor([-100])])
        found.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": label})
    return found


def data(name: str, sizes: tuple[int, ...] = (3, 7, 5, 9)) -> dict[str, Any]:
    """Clients of unequal size and a test set: keyword arguments of `build` and `simulate`."""
    clients = [items(name, size, seed) for seed, size in enumerate(sizes)]
    padding = {part: fill for part, fill in PADDING.items() if part in clients[0][0]}
    return {"clients": clients, "test": items(name, 10, 99), "padding": padding or None}


def task(name: str) -> str:
    return "tokens" if name in ("gpt2", "llama") else "classification"
