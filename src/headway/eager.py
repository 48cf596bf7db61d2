"""Whether a tensor has a value at this moment, so that the host may look at it and take a shorter way."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode


def transformed() -> bool:
    """Inside `torch.func`'s transformations, which know no operation over many tensors."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def traced() -> bool:
    """While a program is being written down."""
    return get_proxy_mode() is not None


def at_hand(tensor: Tensor) -> bool:
    """On the host, and neither transformed nor traced: its value is there without waiting."""
    return tensor.device.type == "cpu" and not transformed() and not traced()
