"""What can stand after a `+` in a method's name: `fedprox+acg`, `scaffold+adamw`, `fedcm+sam:rho=0.05`.

A modifier is a function of its arguments, as a method is, and so is every method of the catalogue after a `+`.
"""

from __future__ import annotations

from typing import Annotated, Any

from headway.methods import broadcast, local, objective, server
from headway.methods.arguments import Among, Momentum, Rate, Weight
from headway.methods.local.optimiser import Lifetime, Optimiser
from headway.methods.method import Method

Decay = Annotated[str, Among("coupled", "decoupled")]
Matrices = Annotated[str, Among("hidden", "all")]
Scale = Annotated[str, Among("spectral", "rms")]


def acg(lam: Momentum = 0.85) -> Method:
    """φ = θ + λm ; m ← λm + Δ ; θ ← θ + m: lookahead and server momentum, without the proximal pull."""
    return Method(broadcast=broadcast.lookahead(lam), server=server.momentum(lam))


def lookbehind(rho: Weight = 0.15, lam: Momentum = 0.85) -> Method:
    """φ = θ − ρm/‖m‖ ; m ← λm + Δ ; θ ← θ + m: the mirror of `acg`; with λ = 0 what FedGloSS sends."""
    return Method(broadcast=broadcast.lookbehind(rho, "momentum"), server=server.momentum(lam))


def prox(beta: Weight = 0.01) -> Method:
    """+ β/2 ‖w − φ‖² in the objective."""
    return Method(objective=objective.proximal(beta))


def server_momentum(momentum: Momentum = 0.4) -> Method:
    """m ← βm + Δ ; θ ← θ + m on the server."""
    return Method(server=server.momentum(momentum))


def dp(clip: Rate = 1.0, noise: Weight = 1.0) -> Method:
    """x_i ← x_i·min(1, C/‖x_i‖) ; Δ = Σ_S Δ_i/m + N(0, (zC/m)²) ; θ ← θ + Δ: clients' privacy (McMahan et al. 2018)."""
    return Method(server=server.private(clip, noise))


def exp(eps: Weight = 0.001) -> Method:
    """Δ ← max(1, Σω_i‖Δ_i‖²/(2(‖Δ‖² + ε)))·Δ ; θ ← θ + Δ ; output: the mean of the last two θ: FedExP's server rate."""
    return Method(server=server.extrapolation(eps))


def init(beta: Weight = 0.1) -> Method:
    """w₀ = φ + β(φ − θ_i^last): where clients begin ; θ ← θ + Δ: FedInit (Sun et al. 2023)."""
    return Method(local=local.relaxed_start(beta))


# ── optimisers of the clients ────────────────────────────────────────────────────────────────────────────────────────


def _optimised(optimiser: Optimiser) -> dict[str, Any]:
    """The slots of an optimiser: two more where its memory is averaged."""
    if optimiser.state != "average":
        return {"local": optimiser}
    shared = {"broadcast": broadcast.vectors(optimiser.averaged), "server": server.optimiser_mean(optimiser)}
    return {"local": optimiser, **shared}


def sgd(
    momentum: Momentum = 0.9, nesterov: bool = False, decay: Decay = "coupled", state: Lifetime = "reset"
) -> Method:
    """b ← μb + g ; w ← w − ηb, or w ← w − η(g + μb) if nesterov, in the clients ; θ ← θ + Δ: torch.optim.SGD."""
    return Method(**_optimised(local.sgd(momentum, nesterov, decay, state)))


def adam(
    beta1: Momentum = 0.9,
    beta2: Momentum = 0.999,
    eps: Rate = 1e-8,
    decay: Decay = "coupled",
    state: Lifetime = "reset",
) -> Method:
    """m ← β₁m + (1−β₁)g ; v ← β₂v + (1−β₂)g² ; w ← w − η m̂/(√v̂ + ε) in the clients: torch.optim.Adam."""
    return Method(**_optimised(local.adam(beta1, beta2, eps, decay, state)))


def adamw(beta1: Momentum = 0.9, beta2: Momentum = 0.999, eps: Rate = 1e-8, state: Lifetime = "reset") -> Method:
    """m ← β₁m + (1−β₁)g ; v ← β₂v + (1−β₂)g² ; w ← w − η(m̂/(√v̂ + ε) + λw) in the clients: torch.optim.AdamW."""
    return Method(**_optimised(local.adamw(beta1, beta2, eps, state)))


def muon(
    momentum: Momentum = 0.95,
    nesterov: bool = True,
    matrices: Matrices = "hidden",
    scale: Scale = "spectral",
    others_rate: Rate = 1.0,
    beta1: Momentum = 0.9,
    beta2: Momentum = 0.95,
    eps: Rate = 1e-8,
    state: Lifetime = "reset",
) -> Method:
    """M ← μM + (1−μ)g ; w ← w − ηs·NS((1−μ)g + μM) for matrices, AdamW with β₁, β₂ for all others, in the clients."""
    return Method(**_optimised(local.muon(momentum, nesterov, matrices, scale, others_rate, beta1, beta2, eps, state)))


# ── probes of the clients ────────────────────────────────────────────────────────────────────────────────────────────


def sam(rho: Weight = 0.05) -> Method:
    """u = w + ρg(w)/‖g(w)‖ ; the step takes g(u) in the clients ; θ ← θ + Δ: FedSAM (Qu et al., ICML 2022)."""
    return Method(local=local.sam(rho))


def asam(rho: Weight = 0.5, eta: Weight = 0.01) -> Method:
    """u = w + ρT²g(w)/‖Tg(w)‖, T = |w| + η_T ; the step takes g(u) ; θ ← θ + Δ: FedASAM (Caldarola et al. 2022)."""
    return Method(local=local.asam(rho, eta))


def lesam(rho: Weight = 0.05) -> Method:
    """u = w + ρ(φ_last − φ)/‖φ_last − φ‖ ; the step takes g(u) ; θ ← θ + Δ: FedLESAM (Fan et al., ICML 2024)."""
    return Method(local=local.lesam(rho))
