"""synthetic(α, β) of Li et al. (2020): users whose models differ by α and whose inputs differ by β.

Sizes are drawn as in LEAF's generator: min(⌊e^z⌋ + 5, 1000) with z ~ N(3, 2²).
"""

from __future__ import annotations

import math

import numpy as np

from headway.data.federation import Samples
from headway.data.sources.source import Source, samples_of
from headway.errors import UserError
from headway.random import generator

FEATURES, CLASSES = 60, 10
USERS = 30
MOST_USERS = 100_000
"""This many users take some ten seconds and three gigabytes; the literature has 30 to 100."""
LEAST, MOST = 5, 1000
TRAIN = 0.9
SEED = 0
"""The data depends on its name only: a run's seed does not change it."""


def _user(alpha: float, beta: float, user: int) -> tuple[np.ndarray, np.ndarray]:
    """x ~ N(v, diag(j^−1.2)), v_j ~ N(B, 1), B ~ N(0, β²); y = argmax(xW + b), W, b ~ N(u, 1), u ~ N(0, α²)."""
    draw = generator(SEED, "data/synthetic", user)
    samples = min(int(draw.lognormal(3, 2)) + LEAST, MOST)
    u, centre = alpha * draw.standard_normal(), beta * draw.standard_normal()
    v = draw.normal(centre, 1, FEATURES)
    weights, biases = draw.normal(u, 1, (FEATURES, CLASSES)), draw.normal(u, 1, CLASSES)
    x = v + draw.standard_normal((samples, FEATURES)) * np.arange(1, FEATURES + 1) ** -0.6
    return x.astype(np.float32), np.argmax(x @ weights + biases, axis=1)


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
    """60 features, 10 classes, users of unequal size, 30 by default; a tenth of each one's samples is for tests."""
    alpha, beta, count = _arguments(argument)
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
        citation="synthetic(α, β) (Li et al. 2020, FedProx), drawn here; sizes as in LEAF (Caldas et al. 2018)",
    )
