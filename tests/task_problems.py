"""One small problem for each task, and federated averaging of it as anybody would write it in PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conftest import SMALL
from headway.data import columns
from headway.data.batches import plan
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.methods.spelling import method
from headway.random import built

SIZES = (3, 9, 5, 6)
"""With batches of 4 most clients have a short one, of 1, 2 or 3 samples."""
IGNORED = -100


class Draw:
    """Random numbers of one problem."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def numbers(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def whole(self, below: int, *shape: int) -> Tensor:
        return torch.randint(below, shape, generator=self.generator)

    def with_gaps(self, labels: Tensor) -> Tensor:
        """A third of the labels do not count; each sample of a first column keeps one, the second sample none."""
        found = labels.masked_fill(torch.rand(labels.shape, generator=self.generator) < 1 / 3, IGNORED)
        found[:, 0] = labels[:, 0]
        found[1:2] = IGNORED
        return found


@dataclass(frozen=True)
class Problem:
    """Data of a task, a model and, for the plain loop, the loss of a batch as PyTorch has it."""

    samples: Callable[[Draw, int], object]
    """Samples of a client, or of the test set."""
    model: Callable[[], nn.Module]
    loss: Callable[[Any, Any], Tensor]
    """Of a batch: a mean."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Task, metrics and padding."""

    def experiment(self, spelled: str = "fedavg", **settings: Any) -> Experiment:
        draw = Draw(0)
        alone = {"clip": 0.0, "weight_decay": 0.0, "rate_decay": 1.0, "rounds": 2, "participation": 1.0}
        named = {name: value for name, value in self.given.items() if isinstance(value, str)}
        objects = {name: value for name, value in self.given.items() if name not in named}
        return build(
            SMALL.changed(**{**alone, **named, **settings}),
            method(spelled),
            model=built(self.model, 7, "test"),
            clients=[self.samples(draw, size) for size in SIZES],
            test=self.samples(draw, 23),
            **objects,
        )


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 3), nn.Linear(2, 3)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.left(left) * self.right(right).sigmoid()


class TwoOutputs(nn.Module):
    def __init__(self, named: bool) -> None:
        super().__init__()
        self.kind, self.size, self.named = nn.Linear(6, 3), nn.Linear(6, 1), named

    def forward(self, x: Tensor) -> Any:
        kind, size = self.kind(x), self.size(x)
        return {"kind": kind, "size": size} if self.named else (kind, size)


class LikeHuggingFace(nn.Module):
    """Keyword arguments, a mask for what only fills a sample, and an answer with `logits`."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        seen = attention_mask.to(self.head.weight.dtype).unsqueeze(-1)
        return {"logits": self.head((self.embedding(input_ids) * seen).sum(-2) / seen.sum(-2))}


def both_losses(output: Any, target: Any) -> Tensor:
    """Of two outputs by place or name: classes and a number; one value a sample."""
    kind, size = output.values() if isinstance(output, dict) else output
    label, number = target.values() if isinstance(target, dict) else target
    return F.cross_entropy(kind, label, reduction="none") + (size[:, 0] - number) ** 2


def right_kind(output: Any, target: Any) -> Tensor:
    kind, label = (next(iter(one.values() if isinstance(one, dict) else one)) for one in (output, target))
    return (kind.argmax(1) == label).double()


def huber(output: Any, target: Any) -> Tensor:
    return F.huber_loss(output, target, reduction="none").mean(1)


def largest_error(output: Any, target: Any) -> Tensor:
    return (output - target).abs().amax(1)


largest_error.higher_is_better = False


def _tokens(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
    return draw.whole(7, count, 5), draw.with_gaps(draw.whole(7, count, 5))


def _texts_of_all_lengths(draw: Draw, count: int) -> list[tuple[Tensor, Tensor]]:
    lengths = [2 + int(draw.whole(4)) for _ in range(count)]
    return [(draw.whole(7, length), draw.whole(7, length)) for length in lengths]


def _sentences(draw: Draw, count: int) -> list[dict[str, object]]:
    """Items as a Hugging Face dataset has them."""
    lengths = [2 + int(draw.whole(4)) for _ in range(count)]
    return [
        {"input_ids": draw.whole(9, length), "attention_mask": torch.ones(length, dtype=torch.int64), "labels": label}
        for length, label in zip(lengths, draw.whole(3, count).tolist(), strict=True)
    ]


def _token_model() -> nn.Module:
    return nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 7))


def _token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over the tokens that count; 0 where none does, for which PyTorch says NaN."""
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum")
    return total / (labels != IGNORED).sum().clamp(min=1)


def _pixel_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return _token_loss(logits.movedim(1, -1).flatten(1, 2), labels.flatten(1))


PROBLEMS = {
    "classification": Problem(
        lambda draw, count: (draw.numbers(count, 6), draw.whole(3, count)), lambda: nn.Linear(6, 3), F.cross_entropy
    ),
    "regression": Problem(
        lambda draw, count: (draw.numbers(count, 6), draw.numbers(count, 2)),
        lambda: nn.Linear(6, 2),
        F.mse_loss,
        {"metrics": "mae"},
    ),
    "binary": Problem(
        lambda draw, count: (draw.numbers(count, 6), draw.whole(2, count)),
        lambda: nn.Linear(6, 1),
        lambda output, target: F.binary_cross_entropy_with_logits(output[:, 0], target),
        {"task": "binary"},
    ),
    "multilabel": Problem(
        lambda draw, count: (draw.numbers(count, 6), draw.whole(2, count, 4)),
        lambda: nn.Linear(6, 4),
        F.binary_cross_entropy_with_logits,
        {"task": "multilabel"},
    ),
    "tokens": Problem(_tokens, _token_model, _token_loss, {"task": "tokens"}),
    "tokens of all lengths": Problem(
        _texts_of_all_lengths, _token_model, _token_loss, {"task": "tokens", "padding": 0}
    ),
    "segmentation": Problem(
        lambda draw, count: (draw.numbers(count, 2, 4, 5), draw.with_gaps(draw.whole(3, count, 4, 5))),
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1)),
        _pixel_loss,
        {"task": "segmentation"},
    ),
    "own loss and metric": Problem(
        lambda draw, count: (draw.numbers(count, 6), draw.numbers(count, 2)),
        lambda: nn.Linear(6, 2),
        F.huber_loss,
        {"task": huber, "metrics": [largest_error]},
    ),
    "inputs by place": Problem(
        lambda draw, count: ((draw.numbers(count, 6), draw.numbers(count, 2)), draw.whole(3, count)),
        TwoInputs,
        F.cross_entropy,
    ),
    "inputs by name": Problem(
        lambda draw, count: ({"right": draw.numbers(count, 2), "left": draw.numbers(count, 6)}, draw.whole(3, count)),
        TwoInputs,
        F.cross_entropy,
    ),
    "outputs by place": Problem(
        lambda draw, count: (draw.numbers(count, 6), (draw.whole(3, count), draw.numbers(count))),
        lambda: TwoOutputs(named=False),
        lambda output, target: both_losses(output, target).mean(),
        {"task": both_losses, "metrics": [right_kind]},
    ),
    "outputs by name": Problem(
        lambda draw, count: (draw.numbers(count, 6), {"label": draw.whole(3, count), "number": draw.numbers(count)}),
        lambda: TwoOutputs(named=True),
        lambda output, target: both_losses(output, target).mean(),
        {"task": both_losses, "metrics": [right_kind]},
    ),
    "as Hugging Face": Problem(
        _sentences,
        LikeHuggingFace,
        lambda output, target: F.cross_entropy(output["logits"], target),
        {"padding": {"input_ids": 0, "attention_mask": 0}},
    ),
}


def answer(module: nn.Module, x: columns.Tensors) -> Any:
    """What a module answers when it is called as its user would."""
    if isinstance(x, Mapping):
        return module(**x)
    return module(*x) if isinstance(x, tuple) else module(x)


def averaged_by_hand(chosen: Experiment, loss: Callable[[Any, Any], Tensor]) -> dict[str, Tensor]:
    """The parameters after federated averaging: modules, `torch.optim.SGD`, slices."""
    scenario, federation = chosen.scenario, chosen.federation
    server = copy.deepcopy(chosen.network.original).double()
    for number in range(1, scenario.rounds + 1):
        states, sizes = [], []
        for client in chosen.client_rounds.cohort(number).clients:
            module, own = copy.deepcopy(server), federation.clients[client]
            optimiser = torch.optim.SGD(module.parameters(), lr=scenario.rate)
            batches = plan(scenario, own, scenario.seed, number, client, 0)
            for rows, count in zip(torch.from_numpy(batches.rows), batches.counts.tolist(), strict=True):
                x, y = federation.train.read(rows[:count])
                optimiser.zero_grad()
                loss(answer(module, chosen.federation.inputs(x, torch.float64)), chosen.targets(y)).backward()
                optimiser.step()
            states.append(module.state_dict())
            sizes.append(len(own))
        total = sum(sizes)
        mean = {
            name: sum(size * state[name] for size, state in zip(sizes, states, strict=True)) / total
            for name in states[0]
        }
        server.load_state_dict(mean)
    return dict(server.named_parameters())
