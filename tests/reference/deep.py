"""A network of three stages and the objectives that look inside it: MOON, FedMLB, FedNTD, FedLC, FedDecorr.

Stages: tanh(A₁x + a₁), tanh(A₂h₁ + a₂), A₃h₂ + a₃. The feature is h₂, the input of the last stage.
Every loss is an analytic function of the parameters, so its gradient comes from the complex step
∂ℓ/∂w_j = Im ℓ(w + iεe_j)/ε, which has no rounding of differences (Squire and Trapp 1998).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reference.problem import Array, Problem, Trace

Objective = Callable[[Array, Array, Array], complex]
"""(parameters, x, y) → the objective on one batch."""


class Network:
    """Sizes of the layers, and the passes through them. Parameters: matrix row by row, then bias, layer by layer."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def layers(self, w: Array) -> list[tuple[Array, Array]]:
        found, at = [], 0
        for before, after in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            matrix = w[at : at + after * before].reshape(after, before)
            at += after * before
            found.append((matrix, w[at : at + after]))
            at += after
        return found

    def stages(self, w: Array, x: Array) -> list[Array]:
        """h₁, h₂ and the logits."""
        found = []
        for number, (matrix, bias) in enumerate(self.layers(w)):
            x = x @ matrix.T + bias
            if number < len(self.sizes) - 2:
                x = np.tanh(x)
            found.append(x)
        return found

    def resumed(self, w: Array, stage: int, hidden: Array) -> Array:
        """Logits from the output of a stage, counted from 0."""
        layers = self.layers(w)
        for number in range(stage + 1, len(layers)):
            matrix, bias = layers[number]
            hidden = hidden @ matrix.T + bias
            if number < len(layers) - 1:
                hidden = np.tanh(hidden)
        return hidden

    def logits(self, w: Array, x: Array) -> Array:
        return self.stages(w, x)[-1]

    def feature(self, w: Array, x: Array) -> Array:
        return self.stages(w, x)[-2]


def complex_step(function: Callable[[Array], complex], w: Array) -> Array:
    """∇ of a real analytic function."""
    epsilon = 1e-30
    gradient = np.empty(len(w))
    for j in range(len(w)):
        moved = w.astype(complex)
        moved[j] += 1j * epsilon
        gradient[j] = np.imag(function(moved)) / epsilon
    return gradient


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.real.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def cross_entropy(logits: Array, y: Array) -> complex:
    return -np.mean(log_softmax(logits)[np.arange(len(y)), y])


def divergence(teacher: Array, student: Array) -> complex:
    """Batch mean of KL(softmax(teacher) ‖ softmax(student))."""
    of, to = log_softmax(teacher), log_softmax(student)
    return np.mean((np.exp(of) * (of - to)).sum(1))


def moon(net: Network, received: Array, previous: Array, mu: float, temperature: float) -> Objective:
    """CE + μ·mean −log[e^{s(z,z_φ)/T}/(e^{s(z,z_φ)/T} + e^{s(z,z_prev)/T})] (Li et al. 2021, Eq. 3)."""

    def cosine(one: Array, two: Array) -> Array:
        lengths = np.sqrt((one * one).sum(1)) * np.sqrt((two * two).sum(1))
        return (one * two).sum(1) / lengths

    def value(w: Array, x: Array, y: Array) -> complex:
        z = net.feature(w, x)
        near = np.exp(cosine(z, net.feature(received, x)) / temperature)
        far = np.exp(cosine(z, net.feature(previous, x)) / temperature)
        return cross_entropy(net.logits(w, x), y) + mu * np.mean(-np.log(near / (near + far)))

    return value


def fedmlb(
    net: Network, received: Array, cross: float = 1.0, distil: float = 1.0, temperature: float = 1.0
) -> Objective:
    """CE(z) + λ₁·mean_l CE(b_l) + λ₂·mean_l KL(softmax(b_l/T) ‖ softmax(z/T)), without a factor T².

    b_l is local up to stage l and the received model after it (Kim et al. 2022, FedMLB, Eq. 4 to 6). One path for
    every stage but the last; frozen weights get no gradient.
    """

    def value(w: Array, x: Array, y: Array) -> complex:
        *hidden, z = net.stages(w, x)
        paths = [net.resumed(received, stage, output) for stage, output in enumerate(hidden)]
        total = cross_entropy(z, y)
        for logits in paths:
            apart = divergence(logits / temperature, z / temperature)
            total += (cross * cross_entropy(logits, y) + distil * apart) / len(paths)
        return total

    return value


def _not_true(logits: Array, y: Array) -> Array:
    """The logits of every class but the true one, shape (B, C − 1)."""
    batch, classes = logits.shape
    kept = np.arange(classes)[None, :] != y[:, None]
    return logits[kept].reshape(batch, classes - 1)


def fedntd(net: Network, received: Array, beta: float, temperature: float, mixed: bool = False) -> Objective:
    """CE + β·KL(received ‖ local) on softmax(z/T) without the true class (Lee et al. 2022).

    `mixed`: (1−β)·CE + β·KL, as in FedACG's program of 2024.
    """

    def value(w: Array, x: Array, y: Array) -> complex:
        local, teacher = net.logits(w, x), net.logits(received, x)
        kept = divergence(_not_true(teacher, y) / temperature, _not_true(local, y) / temperature)
        return (1 - beta if mixed else 1.0) * cross_entropy(local, y) + beta * kept

    return value


def fedlc(net: Network, counts: Array, temperature: float, others: bool = False) -> Objective:
    """−log[e^{z_y − Tn_y^{−1/4}} / Σ_c e^{z_c − Tn_c^{−1/4}}] over the classes the client holds.

    This is FedACG's program of 2024.

    `others`: the sum leaves the true class out (Zhang et al. 2022, Eq. 5). With one class it is empty, and the loss 0.
    """
    held = [c for c in range(len(counts)) if counts[c] > 0]
    if len(held) == 1:
        return lambda w, x, y: 0.0j  # of both forms: −log[e^a/e^a], and nothing to compare with

    def value(w: Array, x: Array, y: Array) -> complex:
        total = 0.0 + 0.0j
        for logits, label in zip(net.logits(w, x), y, strict=True):
            calibrated = {c: logits[c] - temperature * float(counts[c]) ** -0.25 for c in held}
            below = sum(np.exp(calibrated[c]) for c in held if not (others and c == label))
            total += np.log(below) - calibrated[label]
        return total / len(y)

    return value


def feddecorr(net: Network, beta: float, program: bool = False) -> Objective:
    """CE + β·‖K‖_F²/d², K the correlation matrix of the batch's features (Shi et al. 2023).

    X is centred and divided by √(unbiased variance + 1e-8), the authors' guard against features that do not vary;
    K = XᵀX/(B − 1). `program`: mean of M_ij² over i ≠ j with M = XᵀX, divided by B, as in
    FedACG's program of 2024. A batch of one has no correlations: 0.
    """

    def value(w: Array, x: Array, y: Array) -> complex:
        *_, feature, logits = net.stages(w, x)
        loss = cross_entropy(logits, y)
        batch, width = feature.shape
        if batch == 1:
            return loss
        centred = feature - feature.mean(0)
        scaled = centred / np.sqrt((centred * centred).sum(0) / (batch - 1) + 1e-8)
        products = scaled.T @ scaled
        if program:
            return loss + beta * (products[~np.eye(width, dtype=bool)] ** 2).mean() / batch
        return loss + beta * ((products / (batch - 1)) ** 2).sum() / width**2

    return value


def averaged(
    problem: Problem,
    objective: Callable[[Array, Array, int], Objective],
    momentum: float = 0.0,
    lookahead: bool = False,
) -> Trace:
    """m ← βm + Δ, θ ← θ + m, clients minimising objective(received model, own previous model, client).

    A new client's previous model is θ⁰. `lookahead`: clients start from θ + βm (Kim et al. 2024, FedACG, Alg. 1).
    """
    theta, trace = problem.start, []
    m = np.zeros_like(theta)
    last = dict.fromkeys(range(len(problem.clients)), problem.start)
    for t, cohort in problem.rounds():
        received = theta + momentum * m if lookahead else theta
        for i in cohort:
            chosen = objective(received, last[i], i)

            def gradient(w: Array, rows: Array, chosen: Objective = chosen) -> Array:
                return complex_step(lambda at: chosen(at, problem.x[rows], problem.y[rows]), w)

            last[i] = problem.descend(t, i, received, gradient)
        m = momentum * m + problem.mean({i: last[i] - received for i in cohort})
        theta = theta + m
        trace.append({"theta": theta, "m": m})
    return trace
