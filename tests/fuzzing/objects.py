"""Objects that nobody should give to Headway's functions: values of every type, data sets, networks and slots."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Boom(Exception):
    """What a user's own code raises."""


def _raises(*given: Any, **named: Any) -> Any:
    raise Boom("of the user's own code\nin two lines")


class Strange:
    """An object that says nothing of itself."""

    def __repr__(self) -> str:
        raise Boom("no representation")


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 2**63, 10**400, 0.5, -0.5, 1e308, float("nan"), float("inf"), 1j),
    *("", " ", "x", "\0", "a\nb", "\ud800", "x" * 5000, b"bytes", "fedavg", "auto", "1", "npz:nowhere"),
    *([], (), {}, set(), [None], [[]], [1, 2], {"x": 1}, {1: 2}, ["fedavg", 3], range(3), object(), ..., type, int),
    *(
        np.int64(3),
        np.float32(0.1),
        np.float64("nan"),
        np.bool_(True),
        np.str_("fedavg"),
        np.array(3),
        np.zeros((2, 3)),
    ),
    *(np.full(3, np.nan), np.array(["a"]), np.array([None]), torch.tensor(3), torch.zeros(2, 3), torch.empty(0)),
    *(Path("nowhere"), Path("a\0b"), Path("x" * 300), _raises, len, iter([1]), Strange(), Boom, Boom("given")),
)


# ── data sets ────────────────────────────────────────────────────────────────────────────────────────────────────────

X = torch.linspace(-1, 1, 8 * 6).reshape(8, 6)
Y = torch.arange(8) % 3


class Items:
    """A map-style data set whose length and items are given."""

    def __init__(self, length: Any, item: Any) -> None:
        self.length, self.item = length, item

    def __len__(self) -> Any:
        return self.length() if callable(self.length) else self.length

    def __getitem__(self, at: int) -> Any:
        return self.item(at) if callable(self.item) else self.item


def _until(end: int, error: type[Exception]) -> Any:
    def item(at: int) -> Any:
        if at >= end:
            raise error(at)
        return X[at % 8], int(Y[at % 8])

    return item


def _endless() -> Iterator[Any]:
    return ((X[0], 0) for _ in itertools.count())


def data_sets() -> tuple[Any, ...]:
    """What is given for one client or for the test set."""
    return (
        *((X, Y), (X[:0], Y[:0]), (X, Y[:3]), (Y, X), (X, Y.float()), (X, -Y - 1), (X, Y + 2**40), (X, X), (X,), X),
        *((X * torch.nan, Y), (X * torch.inf, Y), (X.double() * 1e300, Y), (X.bool(), Y), (X.long(), Y), (X.half(), Y)),
        *((X.byte(), Y), (X + 0j, Y), (X.to_sparse(), Y), (X, Y.bool()), (X, Y[:, None]), (X, None), (None, None)),
        *((X[:, :3], Y), (X[None], Y), (X[0, 0], Y[0]), (X.numpy().astype(object), Y), (X.numpy().astype(str), Y)),
        *((X.numpy(), Y.numpy()), (X.tolist(), Y.tolist()), ([[1, 2], [3]], [0, 1]), ({"x": X}, Y), ((X, X), Y)),
        *(
            (X.to("meta"), Y),
            (X.clone().requires_grad_(), Y),
            (nn.Parameter(X), Y),
            (X, Y.to(torch.uint8)),
            (X, "labels"),
        ),
        *((X.numpy().astype("M8[s]"), Y), (np.ma.masked_array(X.numpy(), X.numpy() > 0), Y), (X.T, Y), (X[:, 0], Y)),
        *(Items(0, None), Items(-1, None), Items(3, None), Items("three", None), Items(2.5, None), Items(3, 7)),
        *(
            Items(_raises, None),
            Items(3, _raises),
            Items(20, _until(8, IndexError)),
            Items(20, _until(8, StopIteration)),
        ),
        *(Items(4, _until(8, IndexError)), Items(3, (X[0], 1, 2)), Items(3, {"x": X[0], "y": 1}), Items(3, (X, Y))),
        *(Items(2, (X[0], np.nan)), Items(2, (X[0], None)), Items(2, (X[0] * torch.nan, 1)), Items(10**12, _raises)),
        *(Items(3, lambda at: (X[0][: at + 1], 1)), Items(3, lambda at: (X[0], [1] * at)), Items(2**70, _raises)),
        *(torch.utils.data.TensorDataset(X, Y), torch.utils.data.TensorDataset(X), [(X[0], 0), (X[1], 1)], _endless()),
        *(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y)), [(X[0], 0), (X[1],)], [X[0], X[1]], "xy"),
    )


# ── networks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Answering(nn.Module):
    """A linear network whose answer is changed."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.layer, self.change = nn.Linear(6, 3), change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.layer(x))


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)


def _frozen() -> nn.Module:
    return nn.Linear(6, 3).requires_grad_(False)


def _spoilt(value: float) -> nn.Module:
    module = nn.Linear(6, 3)
    with torch.no_grad():
        module.weight.fill_(value)
    return module


def networks() -> tuple[Any, ...]:
    """What is given for the model."""
    changes = (
        *(lambda out: None, lambda out: (out, out), lambda out: {"logits": out}, lambda out: out * torch.nan),
        *(lambda out: out * torch.inf, lambda out: out[:, :2], lambda out: out[:, :0], lambda out: out.T),
        *(
            lambda out: out.detach(),
            lambda out: out[0],
            lambda out: out.sum(),
            lambda out: out.long(),
            lambda out: out[:1],
        ),
        *(lambda out: out[..., None], lambda out: "text", lambda out: [1.0, 2.0], _raises, lambda out: out.numpy()),
        *(lambda out: out.double(), lambda out: out + 0j, lambda out: out.to("meta"), lambda out: out.item()),
        *(lambda out: out if (out > 9).any() else -out, lambda out: out.resize_(1), lambda out: out.mul_(2)),
    )
    return (
        *(Answering(change) for change in changes),
        *(
            nn.Linear(5, 3),
            nn.Linear(6, 2),
            nn.Linear(6, 1),
            nn.Linear(6, 3),
            nn.Identity(),
            nn.Sequential(),
            nn.Module(),
        ),
        *(_frozen(), _spoilt(torch.nan), _spoilt(1e38), nn.Linear(6, 3, device="meta"), nn.Linear(6, 3).half(), Lazy()),
        *(nn.Linear, nn.Linear(6, 3).forward, nn.LSTM(6, 3), nn.Embedding(3, 3), nn.Conv2d(1, 1, 1), nn.BatchNorm1d(6)),
        *(nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)), torch.jit.script(nn.Linear(6, 3))),
    )


# ── slots and watchers ───────────────────────────────────────────────────────────────────────────────────────────────


class Slot:
    """A value with one hook of each place, each returning the same."""

    def __init__(self, answer: Any, *names: str) -> None:
        for name in names:
            setattr(self, name, answer if callable(answer) else lambda *given: answer)


HOOKS = (
    *("message", "value", "slope", "direction", "update", "encode", "decode", "client_state", "server_state", "begin"),
    *("finish", "derive", "prepare", "measures", "fits", "needs", "provides", "adds", "owns", "keeps_best", "__call__"),
)
ANSWERS: tuple[Any, ...] = (
    *(None, 0, 1.5, "x", (), (1, 2), {}, {"x": 1}, {"x": None}, [], torch.tensor(1.0), torch.zeros(3), float("nan")),
    *(_raises, lambda first, *given: first, lambda first, *given: (first, {}), lambda first, *given: {"x": first}),
    *(lambda first, *given: (first * float("nan"), {}), lambda first, *given: (None, None), lambda *given: given),
    *(lambda first, *given: ({"x": first}, {"y": first}), lambda first, *given: first.zeros(), lambda: None),
)


class Watcher:
    """An observer one of whose hooks is spoilt."""

    def __init__(self, name: str, spoilt: Any) -> None:
        for hook in ("begins", "round", "tell"):
            setattr(self, hook, lambda *given: None)
        setattr(self, name, spoilt)
