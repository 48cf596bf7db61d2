"""Samples held out of the clients' own training data, on which settings are chosen instead of on the test set."""

from __future__ import annotations

import dataclasses

import numpy as np

from headway.data.federation import Federation
from headway.errors import UserError
from headway.random import generator


def held_out(federation: Federation, share: float, seed: int) -> Federation:
    """The federation whose clients train on the rest and whose test set is what they hold out, all in one pool.

    Client i holds out min(⌊share · n_i + ½⌋, n_i − 1) of its n_i rows, drawn from (seed, i). The test set is gone.
    """
    kept, held = [], []
    for client, rows in enumerate(federation.clients):
        count = min(int(share * len(rows) + 0.5), len(rows) - 1)
        chosen = np.zeros(len(rows), bool)
        chosen[generator(seed, "validation", client).permutation(len(rows))[:count]] = True
        kept.append(rows[~chosen])
        held.append(rows[chosen])
    pooled = np.concatenate(held)
    if not len(pooled):
        raise UserError(
            f"validation is {share:g}, but no client has so many samples that one is held out; use a larger share"
        )
    return dataclasses.replace(federation, clients=kept, test=federation.train.rows(pooled))
