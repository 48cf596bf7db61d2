"""The further methods whose clients keep nothing: other momenta, server rules, and what clients add to a gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reference.problem import Array, Problem, Trace


def fedmom(problem: Problem, momentum: float, server_rate: float = 1.0) -> Trace:
    """v_{t+1} = w_t + η_g Σω_i(w_i − w_t) ; w_{t+1} = v_{t+1} + β(v_{t+1} − v_t), v_0 = w_0 (Huo et al. 2020)."""
    w, trace = problem.start, []
    v = w
    for t, cohort in problem.rounds():
        before = v
        v = w + server_rate * problem.mean({i: problem.descend(t, i, w) - w for i in cohort})
        w = v + momentum * (v - before)
        trace.append({"theta": w, "v": v})
    return trace


def with_local_momentum(problem: Problem, t: int, client: int, start: Array, mu: float, nesterov: bool) -> Array:
    """PyTorch's SGD with momentum: d = g + λw ; b ← μb + d, b = d at first ; w ← w − η(d + μb), or w − ηb."""
    w, b = start, np.zeros_like(start)
    for rows, rate in problem.steps(t, client):
        d = problem.clipped(problem.gradient(w, rows)) + problem.weight_decay * w
        b = mu * b + d
        w = w - rate * (d + mu * b if nesterov else b)
    return w


def slowmo(problem: Problem, momentum: float, server_rate: float, mu: float) -> Trace:
    """u ← βu + (x − x̄)/γ_t ; x ← x − αγ_t u, x̄ from SGD with Nesterov's momentum (Wang et al. 2020, Alg. 1)."""
    theta, trace = problem.start, []
    u = np.zeros_like(theta)
    for t, cohort in problem.rounds():
        end = problem.mean({i: with_local_momentum(problem, t, i, theta, mu, True) for i in cohort})
        u = momentum * u + (theta - end) / problem.round_rate(t)
        theta = theta - server_rate * problem.round_rate(t) * u
        trace.append({"theta": theta})
    return trace


def domo(problem: Problem, momentum: float, fusion: float, mu: float, server_rate: float) -> Trace:
    """Clients begin at x − βM ; M ← μ_sM + (start − mean x_i) ; x ← x − αM, M as an update (Xu & Huang 2022)."""
    theta, trace = problem.start, []
    m = np.zeros_like(theta)
    for t, cohort in problem.rounds():
        start = theta - fusion * m
        end = problem.mean({i: with_local_momentum(problem, t, i, start, mu, False) for i in cohort})
        m = momentum * m + (start - end)
        theta = theta - server_rate * m
        trace.append({"theta": theta, "m": m})
    return trace


def ghbm(problem: Problem, beta: float, tau: int) -> Trace:
    """u = g + β/(ηK)·(θ_{t−τ} − θ_t)/τ, 0 while t ≤ τ ; θ ← Σω_iθ_i (Zaccone et al. 2025, Alg. 1)."""
    models, trace = [problem.start], []
    for t, cohort in problem.rounds():
        theta = models[-1]
        motion = (models[-1 - tau] - theta) / tau if len(models) > tau else np.zeros_like(theta)
        ends = {}
        for i in cohort:
            push = beta * motion / problem.rate_sum(t, i)

            def rule(w: Array, g: Array, rows: Array, rate: float, push: Array = push) -> Array:
                return g + push

            ends[i] = problem.descend(t, i, theta, rule=rule)
        models.append(problem.mean(ends))
        trace.append({"theta": models[-1]})
    return trace


def local_ghbm(problem: Problem, beta: float, share: float) -> Trace:
    """u = g + β/(ηK)·C(φ_last − φ), φ_last what the client received when it last took part (Zaccone et al. 2025)."""
    theta, trace = problem.start, []
    received: dict[int, Array] = {}
    for t, cohort in problem.rounds():
        ends = {}
        for i in cohort:
            push = beta * share * (received.get(i, theta) - theta) / problem.rate_sum(t, i)

            def rule(w: Array, g: Array, rows: Array, rate: float, push: Array = push) -> Array:
                return g + push

            ends[i] = problem.descend(t, i, theta, rule=rule)
            received[i] = theta
        theta = problem.mean(ends)
        trace.append({"theta": theta})
    return trace


def fedadc(problem: Problem, momentum: float, local_momentum: float, server_rate: float) -> Trace:
    """m̄ = β_l m/K ; u = g + m̄ ; m ← Σω_i(θ − θ_i)/η + (β_g − β_l)m ; θ ← θ − αηm (Ozfatura et al. 2021)."""
    theta, trace = problem.start, []
    m = np.zeros_like(theta)
    for t, cohort in problem.rounds():
        ends = {}
        for i in cohort:
            pull = local_momentum * m / len(problem.batches[t, i])

            def rule(w: Array, g: Array, rows: Array, rate: float, pull: Array = pull) -> Array:
                return g + pull

            ends[i] = problem.descend(t, i, theta, rule=rule)
        eta = problem.round_rate(t)
        m = (theta - problem.mean(ends)) / eta + (momentum - local_momentum) * m
        theta = theta - server_rate * eta * m
        trace.append({"theta": theta, "m": m})
    return trace


def fedac(problem: Problem, gamma: float, alpha: float, beta: float) -> Trace:
    """w^md = w/β + (1 − 1/β)w^ag ; w^ag ← w^md − ηg ; w ← (1 − 1/α)w + w^md/α − γg (Yuan & Ma 2020, Alg. 1).

    Weight decay is added to the step of w^ag.
    """
    ag, trace = problem.start, []
    w = ag
    for t, cohort in problem.rounds():
        ags, ws = {}, {}
        for i in cohort:
            mine, other = ag, w
            for rows, rate in problem.steps(t, i):
                md = other / beta + (1 - 1 / beta) * mine
                g = problem.clipped(problem.gradient(md, rows))
                mine = md - rate * g - rate * problem.weight_decay * mine
                other = (1 - 1 / alpha) * other + md / alpha - gamma * rate * g
            ags[i], ws[i] = mine, other
        ag, w = problem.mean(ags), problem.mean(ws)
        trace.append({"theta": ag, "w": w})
    return trace


def fedopt(
    problem: Problem, second: Callable[[Array, Array], Array], start: float, beta1: float, *rest: float
) -> Trace:
    """m ← β₁m + (1−β₁)Δ ; v ← second(v, Δ) ; θ ← θ + η_g m/(√v + τ) (Reddi et al. 2021, Alg. 2); rest: τ, η_g."""
    theta, trace = problem.start, []
    tau, server_rate = rest
    m, v = np.zeros_like(theta), np.full_like(theta, start)
    for t, cohort in problem.rounds():
        delta = problem.mean({i: problem.descend(t, i, theta) - theta for i in cohort})
        m = beta1 * m + (1 - beta1) * delta
        v = second(v, delta)
        theta = theta + server_rate * m / (np.sqrt(v) + tau)
        trace.append({"theta": theta, "m": m, "v": v})
    return trace


def fedadagrad(problem: Problem, beta1: float, tau: float, server_rate: float) -> Trace:
    """v ← v + Δ², v₀ = τ²."""
    return fedopt(problem, lambda v, delta: v + delta**2, tau**2, beta1, tau, server_rate)


def fedyogi(problem: Problem, beta1: float, beta2: float, tau: float, server_rate: float) -> Trace:
    """v ← v − (1−β₂)Δ² sign(v − Δ²), v₀ = τ²."""

    def second(v: Array, delta: Array) -> Array:
        return np.where(v > delta**2, v - (1 - beta2) * delta**2, v + (1 - beta2) * delta**2)

    return fedopt(problem, second, tau**2, beta1, tau, server_rate)


def fedams(problem: Problem, beta1: float, beta2: float, eps: float, server_rate: float) -> Trace:
    """v ← β₂v + (1−β₂)Δ² ; v̂ ← max(v̂, v) ; θ ← θ + η_g m/(√v̂ + ε) (Wang et al. 2022, Alg. 1, option 2)."""
    theta, trace = problem.start, []
    m, v, top = (np.zeros_like(theta) for _ in range(3))
    for t, cohort in problem.rounds():
        delta = problem.mean({i: problem.descend(t, i, theta) - theta for i in cohort})
        m, v = beta1 * m + (1 - beta1) * delta, beta2 * v + (1 - beta2) * delta**2
        top = np.where(v > top, v, top)
        theta = theta + server_rate * m / (np.sqrt(top) + eps)
        trace.append({"theta": theta, "v": v, "top": top})
    return trace


def fedexp(problem: Problem, eps: float, momentum: float = 0.0, mu: float = 0.0) -> Trace:
    """η_g = max(1, Σω_i‖Δ_i‖²/(2(‖Σω_iΔ_i‖² + ε))) ; m ← βm + η_gΔ ; θ ← θ + m (Jhunjhunwala et al. 2023, Alg. 1)."""
    theta, trace = problem.start, []
    m = np.zeros_like(theta)
    for t, cohort in problem.rounds():

        def gradient(w: Array, rows: Array, anchor: Array = theta) -> Array:
            return problem.gradient(w, rows) + mu * (w - anchor)

        deltas = {i: problem.descend(t, i, theta, gradient) - theta for i in cohort}
        delta = problem.mean(deltas)
        squares = float(problem.mean({i: np.array([each @ each]) for i, each in deltas.items()})[0])
        m = momentum * m + max(1.0, squares / (2 * (float(delta @ delta) + eps))) * delta
        before, theta = theta, theta + m
        trace.append({"theta": theta, "before": before})
    return trace


def fednova(problem: Problem, server_rate: float = 1.0) -> Trace:
    """θ ← θ + η_g·τ_eff·Σω_i Δ_i/τ_i, τ_eff = Σω_iτ_i, τ_i = Σ_kη_k/η_1 (Wang et al. 2020, FedNova with SGD)."""
    theta, trace = problem.start, []
    for t, cohort in problem.rounds():
        taus = {i: np.array([problem.rate_sum(t, i) / problem.round_rate(t)]) for i in cohort}
        units = {i: (problem.descend(t, i, theta) - theta) / taus[i] for i in cohort}
        theta = theta + server_rate * problem.mean(taus) * problem.mean(units)
        trace.append({"theta": theta})
    return trace


def ascended(problem: Problem, rho: float, eta: float | None = None) -> Callable[[Array, Array], Array]:
    """g(w + ρ·g/‖g‖), or with `eta` g(w + ρ·T²g/‖Tg‖), T = |w| + η (Qu et al. 2022; Kwon et al. 2021)."""

    def gradient(w: Array, rows: Array) -> Array:
        g = problem.gradient(w, rows)
        scale = np.ones_like(w) if eta is None else np.abs(w) + eta
        long = float(np.sqrt(np.sum((scale * g) ** 2)))
        return problem.gradient(w + rho * scale**2 * g / max(long, 1e-12), rows)

    return gradient


def fedsam(problem: Problem, rho: float, eta: float | None = None) -> Trace:
    """FedAvg whose clients take the gradient at the ascended point."""
    theta, trace = problem.start, []
    for t, cohort in problem.rounds():
        theta = problem.mean({i: problem.descend(t, i, theta, ascended(problem, rho, eta)) for i in cohort})
        trace.append({"theta": theta})
    return trace


def mofedsam(problem: Problem, rho: float, alpha: float) -> Trace:
    """u = αg(w + ρĝ) + (1−α)D ; D ← −Σω_iΔ_i/(ηK) ; θ ← Σω_iθ_i (Qu et al. 2022, Alg. 2)."""
    theta, trace = problem.start, []
    common = np.zeros_like(theta)
    for t, cohort in problem.rounds():

        def rule(w: Array, g: Array, rows: Array, rate: float, common: Array = common) -> Array:
            return alpha * g + (1 - alpha) * common

        deltas = {i: problem.descend(t, i, theta, ascended(problem, rho), rule) - theta for i in cohort}
        common = -problem.mean({i: delta / problem.rate_sum(t, i) for i, delta in deltas.items()})
        theta = theta + problem.mean(deltas)
        trace.append({"theta": theta, "direction": common})
    return trace


Moments = tuple[Array, Array, int]


def adamw(
    problem: Problem, t: int, client: int, start: Array, betas: tuple[float, float], moments: Moments
) -> tuple[Array, Moments]:
    """PyTorch's AdamW, ε = 1e-8: w ← w − ηλw, then w ← w − η m̂/(√v̂ + ε)."""
    w, (m, v, count) = start, moments
    for rows, rate in problem.steps(t, client):
        g = problem.clipped(problem.gradient(w, rows))
        m, v, count = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g**2, count + 1
        step = (m / (1 - betas[0] ** count)) / (np.sqrt(v / (1 - betas[1] ** count)) + 1e-8)
        w = w - rate * problem.weight_decay * w - rate * step
    return w, (m, v, count)


def diloco(problem: Problem, outer: tuple[float, float], betas: tuple[float, float], keep: bool = True) -> Trace:
    """Inner AdamW, whose moments a worker keeps ; outer SGD with Nesterov's momentum on −Δ, as PyTorch has it.

    Douillard et al. 2023, Alg. 1.
    """
    (rate, momentum), theta, trace = outer, problem.start, []
    none: Moments = (np.zeros_like(theta), np.zeros_like(theta), 0)
    kept: dict[int, Moments] = {}
    b = np.zeros_like(theta)
    for t, cohort in problem.rounds():
        ends = {}
        for i in cohort:
            ends[i], kept[i] = adamw(problem, t, i, theta, betas, kept.get(i, none) if keep else none)
        g = theta - problem.mean(ends)
        b = momentum * b + g
        theta = theta - rate * (g + momentum * b)
        trace.append({"theta": theta})
    return trace


def _newton_schulz(g: Array) -> Array:
    """Five iterations x ← ax + b(xxᵀ)x + c(xxᵀ)²x from g/‖g‖ (Jordan et al. 2024)."""
    x = (g.T if g.shape[0] > g.shape[1] else g) / np.linalg.norm(g)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x - 4.7750 * a @ x + 2.0315 * a @ a @ x
    return x.T if g.shape[0] > g.shape[1] else x


def local_muon(problem: Problem, momentum: float, classes: int) -> Trace:
    """Softmax regression: Muon for the weight matrix and AdamW (.9, .95) for the bias, anew in each round."""
    theta, trace = problem.start, []
    size = len(theta) - classes
    for t, cohort in problem.rounds():
        ends = {}
        for i in cohort:
            w, mean, square = theta, np.zeros_like(theta), np.zeros(classes)
            for k, (rows, rate) in enumerate(problem.steps(t, i), 1):
                g = problem.clipped(problem.gradient(w, rows))
                decay = np.concatenate([np.full(size, momentum), np.full(classes, 0.9)])
                mean = decay * mean + (1 - decay) * g
                square = 0.95 * square + 0.05 * g[size:] ** 2
                ahead = ((1 - momentum) * g + momentum * mean)[:size].reshape(classes, -1)
                scale = np.sqrt(max(1.0, ahead.shape[0] / ahead.shape[1]))
                bias = mean[size:] / (1 - 0.9**k) / (np.sqrt(square / (1 - 0.95**k)) + 1e-8)
                step = np.concatenate([(scale * _newton_schulz(ahead)).ravel(), bias])
                w = w - rate * (step + problem.weight_decay * w)
            ends[i] = w
        theta = problem.mean(ends)
        trace.append({"theta": theta})
    return trace
