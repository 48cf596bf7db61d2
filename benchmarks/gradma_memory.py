"""GradMA-S at full size: 100 remembered rows of 11 million parameters on one device, without a second copy of them.

python benchmarks/gradma_memory.py [--device cuda] [--parameters 11173962] [--rows 100]

The updates of one round lean against those of the last, so that constraints bind.
Prints the memory's size, the peak beyond it, the seconds of one server update and the relative KKT residual.
"""

from __future__ import annotations

import argparse
import time

import torch

from headway.methods.server import update_memory
from headway.methods.slots import Uploads
from headway.random import key, uniform
from headway.trees import nbytes
from headway.vectors import Vector


def vector(name: str, sizes: list[int], device: torch.device, lean: float = 0.0) -> Vector:
    """Pseudo-random leaves of the given sizes, leaning to one side."""
    return Vector(
        {
            f"leaf{number}": uniform(torch.tensor(key(0, name, number), device=device), (size,)) - 0.5 + lean
            for number, size in enumerate(sizes)
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parameters", type=int, default=11_173_962)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--cohort", type=int, default=10)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    sizes = [arguments.parameters // 8] * 7
    sizes.append(arguments.parameters - sum(sizes))
    slot = update_memory(momentum=0.5, memory_decay=0.5, memory=arguments.rows)
    model = vector("model", sizes, device)
    state = slot.server_state(model, arguments.rows)
    taken = []
    for number in range(arguments.rows // arguments.cohort + 3):
        clients = tuple((number * arguments.cohort + place) % arguments.rows for place in range(arguments.cohort))
        each = tuple(
            {"delta": vector(f"update {number}/{client}", sizes, device, 0.1 * (-1) ** number)} for client in clients
        )
        mean = each[0]["delta"]
        for fields in each[1:]:
            mean = mean + fields["delta"]
        mean = mean / len(each)
        weights = (1 / len(each),) * len(each)
        uploads = Uploads({"delta": mean}, {"model": model}, 0.1, 0.1, clients, weights, arguments.rows, each)
        if device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        start = time.perf_counter()
        model, state = slot.update(model, uploads, state)
        correction = float(state["correction"])
        taken.append(time.perf_counter() - start)
    rows = nbytes(state["rows"])
    print(f"memory {rows / 1e9:.2f} GB, correction {correction:.3f}, last update {taken[-1]:.3f} s on {device}")
    if device.type == "cuda":
        beyond = torch.cuda.max_memory_allocated() - before
        print(
            f"peak beyond what was there before the update: {beyond / 1e9:.2f} GB ({beyond / rows:.1%} of the memory)"
        )
    worst = min(
        sum(
            float(leaf[place].double() @ state["momentum"].leaves[name].double())
            for name, leaf in state["rows"].leaves.items()
        )
        / float(sum(float(leaf[place].double().square().sum()) for leaf in state["rows"].leaves.values()) ** 0.5)
        for place in range(arguments.rows)
    )
    print(f"least ⟨m̃, row⟩/‖row‖ relative to ‖m̃‖: {worst / float(state['momentum'].to(torch.float64).norm()):.2e}")


if __name__ == "__main__":
    main()
