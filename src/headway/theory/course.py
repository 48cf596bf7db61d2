"""FedNAG on a convex problem beside its virtual worker: every constant of its theorems, measured on the way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.theory.convex import ConvexProblem, Minimum
from headway.theory.fednag import Course, Smoothness, Steps


@dataclass(frozen=True)
class Measured:
    """One course of FedNAG (FedAvg, where γ = 0), with everybody and full gradients."""

    steps: Steps
    averages: Tensor
    """θ after each interval, from θ⁰ on, shape (intervals + 1, d)."""
    gaps: Tensor
    """F − F* at the averages, with the least F* there can be, shape (intervals + 1,)."""
    smoothness: Smoothness
    course: Course
    distances: Tensor
    """The largest ‖w(t) − w_[k](t)‖ over intervals, after 0 … τ steps of one, shape (τ + 1,)."""


class _Extremes:
    """The largest and smallest numbers that were met on the way."""

    def __init__(self, clients: int) -> None:
        self.deltas = torch.zeros(clients, dtype=torch.float64)
        self.rho = self.p = self.radius = 0.0
        self.q = self.cosine = float("inf")

    def point(self, slopes: Tensor, shares: Tensor, radius: float) -> Tensor:
        """Meet a point of the virtual worker, whose ∇F is returned; `slopes` are the ∇F_i there, shape (N, d)."""
        whole = shares @ slopes
        self.deltas = torch.maximum(self.deltas, (slopes - whole).norm(dim=1))
        self.slopes(slopes)
        self.radius = max(self.radius, radius)
        return whole

    def slopes(self, slopes: Tensor) -> None:
        """Meet gradients of clients, for ρ."""
        self.rho = max(self.rho, float(slopes.norm(dim=1).max()))

    def step(self, whole: Tensor, velocity: Tensor, eta: float, gamma: float) -> None:
        """Meet a step of the virtual worker from a point where ∇F is `whole`."""
        speed, size = float(velocity.norm()), float(whole.norm())
        if speed == 0 or size == 0 or gamma == 0:
            return
        self.p = max(self.p, gamma * speed / (eta * size))
        self.q = min(self.q, speed / (eta * size))
        self.cosine = min(self.cosine, -float(whole @ velocity) / (speed * size))


def measure(problem: ConvexProblem, start: Tensor, best: Minimum, steps: Steps, total: int) -> Measured:
    """FedNAG for T = `total` steps from a point, and its virtual worker from each average on."""
    eta, gamma, shares = steps.eta, steps.gamma, problem.shares
    seen = _Extremes(len(shares))
    average, momentum = start.clone(), torch.zeros_like(start)
    averages, distances = [average], torch.zeros(steps.tau + 1, dtype=torch.float64)
    for _ in range(total // steps.tau):
        points, speeds = average.expand(len(shares), -1), momentum.expand(len(shares), -1)
        virtual, speed = average, momentum
        for x in range(steps.tau):
            whole = seen.point(problem.gradients(virtual), shares, float((virtual - best.at).norm()) + best.error)
            seen.step(whole, speed, eta, gamma)
            points, speeds = _stepped(points, speeds, problem.gradients(points), eta, gamma)
            virtual, speed = _stepped(virtual, speed, whole, eta, gamma)
            distances[x + 1] = max(distances[x + 1], (shares @ points - virtual).norm())
        seen.point(problem.gradients(virtual), shares, float((virtual - best.at).norm()) + best.error)
        average, momentum = shares @ points, shares @ speeds
        averages.append(average)
    seen.slopes(problem.gradients(average))
    gaps = torch.stack([shares @ problem.losses(one) for one in averages]) - best.least
    smoothness = Smoothness(problem.smoothness, seen.rho, float(shares @ seen.deltas))
    moved = seen.p > 0
    course = Course(1 / seen.radius**2, seen.p, seen.q if moved else 0.0, seen.cosine if moved else 0.0)
    return Measured(steps, torch.stack(averages), gaps, smoothness, course, distances)


def _stepped(point: Tensor, velocity: Tensor, slope: Tensor, eta: float, gamma: float) -> tuple[Tensor, Tensor]:
    """v ← γv − ηg ; w ← w + γv − ηg with the new v."""
    velocity = gamma * velocity - eta * slope
    return point + gamma * velocity - eta * slope, velocity
