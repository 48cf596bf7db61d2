from __future__ import annotations

from torch import Tensor

from headway.methods.arguments import slot
from headway.vectors import Vector


@slot
class plain:
    """Every coordinate in the run's own floating-point type: 4 bytes each in fp32."""

    def encode(self, vector: Vector, key: Tensor) -> Vector:
        return vector

    def decode(self, payload: Vector, like: Vector) -> Vector:
        return payload
