"""Methods beyond those of the papers that Headway began with, spelled in slots; `catalogue.py` lists them all.

They are what later papers compare with: other momenta of the server and of clients, control variates, sharpness-aware
steps, and optimisers of language models. Signs: Δ_i = θ_i − φ, local − received.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from headway.methods import broadcast, local, objective, server
from headway.methods.arguments import Among, Momentum, Rate, Weight, Within
from headway.methods.method import Method

Share = Annotated[float, Within(0, 1, open_left=True)]
Closed = Annotated[float, Within(0, 1)]
AtLeastOne = Annotated[float, Within(1)]
Rounds = Annotated[int, Within(1, 1000)]
Matrices = Annotated[str, Among("hidden", "all")]
Kept = Annotated[str, Among("reset", "keep")]

# ── momentum ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def fedmom(momentum: Momentum = 0.9, server_rate: Rate = 1.0) -> Method:
    """φ = θ ; v⁺ = θ + η_g Δ ; θ ← v⁺ + β(v⁺ − v) ; v ← v⁺

    Huo et al., Faster on-device training using new federated momentum algorithm, 2020, Alg. 3.
    """
    return Method(server=server.nesterov(momentum, server_rate))


def slowmo(momentum: Momentum = 0.5, server_rate: Rate = 1.0, local_momentum: Momentum = 0.9) -> Method:
    """b ← μb + g ; w ← w − η(g + μb), b = 0 in each round ; u ← βu − Δ/η_t ; θ ← θ − η_g η_t u

    Wang et al., SlowMo: improving communication-efficient distributed SGD with slow momentum, ICLR 2020, Alg. 1.
    """
    return Method(
        local=local.sgd(local_momentum, nesterov=local_momentum > 0),
        server=server.momentum(momentum, server_rate, rate_ratio=True),
    )


def ghbm(beta: Weight = 0.9, tau: Rounds = 10) -> Method:
    """w ← w − η(g + β/(ηK)·M) ; M = (θ_{t−τ} − θ_t)/τ ; θ ← θ + Δ

    Zaccone et al., Communication-efficient heterogeneous federated learning with generalized heavy-ball momentum,
    TMLR 2025, Alg. 1.
    """
    return Method(
        broadcast=broadcast.vector("motion"),
        local=local.pushed(beta),
        server=(server.average(), server.past_motion(tau)),
    )


def local_ghbm(beta: Weight = 0.9, share: Share = 0.1) -> Method:
    """w ← w − η(g + β/(ηK)·M) ; M = C(φ_last − φ), φ_last as the client last received it ; θ ← θ + Δ

    Zaccone et al., Communication-efficient heterogeneous federated learning with generalized heavy-ball momentum,
    TMLR 2025, Alg. 2.
    """
    return Method(local=local.own_motion(beta, share))


def fedadc(momentum: Momentum = 0.6, local_momentum: Momentum = 0.6, server_rate: Rate = 1.0) -> Method:
    """w ← w − η(g + β_l m/K) ; m ← −Δ/η + (β_g − β_l)m ; θ ← θ − η_s ηm

    Ozfatura et al., FedADC: accelerated federated learning with drift control, ISIT 2021, Alg. 2.
    """
    return Method(
        broadcast=broadcast.vector("pull"),
        local=local.pulled(local_momentum),
        server=server.drift_momentum(momentum, local_momentum, server_rate),
    )


def domo(
    momentum: Momentum = 0.9, fusion: Momentum = 0.9, local_momentum: Momentum = 0.9, server_rate: Rate = 1.0
) -> Method:
    """φ = θ + βm ; b ← μ_l b + g ; w ← w − ηb, b = 0 in each round ; m ← μ_s m + Δ ; θ ← θ + η_g m

    Xu and Huang, Coordinating momenta for cross-silo federated learning, AAAI 2022, Alg. 1, pre-momentum fusion.
    """
    return Method(
        broadcast=broadcast.lookahead(fusion),
        local=local.sgd(local_momentum),
        server=server.momentum(momentum, server_rate),
    )


def fedac(gamma: Rate = 2.0, alpha: AtLeastOne = 10.0, beta: AtLeastOne | None = None) -> Method:
    """u = w/β + (1 − 1/β)w^ag ; w^ag ← u − ηg(u) ; w ← (1 − 1/α)w + u/α − γηg(u) ; both are averaged, θ = w^ag

    Yuan and Ma, Federated accelerated stochastic gradient descent, NeurIPS 2020, Alg. 1; everybody takes part.
    """
    return Method(
        broadcast=broadcast.vector("companion"),
        local=local.coupled(gamma, alpha, alpha + 1 if beta is None else beta),
        server=(server.average(), server.companion_mean()),
    )


# ── what the server makes of the updates ─────────────────────────────────────────────────────────────────────────────


def fedadagrad(beta1: Momentum = 0.0, eps: Rate = 0.001, server_rate: Rate = 0.1) -> Method:
    """m ← β₁m + (1−β₁)Δ ; v ← v + Δ² ; θ ← θ + η_g m/(√v + ε)

    Reddi et al., Adaptive federated optimization, ICLR 2021, Alg. 2.
    """
    return Method(server=server.adagrad(beta1, eps, server_rate))


def fedyogi(beta1: Momentum = 0.9, beta2: Momentum = 0.99, eps: Rate = 0.001, server_rate: Rate = 0.01) -> Method:
    """m ← β₁m + (1−β₁)Δ ; v ← v − (1−β₂)Δ² sign(v − Δ²) ; θ ← θ + η_g m/(√v + ε)

    Reddi et al., Adaptive federated optimization, ICLR 2021, Alg. 2.
    """
    return Method(server=server.yogi(beta1, beta2, eps, server_rate))


def fedams(beta1: Momentum = 0.9, beta2: Momentum = 0.99, eps: Rate = 0.001, server_rate: Rate = 0.01) -> Method:
    """m ← β₁m + (1−β₁)Δ ; v ← β₂v + (1−β₂)Δ² ; v̂ ← max(v̂, v) ; θ ← θ + η_g m/(√v̂ + ε)

    Wang et al., Communication-efficient adaptive federated learning, ICML 2022, Alg. 1, option 2.
    """
    return Method(server=server.ams(beta1, beta2, eps, server_rate))


def fedexp(eps: Weight = 0.001) -> Method:
    """η_g = max(1, Σω_i‖Δ_i‖²/(2(‖Δ‖² + ε))) ; θ ← θ + η_g Δ ; output: the mean of the last two θ

    Jhunjhunwala et al., FedExP: speeding up federated averaging via extrapolation, ICLR 2023, Alg. 1.
    """
    return Method(server=(server.average(), server.extrapolation(eps)))


def fednova(server_rate: Rate = 1.0) -> Method:
    """θ ← θ + η_g (Σω_ia_i)·Σω_iΔ_i/a_i, a_i = K_i, or Σ_k η_k where rates fall within the round

    Wang et al., Tackling the objective inconsistency problem in heterogeneous federated optimization, NeurIPS 2020.
    """
    return Method(server=(server.average(server_rate), server.normalised()))


def fedvarp(server_rate: Rate = 1.0) -> Method:
    """v = ȳ + Σ_S ω_i(Δ_i − y_i) ; y_i ← Δ_i for i in S, ȳ = Σ_N p_iy_i ; θ ← θ + η_g v

    Jhunjhunwala et al., FedVARP: tackling the variance due to partial client participation, UAI 2022, Alg. 2.
    """
    return Method(local=local.delta_changes(), server=(server.average(server_rate), server.reduced_variance_mean()))


# ── starts, control variates and duals of clients ────────────────────────────────────────────────────────────────────


def fedinit(beta: Weight = 0.1) -> Method:
    """w₀ = φ + β(φ − θ_i^last), θ_i^last = θ⁰ at first ; θ ← Σω_iθ_i

    Sun et al., Understanding how consistency works in federated learning via stage-wise relaxed initialization,
    NeurIPS 2023, Alg. 1.
    """
    return Method(local=local.relaxed_start(beta))


def scaffnew() -> Method:
    """w ← w − η(g − h_i) ; θ ← Σω_iθ_i ; h_i ← h_i + (θ − θ_i)/(ηK), with the next model that the client receives

    Mishchenko et al., ProxSkip: yes! Local gradient steps provably lead to communication acceleration! Finally!,
    ICML 2022, Alg. 2 with a fixed K = 1/p; everybody takes part.
    """
    return Method(local=local.shifted())


def fedspeed(rho: Weight = 0.1, alpha: Closed = 0.9, mu: Rate = 0.1) -> Method:
    """w ← w − η((1−α)g(w) + αg(w + ρg(w)) − q_i + μ(w − φ)) ; q_i ← q_i − μΔ_i ; θ ← Σω_i(θ_i − q_i/μ)

    Sun et al., FedSpeed: larger local interval, less communication round, and higher generalization accuracy,
    ICLR 2023, Alg. 1; μ is its 1/λ.
    """
    return Method(local=local.perturbed_dual(rho, alpha, mu))


# ── sharpness ────────────────────────────────────────────────────────────────────────────────────────────────────────


def fedsam(rho: Weight = 0.05) -> Method:
    """u = w + ρg(w)/‖g(w)‖ ; w ← w − ηg(u) ; θ ← θ + Δ

    Qu et al., Generalized federated learning via sharpness aware minimization, ICML 2022, Alg. 1.
    """
    return Method(local=local.sam(rho))


def fedasam(rho: Weight = 0.5, eta: Weight = 0.01) -> Method:
    """u = w + ρT²g(w)/‖Tg(w)‖, T = |w| + η_T ; w ← w − ηg(u) ; θ ← θ + Δ

    Caldarola et al., Improving generalization in federated learning by seeking flat minima, ECCV 2022.
    """
    return Method(local=local.asam(rho, eta))


def mofedsam(rho: Weight = 0.05, alpha: Share = 0.1) -> Method:
    """u = w + ρg(w)/‖g(w)‖ ; w ← w − η(αg(u) + (1−α)D) ; D ← −Σω_iΔ_i/(ηK) ; θ ← θ + Δ

    Qu et al., Generalized federated learning via sharpness aware minimization, ICML 2022, Alg. 2.
    """
    return Method(
        broadcast=broadcast.vector("direction"),
        local=(local.sam(rho), local.mixed(alpha)),
        server=server.direction_mean(),
    )


def fedgamma(rho: Weight = 0.01, server_rate: Rate = 1.0) -> Method:
    """u = w + ρg(w)/‖g(w)‖ ; w ← w − η(g(u) − c_i + c) ; c_i, c as in SCAFFOLD ; θ ← θ + η_g Δ

    Dai et al., FedGAMMA: federated learning with global sharpness-aware minimization, TNNLS 2023.
    """
    return Method(
        broadcast=broadcast.vector("control"),
        local=(local.sam(rho), local.controlled()),
        server=(server.average(server_rate), server.control_mean()),
    )


def fedlesam(rho: Weight = 0.05) -> Method:
    """u = w + ρ(φ_last − φ)/‖φ_last − φ‖ ; w ← w − ηg(u) ; θ ← θ + Δ

    Fan et al., Locally estimated global perturbations are better than local perturbations for federated
    sharpness-aware minimization, ICML 2024.
    """
    return Method(local=local.lesam(rho))


def fedgloss(rho: Weight = 0.15, local_rho: Weight = 0.15, alpha: Rate = 0.1) -> Method:
    """φ = θ − ρΔ/‖Δ‖ with the last Δ ; f − ⟨h_i, w⟩ + α/2‖w − φ‖² at w + ρ_l g/‖g‖ ; h_i, h: FedDyn's ; θ ← θ + Δ − h/α

    Caldarola et al., Beyond local sharpness: communication-efficient global sharpness-aware minimization for
    federated learning, CVPR 2025, Alg. 1; α is its 1/β.
    """
    return Method(
        broadcast=broadcast.lookbehind(rho),
        objective=objective.dual(alpha, alpha),
        local=local.sam(local_rho),
        server=(server.average(), server.dual_mean(alpha), server.last_update()),
    )


# ── optimisers of the clients, and language models ───────────────────────────────────────────────────────────────────


def local_adamw(beta1: Momentum = 0.9, beta2: Momentum = 0.999, eps: Rate = 1e-8, state: Kept = "reset") -> Method:
    """m ← β₁m + (1−β₁)g ; v ← β₂v + (1−β₂)g² ; w ← w − η(m̂/(√v̂ + ε) + λw) ; θ ← θ + Δ

    Loshchilov and Hutter, Decoupled weight decay regularization, ICLR 2019, Alg. 2, in the place of
    the SGD of FedAvg's clients.
    """
    return Method(local=local.adamw(beta1, beta2, eps, state))


def local_muon(
    momentum: Momentum = 0.95, matrices: Matrices = "hidden", eps: Rate = 1e-8, state: Kept = "reset"
) -> Method:
    """M ← μM + (1−μ)g ; w ← w − ηs·NS((1−μ)g + μM) for matrices, AdamW for all others ; θ ← θ + Δ

    Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024, as the optimiser of FedAvg's clients.
    """
    return Method(local=local.muon(momentum, matrices=matrices, eps=eps, state=state))


def diloco(
    momentum: Momentum = 0.9,
    server_rate: Rate = 0.7,
    beta1: Momentum = 0.9,
    beta2: Momentum = 0.95,
    eps: Rate = 1e-8,
    state: Kept = "keep",
) -> Method:
    """AdamW in the clients, which keep its moments ; v⁺ = θ + η_g Δ ; θ ← v⁺ + β(v⁺ − v) ; v ← v⁺

    Douillard et al., DiLoCo: distributed low-communication training of language models, 2023, Alg. 1.
    """
    return Method(local=local.adamw(beta1, beta2, eps, state), server=server.nesterov(momentum, server_rate))


def snoo(
    momentum: Momentum = 0.9,
    server_rate: Rate = 0.7,
    beta1: Momentum = 0.9,
    beta2: Momentum = 0.95,
    eps: Rate = 1e-8,
) -> Method:
    """DiLoCo with one worker, which has everybody's data: AdamW ; every K steps θ ← v⁺ + β(v⁺ − v), v⁺ = θ + η_g Δ

    Kallusky et al., SNOO: step-K Nesterov outer optimizer, 2025.
    """
    return Method(
        local=local.adamw(beta1, beta2, eps, state="keep"),
        server=server.nesterov(momentum, server_rate),
        pooled=True,
    )


FAMILIES: dict[str, tuple[Callable[..., Method], ...]] = {
    "Further methods: momentum, and what the server makes of the updates": (
        *(fedmom, slowmo, ghbm, local_ghbm, fedadc, domo, fedac),
        *(fedadagrad, fedyogi, fedams, fedexp, fednova, fedvarp),
    ),
    "Further methods: starts, control variates and duals of clients": (fedinit, scaffnew, fedspeed),
    "Further methods: sharpness": (fedsam, fedasam, mofedsam, fedgamma, fedlesam, fedgloss),
    "Further methods: optimisers of the clients, and language models": (local_adamw, local_muon, diloco, snoo),
}
"""The methods of this page, by family."""
