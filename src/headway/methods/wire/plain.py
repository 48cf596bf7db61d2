from __future__ import annotations

from typing import Any

from torch import Tensor

from headway.methods.arguments import slot
from headway.vectors import Vector


@slot
class plain:
    """Every coordinate in the run's own floating-point type: 4 bytes each in fp32."""

    def encode(self, vector: Vector, key: Tensor) -> Any:
        return vector

    def decode(self, payload: Any, like: Vector) -> Vector:
        assert isinstance(payload, Vector)
        return payload
