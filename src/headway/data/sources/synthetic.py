"""synthetic(α, β) of Li et al. (2020): users whose models differ by α and whose inputs differ by β.

Sizes are drawn as in LEAF's generator: min(⌊e^z⌋ + 5, 1000) with z ~ N(3, 2²).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch

from headway.data.drawn import Drawn, Ranges
from headway.data.federation import Samples
from headway.data.sources.source import Source, samples_of
from headway.errors import UserError
from headway.random import Drawing, generator

FEATURES, CLASSES = 60, 10
USERS = 30
KEPT_USERS, MOST_USERS = 100_000, 10_000_000
"""Up to so many users all samples are kept, which takes some ten seconds and three gigabytes; of more, up to the second
number, each user's are made when they are read. The literature has 30 to 100 users."""
TEST_USERS, REMEMBERED = 1_000, 128
"""Of users whose samples are not kept: those whose test samples judge the model, evenly spread over all, and how many
users' samples are remembered."""
LEAST, MOST = 5, 1000
TRAIN = 0.9
_CITATION = "synthetic(α, β) (Li et al. 2020, FedProx), drawn here; sizes as in LEAF (Caldas et al. 2018)"
SEED = 0
"""The data depends on its name only: a run's seed does not change it."""


def _user(alpha: float, beta: float, user: int) -> tuple[np.ndarray, np.ndarray]:
    """x ~ N(v, diag(j^−1.2)), v_j ~ N(B, 1), B ~ N(0, β²); y = argmax(xW + b), W, b ~ N(u, 1), u ~ N(0, α²)."""
    draw = generator(SEED, "data/synthetic", user)
    samples = _size(draw)
    u, centre = alpha * draw.standard_normal(), beta * draw.standard_normal()
    v = draw.normal(centre, 1, FEATURES)
    weights, biases = draw.normal(u, 1, (FEATURES, CLASSES)), draw.normal(u, 1, CLASSES)
    x = v + draw.standard_normal((samples, FEATURES)) * np.arange(1, FEATURES + 1) ** -0.6
    return x.astype(np.float32), np.argmax(x @ weights + biases, axis=1)


def _size(draw: np.random.Generator) -> int:
    """How many samples a user has: the first of the user's draws."""
    return min(int(draw.lognormal(3, 2)) + LEAST, MOST)


def _arguments(spelled: str) -> tuple[float, float, int]:
    try:
        alpha, beta, *rest = spelled.split(",")
        (users,) = rest or [str(USERS)]
        found = float(alpha), float(beta), int(users)
    except ValueError:
        found = -1.0, -1.0, 0
    if not (0 <= found[0] < math.inf and 0 <= found[1] < math.inf and found[2] > 0):
        raise UserError(
            f"data is 'synthetic:{spelled}'; write synthetic:ALPHA,BETA or synthetic:ALPHA,BETA,USERS with numbers of "
            "at least 0, such as synthetic:1,1"
        )
    if found[2] > MOST_USERS:
        raise UserError(f"data is 'synthetic:{spelled}'; there are at most {MOST_USERS:,} users")
    return found


def _joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> Samples:
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return samples_of(x, y, CLASSES, "synthetic")


def synthetic(argument: str, data_dir: str | None) -> Source:
    """60 features, 10 classes, users of unequal size, 30 by default; a tenth of each one's samples is for tests.

    Of more than 100,000 users the samples are made when they are read, and those for tests are of 1,000 of them.
    """
    alpha, beta, count = _arguments(argument)
    if count > KEPT_USERS:
        return _made_when_read(alpha, beta, count)
    rows = [_user(alpha, beta, user) for user in range(count)]
    cuts = [int(TRAIN * len(y)) for _, y in rows]
    train = [(x[:cut], y[:cut]) for (x, y), cut in zip(rows, cuts, strict=True)]
    test = [(x[cut:], y[cut:]) for (x, y), cut in zip(rows, cuts, strict=True)]
    return Source(
        _joined(train),
        _joined(test),
        CLASSES,
        users=np.repeat(np.arange(count), [len(y) for _, y in train]),
        test_users=np.repeat(np.arange(count), [len(y) for _, y in test]),
        user_names=tuple(str(user) for user in range(count)),
        citation=_CITATION,
    )


def _made_when_read(alpha: float, beta: float, count: int) -> Source:
    """The same users, each with the same samples, of whom only the sizes are kept; some users' test samples."""
    drawing = Drawing()
    drawn = (int(TRAIN * _size(drawing.at(SEED, "data/synthetic", user))) for user in range(count))
    clients = Ranges(np.fromiter(drawn, np.int64, count))

    @lru_cache(REMEMBERED)
    def of_user(user: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = _user(alpha, beta, user)
        return x[: clients.sizes[user]], y[: clients.sizes[user]]

    def made(rows: np.ndarray, side: int) -> np.ndarray:
        users = np.searchsorted(clients.starts, rows, side="right") - 1
        found = np.empty((len(rows), FEATURES), np.float32) if side == 0 else np.empty(len(rows), np.int64)
        for user in np.unique(users).tolist():
            own = users == user
            found[own] = of_user(user)[side][rows[own] - clients.starts[user]]
        return found

    total = int(clients.starts[-1])
    train = Samples(
        Drawn.of(lambda rows: made(rows, 0), (total, FEATURES), torch.float32),
        Drawn.of(lambda rows: made(rows, 1), (total,), torch.int64),
    )
    judging = [_user(alpha, beta, int(user)) for user in np.linspace(0, count - 1, TEST_USERS).astype(int)]
    test = _joined([(x[int(TRAIN * len(y)) :], y[int(TRAIN * len(y)) :]) for x, y in judging])
    return Source(train, test, CLASSES, clients=clients, citation=_CITATION)
