"""FedACG's conditions and rate for smooth losses, convex or not (Kim et al. 2024, Theorem 1; first text, Theorem 2)."""

from __future__ import annotations

from dataclasses import dataclass

from headway.errors import UserError
from headway.theory.condition import Condition, check_number


@dataclass(frozen=True)
class Problem:
    """Constants of the losses F_i of weight 1/N: L-smooth, variance σ² of batches, mean ‖∇F_i‖² ≤ σ_g² + B²‖∇F‖²."""

    smoothness: float
    """L."""
    sigma: float
    sigma_g: float
    b: float
    gap: float
    """F(θ⁰) − F*, or more."""

    def __post_init__(self) -> None:
        check_number("smoothness", self.smoothness, above=True)
        check_number("sigma", self.sigma)
        check_number("sigma_g", self.sigma_g)
        check_number("b", self.b)
        check_number("gap", self.gap)


@dataclass(frozen=True)
class Rounds:
    """K local steps of |S| of N clients in T rounds, with the decay λ of the server's momentum."""

    lam: float
    local_steps: int
    clients: int
    cohort: int
    rounds: int

    def __post_init__(self) -> None:
        check_number("lam", self.lam, below=1.0)
        check_number("local_steps", self.local_steps, least=1)
        check_number("rounds", self.rounds, least=1)
        check_number("cohort", self.cohort, least=1)
        if self.cohort > self.clients:
            raise UserError(f"cohort is {self.cohort} of {self.clients} clients; it must be at most their number")


@dataclass(frozen=True)
class Rate:
    """The terms of Theorem 1's rate of ‖∇F(θ+λm)‖², the mean over rounds. The theorem leaves their factors open."""

    sampling: float
    """M₁√(LD)/√(TK|S|), M₁² = σ² + K(1−|S|/N)σ_g²."""
    drift: float
    """(LD(1−λ)²)^⅔ M₂^⅓/(T+1)^⅔, M₂ = σ²/K + σ_g²."""
    start: float
    """B²LD/T."""

    @property
    def total(self) -> float:
        return self.sampling + self.drift + self.start


def largest_step(problem: Problem, rounds: Rounds) -> float:
    """η ≤ (1−λ)²/(64KL(B²+1)): Theorem 1 of the published text."""
    return (1 - rounds.lam) ** 2 / (64 * rounds.local_steps * problem.smoothness * (problem.b**2 + 1))


def largest_step_of_first_text(problem: Problem, rounds: Rounds) -> float:
    """η ≤ (1−λ)/(100KL(B²+1)): Theorem 2 of the first text, which has λ ≤ 0.962."""
    if rounds.lam > 0.962:
        raise UserError(f"lam is {rounds.lam:g}; Theorem 2 of FedACG's first text has lam of at most 0.962")
    return (1 - rounds.lam) / (100 * rounds.local_steps * problem.smoothness * (problem.b**2 + 1))


def largest_lam(problem: Problem, rounds: Rounds, eta: float) -> float | None:
    """The largest λ with which Theorem 1 allows a step size; None where it allows it with none."""
    least = (64 * rounds.local_steps * problem.smoothness * (problem.b**2 + 1) * eta) ** 0.5
    return 1 - least if least <= 1 else None


def conditions(problem: Problem, rounds: Rounds, eta: float) -> tuple[Condition, ...]:
    """What Theorem 1 asks of a step size."""
    most = largest_step(problem, rounds)
    return (Condition("η ≤ (1−λ)²/(64KL(B²+1))", eta, eta <= most, f"eta of at most {most:.4g} does it"),)


@dataclass(frozen=True)
class Constants:
    """What a rate is made of besides L, B and the numbers of rounds, steps and clients."""

    d: float
    """D = (F(θ⁰)−F*)/(1−λ)."""
    m1: float
    """M₁, M₁² = σ² + K(1−|S|/N)σ_g²: batches, and the sampling of clients."""
    m2: float
    """M₂ = σ²/K + σ_g²: how far local models go apart."""
    a: float
    """A = 1 + 4N(1−|S|/N)/((N−1)|S|) of the first text's Eq. 6: what drawing |S| of N clients costs; 1 with all."""


def constants(problem: Problem, rounds: Rounds) -> Constants:
    """The constants of Theorem 1's rate, and the first text's A."""
    steps, absent = rounds.local_steps, 1 - rounds.cohort / rounds.clients
    drawn = 4 * rounds.clients * absent / ((rounds.clients - 1) * rounds.cohort) if absent else 0.0
    return Constants(
        d=problem.gap / (1 - rounds.lam),
        m1=(problem.sigma**2 + steps * absent * problem.sigma_g**2) ** 0.5,
        m2=problem.sigma**2 / steps + problem.sigma_g**2,
        a=1 + drawn,
    )


def rate(problem: Problem, rounds: Rounds) -> Rate:
    """The rate of Theorem 1; its proof has no proximal term, and its own η."""
    total, found = rounds.rounds, constants(problem, rounds)
    distance = problem.smoothness * problem.gap / (1 - rounds.lam)  # LD
    return Rate(
        sampling=found.m1 * distance**0.5 / (total * rounds.local_steps * rounds.cohort) ** 0.5,
        drift=(distance * (1 - rounds.lam) ** 2) ** (2 / 3) * found.m2 ** (1 / 3) / (total + 1) ** (2 / 3),
        start=problem.b**2 * distance / total,
    )
