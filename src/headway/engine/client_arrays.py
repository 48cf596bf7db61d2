"""`ClientArrays`: the numbers of one client's round, as arrays that can be stacked, padded and sent to a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from headway.trees import register_record, tree_map

Array = TypeVar("Array", np.ndarray, Tensor)


@register_record
@dataclass(frozen=True)
class ClientArrays(Generic[Array]):
    """Batches, rates and facts of one client in one round. Those of a cohort stack, with a leading axis of clients.

    They are NumPy's on the host and tensors where a client is trained. K is the number of steps; rows and steps beyond
    a client's own are padding.
    """

    size: Array
    """n_i."""
    share: Array
    """p_i."""
    seen: Array
    """Whether the client took part before."""
    class_counts: Array
    """Shape (classes,)."""
    rows: Array
    """Shape (K, batch): rows of the training samples."""
    counts: Array
    """Shape (K,): the samples in each batch."""
    rates: Array
    """Shape (K,): η of each step."""
    steps: Array
    """K_i ≤ K."""
    key: Array
    """The random key of (seed, round, client)."""
    whole: Array
    """Shape (n,): all rows of the client, for `full_grad_at`; empty where no slot reads them."""


HostArrays = ClientArrays[np.ndarray]
DeviceArrays = ClientArrays[Tensor]


def placed(arrays: HostArrays, device: torch.device) -> DeviceArrays:
    """The same numbers as tensors on a device."""
    return tree_map(lambda array: torch.from_numpy(array).to(device), arrays)  # type: ignore[no-any-return]
