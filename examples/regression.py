"""Numbers as targets, judged by the mean absolute error: squared error beside a loss of one's own.

python examples/regression.py

One reading in twenty is wrong by far. Squared error follows those, the absolute error does not; `metrics="mae"` makes
the MAE the headline of both, which is what tables, targets and pictures show.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import headway as hw

FEATURES = 6


def absolute_error(output: Tensor, target: Tensor) -> Tensor:
    """A loss of one's own returns one number a sample."""
    return F.l1_loss(output[:, 0], target, reduction="none")


def stations(count: int = 12) -> tuple[list[tuple[Tensor, Tensor]], tuple[Tensor, Tensor]]:
    """Sensor stations with readings of their own, and clean readings for the test."""
    draw = torch.Generator().manual_seed(0)
    slope = torch.randn(FEATURES, generator=draw)

    def readings(samples: int, wrong: float) -> tuple[Tensor, Tensor]:
        x = torch.randn(samples, FEATURES, generator=draw)
        y = x @ slope + 0.1 * torch.randn(samples, generator=draw)
        return x, torch.where(torch.rand(samples, generator=draw) < wrong, y + 20, y)

    return [readings(15 + 5 * number, wrong=0.05) for number in range(count)], readings(500, wrong=0.0)


def main(rounds: int = 30) -> None:
    clients, test = stations()
    for name, task in (("squared error", "regression"), ("absolute error", absolute_error)):
        torch.manual_seed(0)  # of the model
        result = hw.simulate(
            "fedacg",
            model=nn.Linear(FEATURES, 1),
            clients=clients,
            test=test,
            task=task,
            metrics="mae",
            rounds=rounds,
            participation=0.5,
            rate=0.02,
            target=0.3,
        )
        reached = result.summary["rounds_to_target"]
        when = f"0.3 (smoothed) in round {reached}" if reached else "0.3 (smoothed) not reached"
        print(f"learnt by {name:15} MAE {result.summary['last_mae']:.3f}, {when}")


if __name__ == "__main__":
    main()
