"""How far the clients of a round went, and how far they agree: norms and cosines of their updates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from headway.vectors import Vector


@dataclass(frozen=True)
class ClientUpdates:
    """The updates Δ_i that arrived in a round, as the server decoded them, and their weighted mean Δ = Σ_i ω_i Δ_i.

    A cosine is nan where one of its vectors is zero.
    """

    clients: tuple[int, ...]
    """In the order of the record's `clients`; the other tuples have the same order."""
    weights: tuple[float, ...]
    """ω_i."""
    norms: tuple[float, ...]
    """‖Δ_i‖."""
    cosines: tuple[float, ...]
    """⟨Δ_i, Δ⟩ / (‖Δ_i‖ ‖Δ‖)."""
    norm: float
    """‖Δ‖."""
    pairwise: float
    """The mean of ⟨Δ_i, Δ_j⟩ / (‖Δ_i‖ ‖Δ_j‖) over all pairs i ≠ j; nan where there is none."""
    least: float = math.nan
    """The least of these cosines; nan where there is none."""


def measured(clients: Sequence[int], weights: np.ndarray, deltas: Sequence[Vector]) -> ClientUpdates:
    """The numbers of these updates, all from their products ⟨Δ_i, Δ_j⟩ in float64."""
    products = _products(deltas)
    norms = np.sqrt(np.diag(products))
    norm = math.sqrt(max(float(weights @ products @ weights), 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = products @ weights / (norms * norm)
        pairs = products / np.outer(norms, norms)
    apart = pairs[~np.eye(len(norms), dtype=bool)]
    apart = apart[~np.isnan(apart)]
    return ClientUpdates(
        clients=tuple(clients),
        weights=tuple(weights.tolist()),
        norms=tuple(norms.tolist()),
        cosines=tuple(cosines.tolist()),
        norm=norm,
        pairwise=float(apart.mean()) if len(apart) else math.nan,
        least=float(apart.min()) if len(apart) else math.nan,
    )


def _products(deltas: Sequence[Vector]) -> np.ndarray:
    """⟨Δ_i, Δ_j⟩ of all pairs, shape (clients, clients), summed leaf by leaf."""
    total = torch.zeros(len(deltas), len(deltas), dtype=torch.float64)
    for name in deltas[0].leaves:
        rows = torch.stack([delta.leaves[name].reshape(-1) for delta in deltas]).double()
        total += (rows @ rows.T).cpu()
    return total.numpy()
