"""FedNAG's and FedAvg's bounds for convex losses (Yang et al. 2022, Theorems 1 to 4; FedAvg: Wang et al. 2019).

Each of N workers takes τ steps v ← γv − η∇F_i(w) ; w ← w + γv − η∇F_i(w); then w and v are averaged, F = Σ_i p_iF_i.
The virtual worker does the same with ∇F and starts again from the averages in each interval of τ steps.
FedAvg is γ = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.errors import UserError
from headway.theory.condition import Condition, check_number, refuse


@dataclass(frozen=True)
class Smoothness:
    """Constants of the losses: each F_i is β-smooth and ρ-Lipschitz where the workers are."""

    beta: float
    rho: float
    delta: float
    """δ = Σ_i p_iδ_i, with ‖∇F_i − ∇F‖ ≤ δ_i."""

    def __post_init__(self) -> None:
        check_number("beta", self.beta, above=True)
        check_number("rho", self.rho)
        check_number("delta", self.delta)


@dataclass(frozen=True)
class Course:
    """Constants of the virtual worker's way, over all steps from where its velocity v is not 0.

    γ‖v‖ ≤ p η‖∇F‖ ; ‖v‖ ≥ q η‖∇F‖ ; cos θ is the least cosine between v and −∇F ; ω = 1/max ‖w − w*‖². With p, q and
    cos θ as they are here, each step lowers F by at least α‖∇F‖².
    """

    omega: float
    p: float = 0.0
    q: float = 0.0
    cosine: float = 0.0

    def __post_init__(self) -> None:
        check_number("omega", self.omega, above=True)
        check_number("p", self.p)
        check_number("q", self.q)
        check_number("cosine", self.cosine, least=-1.0)


@dataclass(frozen=True)
class Steps:
    """How workers step: η, γ (0: FedAvg) and τ steps between two averages."""

    eta: float
    gamma: float
    tau: int

    def __post_init__(self) -> None:
        check_number("eta", self.eta, above=True)
        check_number("gamma", self.gamma, below=1.0)
        check_number("tau", self.tau, least=1)


def worker_distance(x: int, beta: float, delta: float, eta: float, gamma: float) -> float:
    """f_i(x): how far a worker may be from the virtual one after x steps of an interval (Lemma 2), δ = δ_i.

    With b_0 = a_0 = 0: b_x = γb_{x−1} + η(βa_{x−1} + δ) ; a_x = a_{x−1} + γb_x + η(βa_{x−1} + δ) ; f_i(x) = a_x.
    All terms are positive, so nothing cancels, as it does in the closed form.
    """
    return _distances(x, beta, delta, eta, gamma)[0]


def divergence(x: int, smoothness: Smoothness, eta: float, gamma: float) -> float:
    """h(x): how far the average of the workers may be from the virtual one after x steps (Theorem 1); γ = 0: ĥ(x).

    h_x = h_{x−1} + γB_x + ηβf_{x−1} with B_x = γB_{x−1} + ηβf_{x−1}, f of `worker_distance` and h_0 = B_0 = 0.
    """
    return _distances(x, smoothness.beta, smoothness.delta, eta, gamma)[1]


def _distances(x: int, beta: float, delta: float, eta: float, gamma: float) -> tuple[float, float]:
    """(f(x), h(x)), by the recursion of the proof; `inf` where they are beyond all numbers."""
    worker = velocity = average = mean_velocity = 0.0
    for _ in range(x):
        apart = eta * beta * worker
        push = apart + eta * delta
        velocity = gamma * velocity + push
        worker += gamma * velocity + push
        mean_velocity = gamma * mean_velocity + apart
        average += gamma * mean_velocity + apart
    return worker, average


def decrease(beta: float, course: Course, eta: float, gamma: float) -> float:
    """α = η(γ+1)(1 − βη(γ+1)/2) − βη²γ²p²/2 + γ²ηq(1 − βη(γ+1))cos θ: F falls by α‖∇F‖² a step (Theorem 2).

    In the very first step v is 0, so that it has neither q nor cos θ: α is that of the steps after it.
    """
    reach = beta * eta * (gamma + 1)
    pushed = eta * (gamma + 1) * (1 - reach / 2)
    return pushed - beta * (eta * gamma * course.p) ** 2 / 2 + gamma**2 * eta * course.q * (1 - reach) * course.cosine


def conditions(smoothness: Smoothness, course: Course, steps: Steps) -> tuple[Condition, ...]:
    """What Theorem 3 asks for."""
    eta, gamma, beta = steps.eta, steps.gamma, smoothness.beta
    most, alpha = 1 / (beta * (1 + gamma)), decrease(beta, course, eta, gamma)
    return (
        Condition("βη(1+γ) ≤ 1", beta * eta * (1 + gamma), eta <= most, f"eta of at most {most:.4g} does it"),
        Condition("cos θ ≥ 0", course.cosine, gamma == 0 or course.cosine >= 0, "a smaller eta may do"),
        Condition("α > 0", alpha, alpha > 0, "a smaller eta or gamma may do"),
    )


def gap_bound(total: int, smoothness: Smoothness, course: Course, steps: Steps) -> float:
    """f₁(T): a bound of F − F* at the best average of the first T steps (Theorem 3); with γ = 0 it is FedAvg's f₂(T).

    f₁ = 1/(2Tωα) + √(1/(4T²ω²α²) + ρh(τ)/(ωατ)) + ρh(τ). T is a multiple of τ. Refused where a condition fails.
    """
    if total < 1 or total % steps.tau:
        raise UserError(f"T is {total} steps; it must be a multiple of tau, which is {steps.tau}")
    refuse("Theorem 3 of FedNAG" if steps.gamma else "FedAvg's bound", conditions(smoothness, course, steps))
    return _gap_bound(total, smoothness, course, steps)


def _gap_bound(total: float, smoothness: Smoothness, course: Course, steps: Steps) -> float:
    apart = smoothness.rho * divergence(steps.tau, smoothness, steps.eta, steps.gamma)
    gain = course.omega * decrease(smoothness.beta, course, steps.eta, steps.gamma)
    first = 1 / (2 * total * gain)
    return first + math.sqrt(first**2 + apart / (gain * steps.tau)) + apart


def threshold(total: int, smoothness: Smoothness, course: Course, gamma: float, tau: int) -> float:
    """η̄(T): f₁(T) < f₂(T) for every step size below it (Theorem 4), with the same ω, p, q and cos θ for all of them.

    Found by steps of a hundredth of a decade from below, then by halving; it is at most 1/(β(1+γ)), the largest step
    size that the theorems allow. 0 where FedAvg's bound is the smaller one for all of them.
    """
    most = 1 / (smoothness.beta * (1 + gamma))

    def is_better(eta: float) -> bool:
        plain = _gap_bound(total, smoothness, Course(course.omega), Steps(eta, 0.0, tau))
        accelerated = decrease(smoothness.beta, course, eta, gamma) > 0
        return accelerated and _gap_bound(total, smoothness, course, Steps(eta, gamma, tau)) < plain

    sizes = [most * 10 ** (-place / 100) for place in range(1200, -1, -1)]
    worse = next((place for place, eta in enumerate(sizes) if not is_better(eta)), None)
    if worse is None:
        return most
    if worse == 0:
        return 0.0
    low, high = sizes[worse - 1], sizes[worse]
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_better(middle) else (low, middle)
    return low
