"""Every named method, spelled in slots. Reading this page teaches the field.

An entry is a function of the method's arguments; its docstring says the equations and the source. A `modifier` is
used after a `+` only: `fedprox+acg:lam=0.9`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.methods import broadcast, objective, server
from headway.methods.arguments import Momentum, Rate, Weight
from headway.methods.method import Method

# ── methods ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def fedavg(server_rate: Rate = 1.0) -> Method:
    """φ = θ ; K steps of SGD ; θ ← θ + η_g Δ

    McMahan et al., Communication-efficient learning of deep networks from decentralized data, AISTATS 2017, Alg. 1.
    """
    return Method(server=server.average(server_rate))


def fedprox(mu: Weight = 0.01) -> Method:
    """φ = θ ; f + μ/2 ‖w − φ‖² ; θ ← θ + Δ

    Li et al., Federated optimization in heterogeneous networks, MLSys 2020, Alg. 2.
    """
    return Method(objective=objective.proximal(mu))


def fedavgm(momentum: Momentum = 0.4, server_rate: Rate = 1.0) -> Method:
    """φ = θ ; m ← βm + Δ ; θ ← θ + η_g m

    Hsu et al., Measuring the effects of non-identical data distribution, 2019. FedACG's tables tune β in {.4, .6, .8}.
    """
    return Method(server=server.momentum(momentum, server_rate))


def fedacg(lam: Momentum = 0.85, beta: Weight = 0.01) -> Method:
    """φ = θ + λm ; f + β/2 ‖w − φ‖² ; m ← λm + Δ ; θ ← θ + m

    Kim et al., Communication-efficient federated learning with accelerated client gradient, CVPR 2024, Alg. 1.
    """
    return Method(broadcast=broadcast.lookahead(lam), objective=objective.proximal(beta), server=server.momentum(lam))


def fedagm(lam: Momentum = 0.85, beta: Weight = 0.01, alpha: Weight = 1.0, server_rate: Rate = 1.0) -> Method:
    """φ = θ − λV ; αf + β/2 ‖w − φ‖² ; θ′ = τ·Σω_iθ_i + (1−τ)φ ; V ← −(θ′ − θ) ; θ ← θ′

    Kim et al., FedAGM: averaging with accelerated gradient, 2022 (arXiv 2201.03172v1), Alg. 1; τ is server_rate.
    """
    return Method(
        broadcast=broadcast.lookahead(lam),
        objective=(objective.task(alpha), objective.proximal(beta)),
        server=server.interpolation(server_rate),
    )


# ── modifiers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def acg(lam: Momentum = 0.85) -> Method:
    """φ = θ + λm ; m ← λm + Δ ; θ ← θ + m: lookahead and server momentum, without the proximal pull."""
    return Method(broadcast=broadcast.lookahead(lam), server=server.momentum(lam))


def prox(beta: Weight = 0.01) -> Method:
    """+ β/2 ‖w − φ‖² in the objective."""
    return Method(objective=objective.proximal(beta))


def server_momentum(momentum: Momentum = 0.4) -> Method:
    """m ← βm + Δ ; θ ← θ + m on the server."""
    return Method(server=server.momentum(momentum))


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue."""

    name: str
    build: Callable[..., Method]
    modifier: bool = False


METHODS = {entry.__name__: Entry(entry.__name__, entry) for entry in (fedavg, fedprox, fedavgm, fedacg, fedagm)}
MODIFIERS = {
    name: Entry(name, entry, modifier=True)
    for name, entry in {"acg": acg, "prox": prox, "momentum": server_momentum}.items()
}
