"""GradMA's conditions and rate for smooth losses, convex or not (Luo et al. 2023, Theorem 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.errors import UserError
from headway.theory.condition import Condition, check_number, refuse


@dataclass(frozen=True)
class Problem:
    """Constants of the losses, each client of weight 1/N: L-smooth, ‖∇f_i − ∇f‖ ≤ ρ everywhere, and those of the QPs.

    ρ is finite everywhere only where all f_i have the same Hessian; an estimate holds at the points it was made at.
    """

    smoothness: float
    """L."""
    rho: float
    gap: float
    """f(x₀) − f*, or more."""
    epsilon_l: float = 0.0
    """How far a client's corrected gradient may be from its gradient."""
    epsilon_g: float = 0.0
    """How far the server's corrected momentum may be from its momentum."""

    def __post_init__(self) -> None:
        check_number("smoothness", self.smoothness, above=True)
        check_number("rho", self.rho)
        check_number("gap", self.gap)
        check_number("epsilon_l", self.epsilon_l)
        check_number("epsilon_g", self.epsilon_g)


@dataclass(frozen=True)
class Rounds:
    """I local steps of S of N clients in T rounds, with β₁ of the momentum and β₂ of the memory."""

    momentum: float
    memory_decay: float
    local_steps: int
    clients: int
    cohort: int
    rounds: int

    def __post_init__(self) -> None:
        check_number("momentum", self.momentum, below=1.0)
        check_number("memory_decay", self.memory_decay, below=1.0)
        check_number("local_steps", self.local_steps, least=1)
        check_number("rounds", self.rounds, least=1)
        check_number("cohort", self.cohort, least=1)
        if self.clients < 2 or self.cohort > self.clients:
            raise UserError(
                f"cohort is {self.cohort} of {self.clients} clients; the theorem has at least 2 clients, and a cohort "
                "of at most all of them"
            )


def _from_drift(problem: Problem, rounds: Rounds, eta: float, server_rate: float) -> float:
    """320I²η_l²L² + 64Iη_gη_lL(1+40I²η_l²L²)/(1−β₁)² · (N−S)/(S(N−1)): the left side of the third condition."""
    reach = rounds.local_steps * eta * problem.smoothness  # Iη_lL
    left_out = (rounds.clients - rounds.cohort) / (rounds.cohort * (rounds.clients - 1))
    return 320 * reach**2 + 64 * server_rate * reach * (1 + 40 * reach**2) / (1 - rounds.momentum) ** 2 * left_out


def largest_product(problem: Problem, rounds: Rounds) -> float:
    """η_gη_l ≤ (1−β₁)²S(N−1)/(IL(β₁S(N−1) + 4N(S−1))); without limit where β₁ = 0 and S = 1."""
    some = rounds.cohort * (rounds.clients - 1)
    below = rounds.momentum * some + 4 * rounds.clients * (rounds.cohort - 1)
    if below == 0:
        return math.inf
    return (1 - rounds.momentum) ** 2 * some / (rounds.local_steps * problem.smoothness * below)


def conditions(problem: Problem, rounds: Rounds, eta: float, server_rate: float) -> tuple[Condition, ...]:
    """What Theorem 1 asks of the local and the server's step sizes η_l and η_g."""
    check_number("eta", eta, above=True)
    check_number("server_rate", server_rate, above=True)
    first = 1 / (math.sqrt(160) * problem.smoothness * rounds.local_steps)
    second, third = largest_product(problem, rounds), _from_drift(problem, rounds, eta, server_rate)
    advice = f"eta of at most {largest_step(problem, rounds, server_rate):.4g} does it"
    return (
        Condition("η_l ≤ 1/(√160·LI)", eta, eta <= first, advice),
        Condition(
            "η_gη_l ≤ (1−β₁)²S(N−1)/(IL(β₁S(N−1)+4N(S−1)))", eta * server_rate, eta * server_rate <= second, advice
        ),
        Condition("320I²η_l²L² + 64Iη_gη_lL(1+40I²η_l²L²)/(1−β₁)²·(N−S)/(S(N−1)) ≤ 1", third, third <= 1, advice),
    )


def largest_step(problem: Problem, rounds: Rounds, server_rate: float) -> float:
    """The largest η_l that all three conditions allow with this η_g; the third is met by halving, from below."""
    check_number("server_rate", server_rate, above=True)
    most = min(
        1 / (math.sqrt(160) * problem.smoothness * rounds.local_steps), largest_product(problem, rounds) / server_rate
    )
    if _from_drift(problem, rounds, most, server_rate) <= 1:
        return most
    low, high = 0.0, most
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _from_drift(problem, rounds, middle, server_rate) <= 1 else (low, middle)
    return low


@dataclass(frozen=True)
class Rate:
    """The terms of the bound of (1/T)Σ E‖∇f(x_t)‖²."""

    start: float
    """8(1−β₁)(f(x₀)−f*)/(Iη_gη_lT)."""
    local: float
    """C₁ε_l²."""
    server: float
    """C₂ε_g²."""
    clients: float
    """C₃ρ²."""
    factors: tuple[float, float, float]
    """C₁, C₂, C₃."""

    @property
    def total(self) -> float:
        return self.start + self.local + self.server + self.clients


def rate(problem: Problem, rounds: Rounds, eta: float, server_rate: float) -> Rate:
    """The rate of Theorem 1; refused where a condition does not hold."""
    refuse("Theorem 1 of GradMA", conditions(problem, rounds, eta, server_rate))
    steps, keep = rounds.local_steps, 1 - rounds.memory_decay
    third = _from_drift(problem, rounds, eta, server_rate)
    second = 20 * server_rate * problem.smoothness / ((1 - rounds.momentum) ** 2 * keep * steps * eta)
    second += 8 / (keep * (steps * eta) ** 2)
    return Rate(
        start=8 * (1 - rounds.momentum) * problem.gap / (steps * server_rate * eta * rounds.rounds),
        local=(8 + third) * problem.epsilon_l**2,
        server=second * problem.epsilon_g**2,
        clients=third * problem.rho**2,
        factors=(8 + third, second, third),
    )
