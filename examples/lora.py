"""A pre-trained transformer, adapted by clients whose data stays with them: the whole model, or adapters of LoRA only.

python examples/lora.py            about two minutes on two cores
python examples/lora.py --quick    a few seconds, to see that it runs

Texts are Shakespeare's plays where $HEADWAY_DATA has shakespeare/users.json, else the help topics that Python has.
Half of them are read centrally, by a plain PyTorch loop. Of the others each is a client, whose last fifth is for tests.
Needs `pip install 'headway[finetune]'`: the model is a small Llama of transformers, the adapters are peft's.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

import headway as hw

BLOCK, SHORTEST = 64, 4000
"""Characters of a sample, and of the shortest text that is used."""


@dataclass(frozen=True)
class Effort:
    """How much is done."""

    texts: int
    letters: int
    """Of each text."""
    width: int
    central_steps: int
    rounds: int
    local_steps: int


FULL = Effort(texts=36, letters=32_000, width=96, central_steps=600, rounds=12, local_steps=10)
QUICK = Effort(texts=8, letters=4_000, width=16, central_steps=10, rounds=2, local_steps=2)


def texts() -> dict[str, str]:
    """Plays by their names, or help topics by theirs."""
    path = Path(os.environ.get("HEADWAY_DATA", ".")) / "shakespeare" / "users.json"
    if not path.is_file():
        return {name: text.encode("ascii", "ignore").decode() for name, text in topics.items()}
    content = json.loads(path.read_text(encoding="utf-8"))
    plays: dict[str, str] = {}
    for user, play in zip(content["users"], content["hierarchies"], strict=True):
        plays[str(play)] = plays.get(str(play), "") + content["text"][user]
    return plays


def samples(text: str, alphabet: str) -> list[dict[str, Tensor]]:
    """Blocks of characters as a Hugging Face data set has them; the label of each is the character after it."""
    places = {letter: place for place, letter in enumerate(alphabet)}
    tokens = torch.tensor([places[letter] for letter in text])
    starts = range(0, len(tokens) - BLOCK, BLOCK)
    return [{"input_ids": tokens[at : at + BLOCK], "labels": tokens[at + 1 : at + BLOCK + 1]} for at in starts]


def small_llama(letters: int, width: int) -> nn.Module:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=letters,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=BLOCK,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def pretrained(model: nn.Module, data: list[dict[str, Tensor]], steps: int) -> nn.Module:
    """The model after central training, as anybody would write it."""
    ids, labels = (torch.stack([one[name] for one in data]) for name in ("input_ids", "labels"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(steps):
        rows = torch.randint(len(ids), (32,))
        logits = model(input_ids=ids[rows]).logits
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits.flatten(0, 1), labels[rows].flatten()).backward()
        optimizer.step()
        schedule.step()
    return model


def with_adapters(model: nn.Module) -> nn.Module:
    """The same model with everything frozen but thin matrices beside its linear layers."""
    return get_peft_model(model, LoraConfig(r=4, lora_alpha=16, target_modules="all-linear"))


def federated(name: str, model: nn.Module, clients: list, test: list, rate: float, effort: Effort) -> None:  # type: ignore[type-arg]
    began = time.perf_counter()
    result = hw.simulate(
        "fedavg+adamw",
        model=model,
        clients=clients,
        test=test,
        task="tokens",
        rounds=effort.rounds,
        steps=effort.local_steps,
        rate=rate,
        batch_size=32,
        participation=0.25,
        weight_decay=0.0,
        executor="pool",
    )
    sent = sum(leaf.numel() for leaf in model.parameters() if leaf.requires_grad)
    traffic = sum(record["bytes_up"] + record["bytes_down"] for record in result.records) / 1e6
    last, seconds = result.records[-1], time.perf_counter() - began
    print(row(name, f"{sent:,}", f"{traffic:.2f}", last["perplexity"], last["accuracy"], f"{seconds:.0f}"), flush=True)


def row(name: str, sent: str, traffic: str, perplexity: float, accuracy: float, seconds: str) -> str:
    return f"{name:24}{sent:>12}{traffic:>10}{perplexity:>12.3f}{100 * accuracy:>12.2f}{seconds:>9}"


def before(model: nn.Module, test: list[dict[str, Tensor]], seconds: float) -> str:
    """The row of a model that nobody has adapted yet."""
    ids, labels = (torch.stack([one[name] for one in test]) for name in ("input_ids", "labels"))
    with torch.no_grad():
        logits = torch.cat([model(input_ids=part).logits for part in ids.split(500)])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    right = (logits.argmax(-1) == labels).double().mean()
    return row("as pre-trained", "0", "0", float(loss.exp()), float(right), f"{seconds:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rates", type=float, nargs=2, default=(0.003, 0.003), metavar=("FULL", "LORA"))
    chosen = parser.parse_args()
    effort = QUICK if chosen.quick else FULL
    long = sorted(item for item in texts().items() if len(item[1]) >= SHORTEST)
    every = [(name, text[: effort.letters]) for name, text in long[: effort.texts]]
    alphabet = "".join(sorted(set("".join(text for _, text in every))))
    central = [sample for _, text in every[::2] for sample in samples(text, alphabet)]
    own = [samples(text, alphabet) for _, text in every[1::2]]
    clients = [data[: len(data) * 4 // 5] for data in own]
    test = [sample for data in own for sample in data[len(data) * 4 // 5 :]]

    began = time.perf_counter()
    model = pretrained(small_llama(len(alphabet), effort.width), central, effort.central_steps)
    held = sum(map(len, clients))
    print(f"{len(central):,} samples centrally, {held:,} on {len(clients)} clients, {len(test):,} for tests")
    print(f"{'':24}{'parameters':>12}{'':10}{'test':>12}{'next':>12}")
    print(f"{'':24}{'sent':>12}{'MB':>10}{'perplexity':>12}{'right %':>12}{'seconds':>9}")
    print(before(model, test, time.perf_counter() - began), flush=True)
    federated("all parameters", copy.deepcopy(model), clients, test, chosen.rates[0], effort)
    federated("LoRA's adapters", with_adapters(model), clients, test, chosen.rates[1], effort)


if __name__ == "__main__":
    main()
