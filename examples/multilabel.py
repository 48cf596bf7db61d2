"""Several labels a sample: which of five topics is a text about? Clients care for different topics.

python examples/multilabel.py

A text is a count of 40 words; each topic has words of its own. With `pip install 'headway[metrics]'` the headline is
the F1 score of torchmetrics, as most labels of most samples are 0.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor, nn

import headway as hw

TOPICS, WORDS = 5, 40


def texts(count: int, likes: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Word counts, shape (count, words), and for each topic whether the text is about it, shape (count, topics)."""
    about = (torch.rand(count, TOPICS, generator=draw) < likes).to(torch.int64)
    words = torch.arange(WORDS) % TOPICS == torch.arange(TOPICS).unsqueeze(1)  # every fifth word is of one topic
    rates = 0.3 + about.float() @ words.float()
    return torch.poisson(rates, generator=draw), about


def main(rounds: int = 40) -> None:
    torch.manual_seed(0)  # of the model
    draw = torch.Generator().manual_seed(0)
    clients = []
    for number in range(10):
        likes = torch.full((TOPICS,), 0.1)
        likes[number % TOPICS] = 0.6
        clients.append(texts(20 + 3 * number, likes, draw))
    f1 = f"torchmetrics:F1Score:task=multilabel:num_labels={TOPICS}"
    study = hw.compare(
        ["fedavg", "fedacg"],
        model=nn.Linear(WORDS, TOPICS),
        clients=clients,
        test=texts(300, torch.full((TOPICS,), 0.2), draw),
        task="multilabel",
        metrics=f1 if find_spec("torchmetrics") else (),
        rounds=rounds,
        participation=0.3,
        rate=0.02,
    )
    for method, (result,) in study.runs.items():
        last = result.records[-1]
        score = f"F1 {last['F1Score']:.3f}, " if "F1Score" in last else ""
        print(f"{method:8} {score}{last['accuracy']:.1%} of the labels right, {last['exact_match']:.1%} of the texts")


if __name__ == "__main__":
    main()
