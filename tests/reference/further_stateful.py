"""The further methods whose clients remember."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reference.further import ascended
from reference.problem import Array, Problem, Trace
from reference.stateful import zeros


def fedvarp(problem: Problem, server_rate: float = 1.0) -> Trace:
    """v = Σ_N p_jy_j + Σ_S ω_i(Δ_i − y_i), with the y of before ; y_i ← Δ_i ; θ ← θ + η_g v (Jhunjhunwala 2022)."""
    theta, trace = problem.start, []
    y = zeros(problem)
    for t, cohort in problem.rounds():
        deltas = {i: problem.descend(t, i, theta) - theta for i in cohort}
        everybody = np.sum([problem.share(j) * y[j] for j in y], axis=0)
        v = everybody + problem.mean({i: deltas[i] - y[i] for i in cohort})
        y |= deltas
        theta = theta + server_rate * v
        trace.append({"theta": theta, "y": np.sum([problem.share(j) * y[j] for j in y], axis=0)})
    return trace


def fedinit(problem: Problem, beta: float) -> Trace:
    """w_{i,0} = w_t + β(w_t − w_{i,K}), w_{i,K} the client's last model, w_0 at first ; w ← Σω_iw_{i,K} (Sun 2023)."""
    theta, trace = problem.start, []
    last = dict.fromkeys(range(len(problem.clients)), problem.start)
    for t, cohort in problem.rounds():
        for i in cohort:
            last[i] = problem.descend(t, i, theta + beta * (theta - last[i]))
        theta = problem.mean({i: last[i] for i in cohort})
        trace.append({"theta": theta})
    return trace


def scaffnew(problem: Problem) -> Trace:
    """x̂ ← x̂ − η(g − h_i), K times ; x = Σω_ix̂_i ; h_i ← h_i + (x − x̂_i)/(ηK) at once (Mishchenko et al. 2022)."""
    theta, trace = problem.start, []
    h = zeros(problem)
    for t, cohort in problem.rounds():
        ends = {}
        for i in cohort:

            def rule(w: Array, g: Array, rows: Array, rate: float, mine: Array = h[i]) -> Array:
                return g - mine

            ends[i] = problem.descend(t, i, theta, rule=rule)
        theta = problem.mean(ends)
        for i in cohort:
            h[i] = h[i] + (theta - ends[i]) / problem.rate_sum(t, i)
        trace.append({"theta": theta})
    return trace


def fedspeed(problem: Problem, rho: float, alpha: float, lam: float) -> Trace:
    """Sun et al. 2023, Alg. 1: (1−α)g(x) + αg(x + ρg(x)) − ĝ_i + (x − x_t)/λ ; ĝ_i ← ĝ_i − (x_i − x_t)/λ ; x_i − λĝ_i.

    Each of the two gradients is clipped by itself.
    """
    theta, trace = problem.start, []
    own = zeros(problem)
    for t, cohort in problem.rounds():
        sent = {}
        for i in cohort:

            def rule(
                w: Array, g: Array, rows: Array, rate: float, mine: Array = own[i], anchor: Array = theta
            ) -> Array:
                further = problem.clipped(problem.gradient(w + rho * g, rows))
                return (1 - alpha) * g + alpha * further - mine + (w - anchor) / lam

            end = problem.descend(t, i, theta, rule=rule)
            own[i] = own[i] - (end - theta) / lam
            sent[i] = end - lam * own[i]
        theta = problem.mean(sent)
        trace.append({"theta": theta})
    return trace


def fedgamma(problem: Problem, rho: float) -> Trace:
    """SCAFFOLD, option II, with the gradient at the ascended point (Dai et al. 2023)."""
    theta, trace = problem.start, []
    c, own = np.zeros_like(theta), zeros(problem)
    for t, cohort in problem.rounds():
        deltas, moved = {}, np.zeros_like(theta)
        for i in cohort:

            def rule(w: Array, g: Array, rows: Array, rate: float, shift: Array = c - own[i]) -> Array:
                return g + shift

            deltas[i] = problem.descend(t, i, theta, ascended(problem, rho), rule) - theta
            after = own[i] - c - deltas[i] / problem.rate_sum(t, i)
            moved = moved + problem.share(i) * (after - own[i])
            own[i] = after
        c = c + moved
        theta = theta + problem.mean(deltas)
        trace.append({"theta": theta, "c": c})
    return trace


def fedlesam(problem: Problem, rho: float) -> Trace:
    """g(w + ρ(w_old − w_t)/‖w_old − w_t‖), w_old what the client received when it last took part (Fan et al. 2024)."""
    theta, trace = problem.start, []
    received: dict[int, Array] = {}
    for t, cohort in problem.rounds():
        ends = {}
        for i in cohort:
            away = received.get(i, theta) - theta
            long = float(np.sqrt(away @ away))
            ascent = rho * away / long if long else away

            def gradient(w: Array, rows: Array, ascent: Array = ascent) -> Array:
                return problem.gradient(w + ascent, rows)

            ends[i] = problem.descend(t, i, theta, gradient)
            received[i] = theta
        theta = problem.mean(ends)
        trace.append({"theta": theta})
    return trace


def fedgloss(problem: Problem, rho: float, local_rho: float, beta: float) -> Trace:
    """w̃ = w − ρΔ/‖Δ‖ ; ∇f − σ_i + (w − w̃)/β at the ascended point ; σ ← σ − ΣΔ_i/(βN) ; w ← w + Δ − βσ.

    Caldarola et al. 2025, Alg. 1.
    """
    theta, trace = problem.start, []
    last, sigma, own = np.zeros_like(theta), np.zeros_like(theta), zeros(problem)
    for t, cohort in problem.rounds():
        long = float(np.sqrt(last @ last))
        start = theta - rho * last / long if long else theta
        deltas = {}
        for i in cohort:

            def whole(w: Array, rows: Array, mine: Array = own[i], anchor: Array = start) -> Array:
                return problem.gradient(w, rows) - mine + (w - anchor) / beta

            def gradient(w: Array, rows: Array, whole: Callable[[Array, Array], Array] = whole) -> Array:
                g = whole(w, rows)
                return whole(w + local_rho * g / max(float(np.sqrt(g @ g)), 1e-12), rows)

            deltas[i] = problem.descend(t, i, start, gradient) - start
            own[i] = own[i] - deltas[i] / beta
        for i in cohort:
            sigma = sigma - problem.share(i) * deltas[i] / beta
        last = problem.mean(deltas)
        theta = theta + last - beta * sigma
        trace.append({"theta": theta, "sigma": sigma})
    return trace
