"""Your own model and your own clients, with a method of the catalogue and with a slot of your own.

python examples/own_model.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

import headway as hw


def hospitals(count: int = 12) -> tuple[list[TensorDataset], TensorDataset]:
    """Clients of unequal size that see the same two classes under different angles."""
    draw = np.random.default_rng(0)

    def data(samples: int, angle: float) -> TensorDataset:
        y = draw.integers(0, 2, samples)
        points = draw.normal(size=(samples, 2)) + np.where(y == 0, -1.5, 1.5)[:, None]
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        return TensorDataset(torch.tensor(points @ turn.T, dtype=torch.float32), torch.tensor(y))

    clients = [data(int(draw.integers(10, 60)), draw.normal(scale=0.4)) for _ in range(count)]
    return clients, data(400, 0.0)


@dataclass(frozen=True)
class sign_descent:
    """A local rule in five lines: step along the sign of the gradient."""

    scale: float

    def direction(self, w, gradient, memory, step):  # type: ignore[no-untyped-def]
        return self.scale * gradient.map(torch.sign), memory


def main() -> None:
    clients, test = hospitals()
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    settings = {"rounds": 10, "participation": 0.5, "epochs": 1, "batch_size": 8}
    for method in ("fedavg", "fedacg", hw.Method(local=sign_descent(0.1), name="sign descent")):
        result = hw.simulate(method, model=model, clients=clients, test=test, **settings)
        print(f"{result.method:14} accuracy {result.summary['accuracy_raw']:.3f}  executor {result.executor}")


if __name__ == "__main__":
    main()
