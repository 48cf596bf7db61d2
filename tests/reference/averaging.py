"""Methods whose clients keep nothing: FedAvg, FedProx, FedAvgM, FedAdam, FedCM, MimeLite, FedACG, FedAGM, FedNAG."""

from __future__ import annotations

import numpy as np

from reference.problem import Array, Problem, Trace


def fedavg(problem: Problem, server_rate: float = 1.0) -> Trace:
    """θ ← θ + η_g Σω_i(θ_i − θ) (McMahan et al. 2017; Kim et al. 2022, FedAGM, Alg. 1)."""
    theta, trace = problem.start, []
    for t, cohort in problem.rounds():
        delta = problem.mean({i: problem.descend(t, i, theta) - theta for i in cohort})
        theta = theta + server_rate * delta
        trace.append({"theta": theta})
    return trace


def fedprox(problem: Problem, mu: float, half: bool = True) -> Trace:
    """Clients minimise f + μ/2 ‖w − θ‖² (Luo et al. 2023, Alg. 5, line 11).

    Without the half it is that of FedACG's program of 2024.
    """
    theta, trace = problem.start, []
    strength = mu if half else 2 * mu
    for t, cohort in problem.rounds():

        def gradient(w: Array, rows: Array, anchor: Array = theta) -> Array:
            return problem.gradient(w, rows) + strength * (w - anchor)

        theta = problem.mean({i: problem.descend(t, i, theta, gradient) for i in cohort})
        trace.append({"theta": theta})
    return trace


def fedavgm(problem: Problem, momentum: float, server_rate: float = 1.0, mu: float = 0.0) -> Trace:
    """d = Σω_i(x_t − x_i), m ← β₁m + d, x ← x − η_g m ; FedProxM: ∇f + μ(w − x_t) on clients.

    Luo et al. 2023, Alg. 5.
    """
    theta, trace = problem.start, []
    m = np.zeros_like(theta)
    for t, cohort in problem.rounds():

        def gradient(w: Array, rows: Array, anchor: Array = theta) -> Array:
            return problem.gradient(w, rows) + mu * (w - anchor)

        d = problem.mean({i: theta - problem.descend(t, i, theta, gradient) for i in cohort})
        m = momentum * m + d
        theta = theta - server_rate * m
        trace.append({"theta": theta, "m": m})
    return trace


def slowmo(problem: Problem, momentum: float, server_rate: float = 1.0) -> Trace:
    """m ← βm − Δ/η_t ; θ ← θ − η_g η_t m: momentum in units of the rate (FedAGM's program of 2021)."""
    theta, trace = problem.start, []
    m = np.zeros_like(theta)
    for t, cohort in problem.rounds():
        delta = problem.mean({i: problem.descend(t, i, theta) - theta for i in cohort})
        m = momentum * m - delta / problem.round_rate(t)
        theta = theta - server_rate * problem.round_rate(t) * m
        trace.append({"theta": theta})
    return trace


def fedadam(
    problem: Problem, beta1: float, beta2: float, eps: float, server_rate: float, from_momentum: bool = False
) -> Trace:
    """m ← β₁m + (1−β₁)Δ ; v ← β₂v + (1−β₂)Δ² ; θ ← θ + η_g m/(√v + τ) ; v₀ = τ² (Reddi et al. 2021).

    `from_momentum`: m² in place of Δ², as in FedAGM's program of 2021.
    """
    theta, trace = problem.start, []
    m, v = np.zeros_like(theta), np.full_like(theta, eps * eps)
    for t, cohort in problem.rounds():
        delta = problem.mean({i: problem.descend(t, i, theta) - theta for i in cohort})
        m = beta1 * m + (1 - beta1) * delta
        v = beta2 * v + (1 - beta2) * (m if from_momentum else delta) ** 2
        theta = theta + server_rate * m / (np.sqrt(v) + eps)
        trace.append({"theta": theta, "m": m, "v": v})
    return trace


def fedcm(problem: Problem, alpha: float) -> Trace:
    """u = αg + (1−α)D ; D ← −Σω_i Δ_i/Σ_kη_k ; θ ← θ + Δ (Xu et al. 2021; FedAGM's program of 2021)."""
    theta, trace = problem.start, []
    common = np.zeros_like(theta)
    for t, cohort in problem.rounds():

        def rule(w: Array, g: Array, rows: Array, rate: float, common: Array = common) -> Array:
            return alpha * g + (1 - alpha) * common

        deltas = {i: problem.descend(t, i, theta, rule=rule) - theta for i in cohort}
        common = -problem.mean({i: delta / problem.rate_sum(t, i) for i, delta in deltas.items()})
        theta = theta + problem.mean(deltas)
        trace.append({"theta": theta, "direction": common})
    return trace


def mimelite(problem: Problem, momentum: float) -> Trace:
    """u = (1−β)g + βm, m fixed in the round ; m ← βm + (1−β)Σω_i∇f_i(θ) on whole data ; θ ← Σω_iθ_i.

    Karimireddy et al. 2020, MimeLite with SGD and momentum.
    """
    theta, trace = problem.start, []
    m = np.zeros_like(theta)
    for t, cohort in problem.rounds():

        def rule(w: Array, g: Array, rows: Array, rate: float, m: Array = m) -> Array:
            return (1 - momentum) * g + momentum * m

        models = {i: problem.descend(t, i, theta, rule=rule) for i in cohort}
        whole = {i: problem.gradient(theta, problem.clients[i]) for i in cohort}
        m = momentum * m + (1 - momentum) * problem.mean(whole)
        theta = problem.mean(models)
        trace.append({"theta": theta, "m": m})
    return trace


def fedacg(problem: Problem, lam: float, beta: float, half: bool = True) -> Trace:
    """Start and anchor at θ + λm, m ← λm + Δ, θ ← θ + m (Kim et al. 2024, Alg. 1).

    The pull is β/2‖w − φ‖², without the half in the authors' program of 2024.
    """
    theta, trace = problem.start, []
    pull = beta if half else 2 * beta
    m = np.zeros_like(theta)
    for t, cohort in problem.rounds():
        ahead = theta + lam * m

        def gradient(w: Array, rows: Array, ahead: Array = ahead) -> Array:
            return problem.gradient(w, rows) + pull * (w - ahead)

        delta = problem.mean({i: problem.descend(t, i, ahead, gradient) - ahead for i in cohort})
        m = lam * m + delta
        theta = theta + m
        trace.append({"theta": theta, "m": m})
    return trace


def fedagm(problem: Problem, lam: float, beta: float, alpha: float, server_rate: float) -> Trace:
    """φ = θ − λV ; αf + β/2‖w − φ‖² ; θ′ = τ Σω_iθ_i + (1−τ)φ ; V ← −(θ′ − θ) (Kim et al. 2022, FedAGM, Alg. 2)."""
    theta, trace = problem.start, []
    velocity = np.zeros_like(theta)
    for t, cohort in problem.rounds():
        ahead = theta - lam * velocity

        def gradient(w: Array, rows: Array, ahead: Array = ahead) -> Array:
            return alpha * problem.gradient(w, rows) + beta * (w - ahead)

        mean = problem.mean({i: problem.descend(t, i, ahead, gradient) for i in cohort})
        after = server_rate * mean + (1 - server_rate) * ahead
        velocity = -(after - theta)
        theta = after
        trace.append({"theta": theta, "V": velocity})
    return trace


def fednag(problem: Problem, gamma: float) -> Trace:
    """v ← γv − ηg ; w ← w + γv − ηg from the received v ; w, v ← Σω_i w_i, Σω_i v_i over the cohort.

    Yang et al. 2022, Alg. 1.

    Weight decay is added to the step and not to v, as for every method here.
    """
    theta, trace = problem.start, []
    velocity = np.zeros_like(theta)
    for t, cohort in problem.rounds():
        models, velocities = {}, {}
        for i in cohort:
            w, v = theta, velocity
            for rows, rate in problem.steps(t, i):
                g = problem.clipped(problem.gradient(w, rows))
                before, v = v, gamma * v - rate * g
                w = w - gamma * before + (1 + gamma) * v - rate * problem.weight_decay * w
            models[i], velocities[i] = w, v
        theta, velocity = problem.mean(models), problem.mean(velocities)
        trace.append({"theta": theta, "v": velocity})
    return trace
