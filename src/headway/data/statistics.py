"""Statistics of a split: the classes that clients have, how far their mixes are from even, how unequal their sizes.

Everything comes from labels and rows alone; no sample is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def class_counts(labels: np.ndarray, clients: Sequence[np.ndarray], classes: int) -> np.ndarray:
    """How many samples of each class each client has, shape (clients, classes)."""
    return np.stack([np.bincount(labels[rows], minlength=classes) for rows in clients])


@dataclass(frozen=True)
class Mixes:
    """Means over clients, with p_c the share of class c among a client's samples and K classes; FedACG's statistics."""

    classes_present: float
    """The number of classes with p_c > 0."""
    largest_share: float
    """max_c p_c, the share of a client's most frequent class."""
    exp_entropy: float
    """exp(−Σ_c p_c ln p_c): K for an even mix, 1 for one class."""
    l1_to_uniform: float
    """Σ_c |p_c − 1/K|."""


def class_mixes(counts: np.ndarray) -> Mixes:
    """The statistics of class counts, shape (clients, classes); no client may be empty."""
    shares = counts / counts.sum(1, keepdims=True)
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(1)
    return Mixes(
        classes_present=float((counts > 0).sum(1).mean()),
        largest_share=float(shares.max(1).mean()),
        exp_entropy=float(np.exp(entropy).mean()),
        l1_to_uniform=float(np.abs(shares - 1 / counts.shape[1]).sum(1).mean()),
    )


mixes = class_mixes
"""The name of before."""


@dataclass(frozen=True)
class Sizes:
    """The least, median and largest number of samples of a client, and how many samples no client has."""

    size_min: int
    size_median: float
    size_max: int
    left_out: int


def sizes(clients: Sequence[np.ndarray], samples: int) -> Sizes:
    held = np.array([len(rows) for rows in clients])
    seen = np.zeros(samples, bool)
    for rows in clients:
        seen[rows] = True
    return Sizes(int(held.min()), float(np.median(held)), int(held.max()), samples - int(seen.sum()))
