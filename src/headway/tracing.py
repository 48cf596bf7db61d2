"""Whether a tensor has a value at this moment, so that Python code may look at it and take a shorter way."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode


def is_transformed() -> bool:
    """Whether this runs inside a transformation of `torch.func`, such as vmap or grad.

    Operations over lists of tensors (`torch._foreach_*`) do not work there.
    """
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_stacked() -> bool:
    """Whether this runs inside vmap: tensors may be those of many clients."""
    kind = torch._C._functorch.TransformType.Vmap
    return any(level.key() == kind for level in torch._C._functorch.get_interpreter_stack() or [])


def is_tracing() -> bool:
    """Whether `make_fx` is recording the operations that run now as a program."""
    return get_proxy_mode() is not None


def is_concrete(tensor: Tensor) -> bool:
    """Whether the tensor's value can be read at once: it is on the CPU, and nothing is transformed or traced."""
    return tensor.device.type == "cpu" and not is_transformed() and not is_tracing()
