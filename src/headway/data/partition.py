"""Which samples go to which client. Every split is disjoint and fixed by its own seed; each says if it leaves any out.

iid                 equal sizes, at random
dirichlet:ALPHA     equal sizes, class mix of each client ~ Dir(α) (FedACG)
authors:ALPHA       as dirichlet, with the class mixes that FedACG's authors drew: one split for all seeds
gradma:OMEGA        each class over clients ~ Dir(ω), two samples for everybody first: strongly unequal (GradMA)
shards:C            C shards of label-sorted samples for each client (McMahan et al. 2017)
quantity:ALPHA      at random, sizes ~ Dir(α), nobody empty
natural             the data's own users; with fewer clients than users, the first of them
file:PATH           a JSON list of lists of rows, or an object of such lists
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headway.errors import UserError, nearest
from headway.random import generator, legacy_mixes

Rows = list[np.ndarray]


def split(spelled: str, labels: np.ndarray, clients: int, seed: int, users: np.ndarray | None = None) -> Rows:
    """Rows of each client. `users` names the natural user of each sample, where the data has users."""
    name, _, argument = spelled.partition(":")
    if not clients and name not in ("natural", "file"):
        raise UserError(f"clients is 0, which means every user, but partition is '{spelled}'; give --clients N")
    if clients > len(labels):
        raise UserError(f"clients is {clients}, more than the {len(labels)} samples there are to share")
    if name == "iid" and not argument:
        return _iid(labels, clients, seed)
    if name == "natural" and not argument:
        return _natural(users, clients)
    if name == "file":
        return _file(argument, len(labels), clients)
    if name in _BY_CLASS and (labels.ndim != 1 or labels.dtype.kind not in "iu"):
        raise UserError(
            f"partition is '{spelled}', but the targets of this data set are no classes; use iid, quantity:ALPHA, "
            "natural or file:PATH"
        )
    if name == "shards":
        return _shards(labels, clients, seed, int(_positive(spelled, argument, whole=True)))
    if name in _ONE_BY_ONE:
        _check_draws(spelled, len(labels), clients)
    if name in _BY_CONCENTRATION:
        return _BY_CONCENTRATION[name](labels, clients, seed, _positive(spelled, argument))
    known = ["iid", "natural", "file", "shards", *_BY_CONCENTRATION]
    raise UserError(
        f"there is no partition '{spelled}'{nearest(name, known)} (iid, dirichlet:ALPHA, authors:ALPHA, gradma:OMEGA, "
        "shards:C, quantity:ALPHA, natural, file:PATH)"
    )


MOST = 1e100
"""Of a concentration; far beyond it the sums of the draws are no numbers."""


MOST_DRAWS = 5_000_000_000
"""Of a split that draws for each client one number a free sample: about two minutes on one core. The draws follow each
other, so that none can be left out without another split."""
MOST_JSON = 1 << 28
"""Bytes of a file with rows: twenty million of them, for which Python takes some gigabytes of memory."""


def _check_draws(spelled: str, samples: int, clients: int) -> None:
    draws = samples * (clients + 1) // 2
    if draws > MOST_DRAWS:
        raise UserError(
            f"partition is '{spelled}' with {clients:,} clients and {samples:,} samples: its split draws {draws:,} "
            f"numbers one after another, at most {MOST_DRAWS:,}; give fewer --clients, or use iid, shards:C, "
            "gradma:OMEGA or quantity:ALPHA"
        )


def _positive(spelled: str, argument: str, whole: bool = False) -> float:
    try:
        value = float(int(argument)) if whole else float(argument)
    except ValueError:
        value = 0.0
    if not 0 < value <= MOST:
        name = spelled.partition(":")[0]
        letter, example = _EXAMPLES[name]
        raise UserError(
            f"partition is '{spelled}'; write {name}:{letter} with {letter} above 0, such as {name}:{example}"
        )
    return value


_EXAMPLES = {
    "dirichlet": ("ALPHA", "0.3"),
    "authors": ("ALPHA", "0.3"),
    "gradma": ("OMEGA", "0.1"),
    "shards": ("C", "2"),
    "quantity": ("ALPHA", "1.0"),
}


def _sizes(samples: int, clients: int) -> list[int]:
    """⌊n/N⌋ each, one more for the first n mod N: no sample is left out."""
    return [samples // clients + (client < samples % clients) for client in range(clients)]


def _iid(labels: np.ndarray, clients: int, seed: int) -> Rows:
    order = generator(seed, "split/iid").permutation(len(labels))
    return np.split(order, np.cumsum(_sizes(len(labels), clients))[:-1])


def _dirichlet(labels: np.ndarray, clients: int, seed: int, alpha: float) -> Rows:
    """FedACG's balanced split: client i draws its class mix p_i ~ Dir(α), then its samples by it."""
    draw = generator(seed, "split/dirichlet")
    classes = int(labels.max()) + 1
    return _by_mixes(labels, clients, draw, (draw.dirichlet(np.full(classes, alpha)) for _ in itertools.count()))


def _authors(labels: np.ndarray, clients: int, seed: int, alpha: float) -> Rows:
    """The split behind the tables of FedAGM and FedACG: their p_i, which come from NumPy's seed 0 whatever the run.

    Which sample of a class goes to which client is drawn here: their order also depends on image augmentation.
    """
    if seed:
        raise UserError(
            f"split_seed is {seed}, but partition authors:{alpha:g} is one split, whatever the seed; leave split_seed"
            f" out, or draw other splits with dirichlet:{alpha:g}"
        )
    return _by_mixes(labels, clients, generator(0, "authors"), legacy_mixes(alpha, int(labels.max()) + 1))


def _by_mixes(labels: np.ndarray, clients: int, draw: np.random.Generator, mixes: Iterator[np.ndarray]) -> Rows:
    """One client after another draws its samples without replacement, each unassigned sample s with probability
    ∝ p_i[y_s], where p_i is the next of the mixes.

    Drawing one after another without replacement is taking the smallest E_s / p_i[y_s] with E_s ~ Exp(1). Late clients
    draw from depleted classes, as in the authors' split.
    """
    free = np.arange(len(labels))
    shares: Rows = []
    for size in _sizes(len(labels), clients):
        log_p = np.log(np.maximum(next(mixes), 1e-300))
        waiting = np.log(draw.standard_exponential(len(free))) - log_p[labels[free]]
        first = np.argpartition(waiting, size - 1)[:size]
        first = first[np.argsort(waiting[first])]
        shares.append(draw.permutation(free[first]))
        free = np.delete(free, first)
    return shares


def _gradma(labels: np.ndarray, clients: int, seed: int, omega: float) -> Rows:
    """GradMA's strict split: q_c ~ Dir(ω) over the N workers for each class c; first, twice, every worker in order
    takes one sample of a random class (BatchNorm needs two); then each class, shuffled, is cut at ⌊cumsum(q_c)·n_c⌋.
    """
    if len(labels) < 2 * clients:
        raise UserError(f"partition gradma gives every client two samples first; {clients} clients need {2 * clients}")
    draw = generator(seed, "split/gradma")
    classes = int(labels.max()) + 1
    shares = draw.dirichlet(np.full(clients, omega), size=classes)
    left = [list(np.flatnonzero(labels == number)) for number in range(classes)]
    held: list[list[int]] = [[] for _ in range(clients)]
    for _ in range(2):
        for own in held:
            there = [number for number in range(classes) if left[number]]
            own.append(int(left[there[draw.integers(len(there))]].pop()))
    for number, rows in enumerate(left):
        order = draw.permutation(np.array(rows, dtype=np.int64))
        cuts = np.floor(np.cumsum(shares[number])[:-1] * len(order)).astype(int)
        for own, piece in zip(held, np.split(order, cuts), strict=True):
            own.extend(piece.tolist())
    return [draw.permutation(np.array(own, dtype=np.int64)) for own in held]


def _shards(labels: np.ndarray, clients: int, seed: int, each: int) -> Rows:
    """Samples sorted by label, cut into N·C shards as equal as can be; every client gets C of them at random."""
    if clients * each > len(labels):
        raise UserError(f"partition shards:{each} needs {clients * each} samples for {clients} clients")
    draw = generator(seed, "split/shards")
    mixed = draw.permutation(len(labels))
    order = mixed[np.argsort(labels[mixed], kind="stable")]
    shards = np.split(order, np.cumsum(_sizes(len(labels), clients * each))[:-1])
    hands = draw.permutation(clients * each).reshape(clients, each)
    return [draw.permutation(np.concatenate([shards[number] for number in hand])) for hand in hands]


def _quantity(labels: np.ndarray, clients: int, seed: int, alpha: float) -> Rows:
    """Samples at random, sizes 1 + (n − N)·Dir(α), rounded so that they add up."""
    draw = generator(seed, "split/quantity")
    ends = np.floor(np.cumsum(draw.dirichlet(np.full(clients, alpha))) * (len(labels) - clients) + 1e-9).astype(int)
    ends[-1] = len(labels) - clients
    return np.split(draw.permutation(len(labels)), (ends + np.arange(1, clients + 1))[:-1])


def _natural(users: np.ndarray | None, clients: int) -> Rows:
    """One client for each user, in the order of the users' numbers; samples of users beyond N are left out."""
    if users is None:
        raise UserError("partition is 'natural', but this data set has no users of its own")
    order = np.argsort(users, kind="stable")
    _, firsts = np.unique(users[order], return_index=True)
    if clients > len(firsts):
        raise UserError(
            f"clients is {clients}, but the data has {len(firsts)} users; use --clients {len(firsts)} or fewer "
            "(0 takes all)"
        )
    return np.split(order, firsts[1:])[: clients or len(firsts)]


def _json(path: Path) -> Any:
    """What a file with rows holds. A pipe is not opened: that would wait for who writes into it."""
    if path.exists() and not path.is_file():
        raise UserError(f"the partition file '{path}' is no plain file")
    if path.is_file() and (size := path.stat().st_size) > MOST_JSON:
        raise UserError(f"the partition file '{path}' has {size:,} bytes; it may have at most {MOST_JSON:,}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as fault:
        raise UserError(f"the partition file '{path}' cannot be read as JSON: {fault}") from None


def _file(path: str, samples: int, clients: int) -> Rows:
    """The user's own lists; rows in nobody's list are left out, a row in two lists is refused."""
    content = _json(Path(path))
    lists = list(content.values()) if isinstance(content, dict) else content
    if not isinstance(lists, list) or not all(isinstance(own, list) for own in lists):
        raise UserError(f"the partition file '{path}' must hold one list of rows for each client")
    if not lists:
        raise UserError(f"the partition file '{path}' has no clients")
    if clients and len(lists) != clients:
        raise UserError(f"'{path}' has {len(lists)} clients, but clients is {clients}; use --clients {len(lists)}")
    seen: set[int] = set()
    for client, own in enumerate(lists):
        if not own:
            raise UserError(f"'{path}': client {client} has no samples")
        for row in own:
            if type(row) is not int or not 0 <= row < samples:
                raise UserError(f"'{path}': client {client} has row {row!r:.40}; rows go from 0 to {samples - 1}")
            if row in seen:
                raise UserError(f"'{path}': row {row} of client {client} was given before; a row has one owner")
            seen.add(row)
    return [np.array(own, dtype=np.int64) for own in lists]


_BY_CLASS = ("dirichlet", "authors", "gradma", "shards")
_ONE_BY_ONE = ("dirichlet", "authors")
_BY_CONCENTRATION: dict[str, Callable[[np.ndarray, int, int, float], Rows]] = {
    "dirichlet": _dirichlet,
    "authors": _authors,
    "gradma": _gradma,
    "quantity": _quantity,
}
