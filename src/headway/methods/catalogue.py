"""Every named method, spelled in slots. Reading this page and `further.py` teaches the field.

An entry is a function of the method's arguments; its docstring says the equations, then the source. Modifiers, which
are used after a `+` only (`fedprox+acg:lam=0.9`), are in `modifiers.py`. Signs: Δ_i = θ_i − φ, local − received.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from headway.methods import broadcast, further, local, modifiers, objective, server, wire
from headway.methods.arguments import Among, Momentum, Rate, Weight, Within
from headway.methods.method import Method

Share = Annotated[float, Within(0, 1, open_left=True)]
Closed = Annotated[float, Within(0, 1)]
Bits = Annotated[int, Within(1, 16)]
Rows = Annotated[int, Within(0)]
Scope = Annotated[str, Among("model", "tensor")]
Previous = Annotated[str, Among("last", "last-or-received", "received")]

# ── the accelerated family ───────────────────────────────────────────────────────────────────────────────────────────


def fedacg(lam: Momentum = 0.85, beta: Weight = 0.01, half: bool = True) -> Method:
    """φ = θ + λm ; f + β/2 ‖w − φ‖² ; m ← λm + Δ ; θ ← θ + m

    Kim et al., Communication-efficient federated learning with accelerated client gradient, CVPR 2024, Alg. 1.
    """
    return Method(
        broadcast=broadcast.lookahead(lam), objective=objective.proximal(beta, half), server=server.momentum(lam)
    )


def fedagm(lam: Momentum = 0.85, beta: Weight = 0.01, alpha: Weight = 1.0, server_rate: Rate = 1.0) -> Method:
    """φ = θ − λV ; αf + β/2 ‖w − φ‖² ; θ′ = τ·Σω_iθ_i + (1−τ)φ ; V ← −(θ′ − θ) ; θ ← θ′

    Kim et al., Communication-efficient federated learning with acceleration of global momentum, 2022, Alg. 2.
    """
    return Method(
        broadcast=broadcast.lookahead(lam),
        objective=(objective.task(alpha), objective.proximal(beta)),
        server=server.interpolation(server_rate),
    )


def fednag(gamma: Closed = 0.9) -> Method:
    """v ← γv − ηg ; w ← w + γv − ηg from the received (w, v) ; θ ← Σω_iw_i ; v ← Σω_iv_i ; output: best iterate

    Yang et al., Federated learning with Nesterov accelerated gradient, IEEE TPDS 2022, Alg. 1; everybody takes part.
    """
    return Method(broadcast=broadcast.vector("velocity"), local=local.nesterov(gamma), server=server.velocity_mean())


def gradma_w(server_rate: Rate = 1.0, scope: Scope = "model", previous: Previous = "last") -> Method:
    """g̃ = QP(g; [∇f(w_{k−1}), ∇f(φ), w_k − φ]) ; w ← w − ηg̃ ; θ ← θ + η_g Δ

    Luo et al., GradMA: a gradient-memory-based accelerated federated learning, CVPR 2023, Alg. 2 and 7.
    """
    return Method(local=local.gradient_memory(scope, previous), server=server.average(server_rate))


def gradma_s(
    momentum: Momentum = 0.5,
    memory_decay: Momentum = 0.5,
    memory: Rows = 100,
    server_rate: Rate = 1.0,
    scope: Scope = "model",
) -> Method:
    """m ← β₁m̃ − Δ ; D[i] ← β₂D[i] − Δ_i ; m̃ ← QP(m; D) ; θ ← θ − η_g m̃

    Luo et al., GradMA: a gradient-memory-based accelerated federated learning, CVPR 2023, Alg. 3, 4 and 8.
    """
    return Method(server=server.update_memory(momentum, memory_decay, memory, server_rate, scope))


def gradma(
    momentum: Momentum = 0.5,
    memory_decay: Momentum = 0.5,
    memory: Rows = 100,
    server_rate: Rate = 1.0,
    scope: Scope = "model",
    previous: Previous = "last",
) -> Method:
    """GradMA-W's clients and GradMA-S's server: g̃ = QP(g; …) ; m̃ ← QP(β₁m̃ − Δ; D) ; θ ← θ − η_g m̃

    Luo et al., GradMA: a gradient-memory-based accelerated federated learning, CVPR 2023, Alg. 1.
    """
    return Method(
        local=local.gradient_memory(scope, previous),
        server=server.update_memory(momentum, memory_decay, memory, server_rate, scope),
    )


# ── baselines ────────────────────────────────────────────────────────────────────────────────────────────────────────


def fedavg(server_rate: Rate = 1.0) -> Method:
    """φ = θ ; K steps of SGD ; θ ← θ + η_g Δ

    McMahan et al., Communication-efficient learning of deep networks from decentralized data, AISTATS 2017, Alg. 1.
    """
    return Method(server=server.average(server_rate))


def fedprox(mu: Weight = 0.01, half: bool = True) -> Method:
    """φ = θ ; f + μ/2 ‖w − φ‖² ; θ ← θ + Δ

    Li et al., Federated optimization in heterogeneous networks, MLSys 2020, Alg. 2.
    """
    return Method(objective=objective.proximal(mu, half))


def fedavgm(momentum: Momentum = 0.4, server_rate: Rate = 1.0, rate_ratio: bool = False) -> Method:
    """φ = θ ; m ← βm + Δ ; θ ← θ + η_g m

    Hsu et al., Measuring the effects of non-identical data distribution, 2019. FedACG's tables tune β in {.4, .6, .8}.
    """
    return Method(server=server.momentum(momentum, server_rate, rate_ratio))


def fedadam(
    beta1: Momentum = 0.9,
    beta2: Momentum = 0.99,
    eps: Rate = 0.001,
    server_rate: Rate = 0.01,
    from_momentum: bool = False,
) -> Method:
    """m ← β₁m + (1−β₁)Δ ; v ← β₂v + (1−β₂)Δ² ; θ ← θ + η_g m/(√v + ε)

    Reddi et al., Adaptive federated optimization, ICLR 2021, Alg. 2.
    """
    return Method(server=server.adam(beta1, beta2, eps, server_rate, from_momentum))


def feddyn(alpha: Rate = 0.1, mu: Weight | None = None) -> Method:
    """f − ⟨h_i, w⟩ + α/2 ‖w − φ‖² ; h_i ← h_i − αΔ_i ; h ← h − α Σ_S p_iΔ_i ; θ ← Σω_iθ_i − h/α

    Acar et al., Federated learning based on dynamic regularization, ICLR 2021, Alg. 1.
    """
    return Method(objective=objective.dual(alpha, alpha if mu is None else mu), server=server.dual_mean(alpha))


def fedcm(alpha: Share = 0.1) -> Method:
    """w ← w − η(αg + (1−α)D) ; D ← −Σω_iΔ_i/(ηK) ; θ ← θ + Δ

    Xu et al., FedCM: federated learning with client-level momentum, 2021, Alg. 2.
    """
    return Method(broadcast=broadcast.vector("direction"), local=local.mixed(alpha), server=server.direction_mean())


def scaffold(server_rate: Rate = 1.0) -> Method:
    """w ← w − η(g − c_i + c) ; c_i⁺ = c_i − c − Δ_i/(ηK) ; c ← c + Σ_S p_i(c_i⁺ − c_i) ; θ ← θ + η_g Δ

    Karimireddy et al., SCAFFOLD: stochastic controlled averaging for federated learning, ICML 2020, Alg. 1, option II.
    """
    return Method(
        broadcast=broadcast.vector("control"),
        local=local.controlled(),
        server=(server.average(server_rate), server.control_mean()),
    )


def feddc(alpha: Rate = 0.01, program: bool = False) -> Method:
    """f + α/2 ‖w + h_i − φ‖² + ⟨w, c − c_i⟩ ; h_i ← h_i + Δ_i ; θ ← Σω_iθ_i + Σ_N p_ih_i

    Gao et al., FedDC: federated learning with non-IID data via local drift decoupling and correction, CVPR 2022.
    """
    return Method(
        broadcast=broadcast.vector("control"),
        objective=objective.drift(alpha, program),
        server=(server.drift_mean(), server.control_mean()),
    )


def mimelite(momentum: Momentum = 0.3) -> Method:
    """w ← w − η((1−β)g + βm) ; m ← βm + (1−β) Σω_i∇f_i(φ) ; θ ← θ + Δ

    Karimireddy et al., Breaking the centralized barrier for cross-device federated learning, NeurIPS 2021, Alg. 1.
    """
    return Method(
        broadcast=broadcast.vector("statistics"),
        local=local.server_momentum_step(momentum),
        server=server.gradient_momentum(momentum),
    )


def mifa(server_rate: Rate = 1.0, rate_ratio: bool = False, wait: bool = False) -> Method:
    """G ← Σ_N p_i Δ_i^latest, absent clients included ; θ ← θ + η_g G

    Gu et al., Fast federated learning in the presence of arbitrary device unavailability, NeurIPS 2021; GradMA Alg. 6.
    """
    return Method(
        local=local.delta_changes(rate_ratio),
        server=(server.average(server_rate), server.latest_update_mean(rate_ratio, wait)),
    )


def mifam(momentum: Momentum = 0.4, server_rate: Rate = 1.0) -> Method:
    """G ← Σ_N p_i Δ_i^latest ; m ← β₁m + G ; θ ← θ + η_g m

    Luo et al., GradMA, CVPR 2023, Alg. 6.
    """
    return Method(
        local=local.delta_changes(), server=(server.momentum(momentum, server_rate), server.latest_update_mean())
    )


def moon(mu: Weight = 1.0, temperature: Rate = 0.5) -> Method:
    """f + μ·(−log[e^{s(z,z_φ)/T}/(e^{s(z,z_φ)/T} + e^{s(z,z_prev)/T})]) ; θ ← θ + Δ

    Li et al., Model-contrastive federated learning, CVPR 2021, Eq. 3 to 5.
    """
    return Method(objective=objective.contrast(mu, temperature))


def fedmlb(cross: Weight = 1.0, distil: Weight = 1.0, temperature: Rate = 1.0) -> Method:
    """CE(z) + λ₁·mean_l CE(b_l) + λ₂·mean_l KL(b_l ‖ z), b_l: local stages to l, then the received model's ; θ ← θ + Δ

    Kim et al., Multi-level branched regularization for federated learning, ICML 2022, Eq. 4 to 6.
    """
    return Method(objective=objective.branches(cross, distil, temperature))


def fedntd(beta: Weight = 1.0, temperature: Rate = 1.0, mixed: bool = False) -> Method:
    """f + β·KL(φ's softmax ‖ w's softmax, both without the true class) ; θ ← θ + Δ

    Lee et al., Preservation of the global knowledge by not-true distillation in federated learning, NeurIPS 2022.
    """
    return Method(objective=(objective.task(1 - beta if mixed else 1.0), objective.not_true(beta, temperature)))


def fedlc(temperature: Weight = 1.0, others: bool = False) -> Method:
    """CE of z_c − T·n_c^{−1/4}, n_c the client's class counts ; θ ← θ + Δ

    Zhang et al., Federated learning with label distribution skew via logits calibration, ICML 2022, Eq. 11.
    """
    return Method(objective=objective.calibrated(temperature, others))


def feddecorr(beta: Weight = 0.01, program: bool = False) -> Method:
    """f + β·‖corr(features)‖_F²/d² over the batch ; θ ← θ + Δ

    Shi et al., Towards understanding and mitigating dimensional collapse in heterogeneous FL, ICLR 2023.
    """
    return Method(objective=objective.decorrelation(beta, program))


def fedpaq(bits: Bits = 8, scope: Annotated[str, Among("vector", "tensor")] = "vector") -> Method:
    """θ ← θ + Σω_i Q(Δ_i), Q unbiased on 2^b points of [−max|x|, max|x|]

    Reisizadeh et al., FedPAQ: communication-efficient federated learning with periodic averaging, AISTATS 2020.
    """
    return Method(wire=wire.Wire(up=wire.quantised(bits, scope)))


def fedproxm(mu: Weight = 0.01, momentum: Momentum = 0.4, server_rate: Rate = 1.0) -> Method:
    """f + μ/2 ‖w − φ‖² ; m ← β₁m + Δ ; θ ← θ + η_g m

    Luo et al., GradMA, CVPR 2023, Alg. 5.
    """
    return Method(objective=objective.proximal(mu), server=server.momentum(momentum, server_rate))


def moonm(mu: Weight = 1.0, temperature: Rate = 0.5, momentum: Momentum = 0.4, server_rate: Rate = 1.0) -> Method:
    """MOON's objective ; m ← β₁m + Δ ; θ ← θ + η_g m

    Luo et al., GradMA, CVPR 2023, section 6.
    """
    return Method(objective=objective.contrast(mu, temperature), server=server.momentum(momentum, server_rate))


def fedmlbm(momentum: Momentum = 0.4, server_rate: Rate = 1.0) -> Method:
    """FedMLB's objective ; m ← β₁m + Δ ; θ ← θ + η_g m

    Luo et al., GradMA, CVPR 2023, section 6.
    """
    return Method(objective=objective.branches(), server=server.momentum(momentum, server_rate))


def csgd() -> Method:
    """θ ← θ − ηg on everybody's data in one place: the upper reference, without traffic

    Yang et al., Federated learning with Nesterov accelerated gradient, IEEE TPDS 2022, section V.
    """
    return Method(pooled=True)


def cnag(gamma: Closed = 0.9) -> Method:
    """v ← γv − ηg ; θ ← θ + γv − ηg on everybody's data in one place, without traffic

    Yang et al., Federated learning with Nesterov accelerated gradient, IEEE TPDS 2022, section V.
    """
    return Method(
        broadcast=broadcast.vector("velocity"),
        local=local.nesterov(gamma),
        server=server.velocity_mean(),
        pooled=True,
    )


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue."""

    name: str
    build: Callable[..., Method]


_ACCELERATED = (fedacg, fedagm, fednag, gradma, gradma_w, gradma_s)
_LOCAL = (fedavg, fedprox, moon, fedmlb, fedntd, fedlc, feddecorr, fedcm, scaffold, feddyn, feddc, mimelite)
_SERVER = (fedavgm, fedadam, mifa, mifam, fedpaq, fedproxm, moonm, fedmlbm, csgd, cnag)
FAMILIES: dict[str, tuple[Callable[..., Method], ...]] = {
    "Accelerated methods": _ACCELERATED,
    "What changes in the clients": _LOCAL,
    "What changes on the server and on the wire, and the centralised references": _SERVER,
    **further.FAMILIES,
}
"""All methods, below the headings that they have in `docs/methods/README.md`."""

METHODS = {
    name: Entry(name, build)
    for builders in FAMILIES.values()
    for build in builders
    for name in [build.__name__.replace("_", "-")]
}
_MODIFIERS: dict[str, Callable[..., Method]] = {
    "acg": modifiers.acg,
    "lookbehind": modifiers.lookbehind,
    "prox": modifiers.prox,
    "momentum": modifiers.server_momentum,
    "dp": modifiers.dp,
    "exp": modifiers.exp,
    "init": modifiers.init,
    "sgd": modifiers.sgd,
    "adam": modifiers.adam,
    "adamw": modifiers.adamw,
    "muon": modifiers.muon,
    "sam": modifiers.sam,
    "asam": modifiers.asam,
    "lesam": modifiers.lesam,
}
MODIFIERS = {name: Entry(name, build) for name, build in _MODIFIERS.items()}
