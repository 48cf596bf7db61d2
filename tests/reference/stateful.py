"""Methods whose clients remember: SCAFFOLD, FedDyn, FedDC, MIFA and MIFAM.

Where the papers write 1/N it is p_i = n_i/Σ_N n when the aggregation weights are by size.
"""

from __future__ import annotations

import numpy as np

from reference.problem import Array, Problem, Trace


def zeros(problem: Problem) -> dict[int, Array]:
    return {i: np.zeros_like(problem.start) for i in range(len(problem.clients))}


def scaffold(problem: Problem, server_rate: float = 1.0) -> Trace:
    """u = g − c_i + c ; c_i⁺ = c_i − c − Δ_i/Σ_kη_k ; c ← c + Σ_S p_i(c_i⁺ − c_i) ; θ ← θ + η_gΔ.

    Karimireddy et al. 2020, Alg. 1, option II.
    """
    theta, trace = problem.start, []
    c, own = np.zeros_like(theta), zeros(problem)
    for t, cohort in problem.rounds():
        deltas, moved = {}, np.zeros_like(theta)
        for i in cohort:

            def rule(w: Array, g: Array, rows: Array, rate: float, mine: Array = own[i], c: Array = c) -> Array:
                return g - mine + c

            deltas[i] = problem.descend(t, i, theta, rule=rule) - theta
            after = own[i] - c - deltas[i] / problem.rate_sum(t, i)
            moved = moved + problem.share(i) * (after - own[i])
            own[i] = after
        c = c + moved
        theta = theta + server_rate * problem.mean(deltas)
        trace.append({"theta": theta, "c": c})
    return trace


def feddyn(problem: Problem, alpha: float, mu: float | None = None) -> Trace:
    """f − ⟨h_i, w⟩ + α/2‖w − θ‖² ; h_i ← h_i − αΔ_i ; h ← h − αΣ_S p_iΔ_i ; θ ← Σω_iθ_i − h/α.

    Acar et al. 2021; `mu` in place of the quadratic term's α as in FedAGM's program of 2021.
    """
    theta, trace = problem.start, []
    h, own = np.zeros_like(theta), zeros(problem)
    pull = alpha if mu is None else mu
    for t, cohort in problem.rounds():
        models = {}
        for i in cohort:

            def gradient(w: Array, rows: Array, mine: Array = own[i], anchor: Array = theta) -> Array:
                return problem.gradient(w, rows) - mine + pull * (w - anchor)

            models[i] = problem.descend(t, i, theta, gradient)
            own[i] = own[i] - alpha * (models[i] - theta)
        for i in cohort:
            h = h - alpha * problem.share(i) * (models[i] - theta)
        theta = problem.mean(models) - h / alpha
        trace.append({"theta": theta, "h": h})
    return trace


def feddc(problem: Problem, alpha: float, program: bool = False) -> Trace:
    """f + α/2‖w + h_i − θ‖² + ⟨w, c − c_i⟩ ; h_i ← h_i + Δ_i ; θ ← Σω_iθ_i + Σ_N p_ih_i ; c, c_i as in SCAFFOLD.

    Gao et al. 2022. The mean of h_i runs over all N clients. `program`: α and c are divided by u_i = n_i N/Σn, and
    c ← c + Σ_S u_i(c_i⁺ − c_i)/N, whatever the weights.
    """
    theta, trace = problem.start, []
    sizes = np.array([len(rows) for rows in problem.clients], dtype=float)
    u = sizes / sizes.sum() * len(sizes) if program else np.ones(len(sizes))
    c, own, drift = np.zeros_like(theta), zeros(problem), zeros(problem)
    for t, cohort in problem.rounds():
        models, moved = {}, np.zeros_like(theta)
        for i in cohort:

            def gradient(
                w: Array, rows: Array, i: int = i, mine: Array = own[i], c: Array = c, anchor: Array = theta
            ) -> Array:
                return problem.gradient(w, rows) + alpha / u[i] * (w + drift[i] - anchor) + c / u[i] - mine

            models[i] = problem.descend(t, i, theta, gradient)
            delta = models[i] - theta
            after = own[i] - c / u[i] - delta / problem.rate_sum(t, i)
            weight = u[i] / len(u) if program else problem.share(i)
            moved = moved + weight * (after - own[i])
            own[i] = after
            drift[i] = drift[i] + delta
        c = c + moved
        h = np.sum([problem.share(i) * drift[i] for i in drift], axis=0)
        theta = problem.mean(models) + h
        trace.append({"theta": theta, "c": c, "h": h})
    return trace


def mifa_program(problem: Problem, in_rates: bool = True, wait: bool = True) -> Trace:
    """The authors' program of MIFA: a table of (θ_i − θ)/η_t for each client ; θ ← θ + η_t Σ_N p_i table_i.

    `wait`: nothing moves up to and with the round in which the last client is seen. It fills the table there with new
    updates from θ⁰ for everybody; here with those of the rounds before, also from θ⁰. Without: absent ones count 0.
    """
    theta, trace = problem.start, []
    table = zeros(problem)
    seen: set[int] = set()
    for t, cohort in problem.rounds():
        rate = problem.round_rate(t) if in_rates else 1.0
        for i in cohort:
            table[i] = (problem.descend(t, i, theta) - theta) / rate
        if not wait or len(seen) == len(problem.clients):
            theta = theta + rate * np.sum([problem.share(i) * table[i] for i in table], axis=0)
        seen |= set(cohort)
        trace.append({"theta": theta})
    return trace


def mifam(problem: Problem, momentum: float = 0.0, server_rate: float = 1.0) -> Trace:
    """d ← d + Σ_S p_i(g_i − g_i^old), g_i = x_t − x_i ; m ← β₁m + d ; x ← x − η_g m. MIFA: β₁ = 0.

    Luo et al. 2023, Alg. 6.
    """
    theta, trace = problem.start, []
    old = zeros(problem)
    d, m = np.zeros_like(theta), np.zeros_like(theta)
    for t, cohort in problem.rounds():
        for i in cohort:
            g = theta - problem.descend(t, i, theta)
            d = d + problem.share(i) * (g - old[i])
            old[i] = g
        m = momentum * m + d
        theta = theta - server_rate * m
        trace.append({"theta": theta, "d": d, "m": m})
    return trace
