"""Which samples go to which client. Every split here is a disjoint, complete cover, fixed by its own seed."""

from __future__ import annotations

import numpy as np

from headway.errors import UserError, nearest
from headway.random import generator


def split(spelled: str, labels: np.ndarray, clients: int, seed: int) -> list[np.ndarray]:
    """Rows of each client, for `iid` or `dirichlet:ALPHA`."""
    name, _, argument = spelled.partition(":")
    if clients > len(labels):
        raise UserError(f"clients is {clients}, more than the {len(labels)} samples there are to share")
    if name == "iid" and not argument:
        return _iid(labels, clients, seed)
    if name == "dirichlet":
        return _dirichlet(labels, clients, seed, _positive(spelled, argument))
    raise UserError(f"there is no partition '{spelled}'{nearest(name, ['iid', 'dirichlet'])} (iid, dirichlet:ALPHA)")


def _positive(spelled: str, argument: str) -> float:
    try:
        alpha = float(argument)
    except ValueError:
        alpha = 0.0
    if not 0 < alpha < float("inf"):
        raise UserError(f"partition is '{spelled}'; write dirichlet:ALPHA with ALPHA above 0, such as dirichlet:0.3")
    return alpha


def _sizes(samples: int, clients: int) -> list[int]:
    """⌊n/N⌋ each, one more for the first n mod N: no sample is left out."""
    return [samples // clients + (client < samples % clients) for client in range(clients)]


def _iid(labels: np.ndarray, clients: int, seed: int) -> list[np.ndarray]:
    order = generator(seed, "split/iid").permutation(len(labels))
    return np.split(order, np.cumsum(_sizes(len(labels), clients))[:-1])


def _dirichlet(labels: np.ndarray, clients: int, seed: int, alpha: float) -> list[np.ndarray]:
    """FedACG's balanced split: client i draws p_i ~ Dir(α) over classes, then its samples without replacement, each
    unassigned sample s with probability ∝ p_i[y_s].

    Drawing one after another without replacement is taking the smallest E_s / p_i[y_s] with E_s ~ Exp(1). Late clients
    draw from depleted classes, as in the authors' split.
    """
    draw = generator(seed, "split/dirichlet")
    classes = int(labels.max()) + 1
    free = np.arange(len(labels))
    shares: list[np.ndarray] = []
    for size in _sizes(len(labels), clients):
        log_p = np.log(np.maximum(draw.dirichlet(np.full(classes, alpha)), 1e-300))
        waiting = np.log(draw.standard_exponential(len(free))) - log_p[labels[free]]
        order = np.argsort(waiting, kind="stable")
        shares.append(draw.permutation(free[order[:size]]))
        free = np.sort(free[order[size:]])
    return shares
