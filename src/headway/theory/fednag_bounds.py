"""FedNAG on a problem: gaps beside f₁ and f₂ where it is convex, h(τ) and the largest step size where it is not."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch

from headway.engine.experiment import Experiment
from headway.errors import UserError
from headway.theory.convex import Logistic, Minimum, minimum
from headway.theory.course import Measured, measure
from headway.theory.estimate import estimate
from headway.theory.fednag import (
    Course,
    Smoothness,
    Steps,
    conditions,
    decrease,
    divergence,
    gap_bound,
    threshold,
)
from headway.theory.points import averages_of, points_of
from headway.theory.request import Request
from headway.theory.result import NETWORKS, PRACTICE, Bounds, Curve, GapNumbers, Limit, Panel

HALVINGS = 10
"""How often the largest step size of the theorems is halved where one of their conditions fails."""
AGREE = 1e-8
"""How far, of the largest parameter, the engine's run may be from the course whose constants are measured."""


def of_constants(request: Request) -> Bounds:
    """From constants that are given: h(τ), and f₁ and f₂ where ω is among them."""
    given, gamma = request.given, request.number("gamma")
    _check_gamma(gamma)
    smoothness = Smoothness(given["beta"], given["rho"], given["delta"])
    eta = request.eta or _most(smoothness.beta, gamma) / 2
    panels: tuple[Panel, ...] = (_divergences(smoothness, eta, gamma, max(request.taus)),)
    gaps: tuple[GapNumbers, ...] = ()
    rates = _divergence_rates(request, smoothness, eta, gamma)
    notes: tuple[str, ...] = ()
    if "omega" in given:
        course = Course(given["omega"], given.get("p", 0.0), given.get("q", 0.0), given.get("cosine", 0.0))
        for tau in request.taus:
            rates |= _bounds_at(request.total, smoothness, course, Steps(eta, gamma, tau))
        panels += (_over_eta(request, dict.fromkeys(request.taus, (smoothness, course)), gamma),)
    else:
        notes += ("Give omega, and p, q and cosine of FedNAG's course, to have f₁ and f₂ too.",)
    return Bounds(
        method=request.method,
        problem=f"T = {request.total} steps",
        origin="given",
        constants=dict(given),
        limits=(_limit(smoothness.beta, gamma, request),),
        rates=rates,
        panels=panels,
        gaps=gaps,
        eta=eta,
        notes=notes,
    )


def _bounds_at(total: int, smoothness: Smoothness, course: Course, steps: Steps) -> dict[str, float]:
    """f₁, f₂ and η̄ at T steps with one τ."""
    plain = dataclasses.replace(steps, gamma=0.0)
    return {
        f"f₁({total}), τ = {steps.tau}": gap_bound(total, smoothness, course, steps),
        f"f₂({total}), τ = {steps.tau}": gap_bound(total, smoothness, Course(course.omega), plain),
        f"η̄({total}), τ = {steps.tau}": threshold(total, smoothness, course, steps.gamma, steps.tau),
    }


def of_network(request: Request, experiment: Experiment) -> Bounds:
    """From estimates on a network, whose loss is not convex: h(τ) holds for it, f₁ and f₂ do not."""
    gamma = request.number("gamma")
    found = estimate(experiment, points_of(request, experiment), request.look_at)
    given = request.given
    smoothness = Smoothness(
        given.get("beta", found.smoothness), given.get("rho", found.lipschitz), given.get("delta", found.delta)
    )
    eta = request.eta or _most(smoothness.beta, gamma) / 2
    return Bounds(
        method=request.method,
        problem=_problem(experiment),
        origin=f"estimated: the largest over {found.points} points; curvature of {found.looked_at} clients",
        constants={"beta": smoothness.beta, "rho": smoothness.rho, "delta": smoothness.delta},
        limits=(_limit(smoothness.beta, gamma, request),),
        rates=_divergence_rates(request, smoothness, eta, gamma),
        panels=(_divergences(smoothness, eta, gamma, max(request.taus)), _over_gamma(smoothness, request)),
        eta=eta,
        notes=(
            "The loss of this network is not known to be convex, or has no L2 term: f₁ and f₂ say nothing of it.",
            NETWORKS,
        ),
    )


def of_convex(request: Request, experiment: Experiment) -> Bounds:
    """From logistic regression: real runs of FedNAG and FedAvg, and the bounds with the constants of their courses."""
    gamma, strength = request.number("gamma"), experiment.scenario.weight_decay
    _check_gamma(gamma)
    problem = Logistic.of(experiment, strength)
    start = experiment.network.parameters.flat().double().cpu()
    best = minimum(problem, torch.zeros_like(start))
    eta, courses = _courses(request, problem, start, best, gamma)
    plain = {tau: measure(problem, start, best, Steps(eta, 0.0, tau), request.total) for tau in request.taus}
    for one in (*courses.values(), *plain.values()):
        _check_engine(request, one, strength)
    constants = {tau: (one.smoothness, one.course) for tau, one in courses.items()}
    rows = tuple(_row(request.total, courses[tau], plain[tau]) for tau in request.taus)
    largest = courses[max(request.taus)]
    return Bounds(
        method=request.method,
        problem=f"{_problem(experiment)}, everybody, whole batches, T = {request.total} steps, η = {eta:.4g}",
        origin=f"measured on FedNAG's course (those printed: τ = {max(request.taus)}); β holds everywhere",
        constants={
            **dataclasses.asdict(largest.smoothness),
            **dataclasses.asdict(largest.course),
            "minimum": best.value,
            "minimum_error": best.value - best.least,
        },
        limits=(_limit(problem.smoothness, gamma, request),),
        rates=_divergence_rates(request, largest.smoothness, eta, gamma),
        panels=(_over_steps(courses), _over_eta(request, constants, gamma), _over_tau(rows)),
        gaps=rows,
        eta=eta,
    )


def _courses(
    request: Request, problem: Logistic, start: torch.Tensor, best: Minimum, gamma: float
) -> tuple[float, dict[int, Measured]]:
    """The step size, and FedNAG's course with each τ: the one given, or the first of halves for which all holds."""
    eta = request.eta or _most(problem.smoothness, gamma)
    for _ in range(1 if request.eta else HALVINGS + 1):
        found: dict[int, Measured] = {}
        for tau in sorted(request.taus, reverse=True):
            request.observer.tell(f"FedNAG with η = {eta:.4g}, τ = {tau}")
            one = measure(problem, start, best, Steps(eta, gamma, tau), request.total)
            broken = [one for one in conditions(one.smoothness, one.course, one.steps) if not one.holds]
            if broken:
                break
            found[tau] = one
        else:
            return eta, {tau: found[tau] for tau in request.taus}
        if request.eta is not None:
            gap_bound(request.total, one.smoothness, one.course, one.steps)  # says which condition fails
        eta /= 2
    raise UserError(
        f"Theorem 3 of FedNAG says nothing here: down to η = {2 * eta:.3g}, {broken[0].words}; "
        "use a smaller gamma, such as fednag:gamma=0.5"
    )


def _check_engine(request: Request, course: Measured, strength: float) -> None:
    """The course whose constants are measured must be the run that the engine makes."""
    run = averages_of(request, course.steps, strength)
    apart = float((run - course.averages[1:]).abs().max()) / max(float(run.abs().max()), 1e-300)
    if not apart <= AGREE:
        raise RuntimeError(f"the run and the course beside it differ by {apart:.2g} of the largest parameter")


def _row(total: int, fednag: Measured, fedavg: Measured) -> GapNumbers:
    smoothness, course, steps = fednag.smoothness, fednag.course, fednag.steps
    plain = gap_bound(total, smoothness, Course(course.omega), fedavg.steps)
    bound = gap_bound(total, smoothness, course, steps)
    return {
        "tau": steps.tau,
        "gap": float(fednag.gaps[1:].min()),
        "bound": bound,
        "fedavg_gap": float(fedavg.gaps[1:].min()),
        "fedavg_bound": gap_bound(total, fedavg.smoothness, fedavg.course, fedavg.steps),
        "difference": bound - plain,
        "threshold": threshold(total, smoothness, course, steps.gamma, steps.tau),
    }


def _check_gamma(gamma: float) -> None:
    if not 0 < gamma < 1:
        raise UserError(f"gamma is {gamma:g}; FedNAG's theorems have gamma above 0 and below 1")


def _most(beta: float, gamma: float) -> float:
    return 1 / (beta * (1 + gamma))


def _limit(beta: float, gamma: float, request: Request) -> Limit:
    return Limit("η of Theorem 3, βη(1+γ) ≤ 1", _most(beta, gamma), request.scenario.rate)


def _problem(experiment: Experiment) -> str:
    scenario = experiment.scenario
    return f"{scenario.data}, {scenario.partition}, {scenario.clients} clients, {scenario.model}"


def _divergence_rates(request: Request, smoothness: Smoothness, eta: float, gamma: float) -> dict[str, float]:
    """h(τ) and ĥ(τ) at each τ."""
    found = {}
    for tau in request.taus:
        found[f"h({tau})"] = divergence(tau, smoothness, eta, gamma)
        found[f"ĥ({tau}), FedAvg"] = divergence(tau, smoothness, eta, 0.0)
    return found


# ── panels ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _divergences(smoothness: Smoothness, eta: float, gamma: float, most: int) -> Panel:
    places = np.arange(1, max(most, 8) + 1)
    lines = [
        Curve(name, places, np.array([divergence(int(x), smoothness, eta, one) for x in places]), colour)
        for name, one, colour in ((f"FedNAG, h(τ), γ = {gamma:g}", gamma, 0), ("FedAvg, ĥ(τ)", 0.0, 1))
    ]
    return Panel(f"distance to the virtual worker, η = {eta:.3g}", "local steps τ", "at most", tuple(lines))


def _over_gamma(smoothness: Smoothness, request: Request) -> Panel:
    places = np.linspace(0, 0.99, 100)
    allowed = Curve("allowed: 1/(β(1+γ))", places, 1 / (smoothness.beta * (1 + places)), 0)
    practice = Curve("this scenario's rate", np.array([0.0]), np.array([request.scenario.rate]), PRACTICE, dashed=True)
    return Panel("step size", "γ", "η", (allowed, practice))


def _over_steps(courses: dict[int, Measured]) -> Panel:
    """The least gap so far, and f₁, over the steps."""
    lines: list[Curve] = []
    for colour, (tau, one) in enumerate(courses.items()):
        steps = np.arange(1, len(one.gaps)) * tau
        least = np.minimum.accumulate(one.gaps[1:].numpy())
        bound = np.array([gap_bound(int(total), one.smoothness, one.course, one.steps) for total in steps])
        lines.append(Curve(f"measured, τ = {tau}", steps.astype(float), least, colour))
        lines.append(Curve(f"bound f₁, τ = {tau}", steps.astype(float), bound, colour, dashed=True))
    return Panel("FedNAG", "local steps T", "F − F*, the least so far", tuple(lines))


def _over_eta(request: Request, constants: dict[int, tuple[Smoothness, Course]], gamma: float) -> Panel:
    """f₁ and f₂ at T with the same constants, over the step sizes; nothing is drawn where α ≤ 0."""
    lines: list[Curve] = []
    for colour, (tau, (smoothness, course)) in enumerate(constants.items()):
        sizes = _most(smoothness.beta, gamma) * np.logspace(-4, 0, 161)

        def of(eta: float, smoothness: Smoothness = smoothness, course: Course = course, tau: int = tau) -> float:
            if decrease(smoothness.beta, course, eta, gamma) <= 0 or course.cosine < 0:
                return math.nan
            return gap_bound(request.total, smoothness, course, Steps(eta, gamma, tau))

        plain = Course(course.omega)
        fedavg = [gap_bound(request.total, smoothness, plain, Steps(float(eta), 0.0, tau)) for eta in sizes]
        nag = [of(float(eta) * (1 - 1e-12)) for eta in sizes]
        lines.append(Curve(f"f₁ of FedNAG, τ = {tau}", sizes, np.array(nag), colour))
        lines.append(Curve(f"f₂ of FedAvg, τ = {tau}", sizes, np.array(fedavg), colour, dashed=True))
    return Panel(f"bounds at T = {request.total}, same constants", "step size η", "bound of F − F*", tuple(lines), True)


def _over_tau(rows: Sequence[GapNumbers]) -> Panel:
    """What more local steps between averages cost, measured and by the bounds."""
    taus = np.array([float(row["tau"]) for row in rows])
    shown = (
        ("FedNAG, measured", [row["gap"] for row in rows], 0, False),
        ("FedNAG, f₁", [row["bound"] for row in rows], 0, True),
        ("FedAvg, measured", [row["fedavg_gap"] for row in rows], 1, False),
        ("FedAvg, f₂", [row["fedavg_bound"] for row in rows], 1, True),
    )
    lines = [Curve(name, taus, np.array(values), colour, dashed) for name, values, colour, dashed in shown]
    return Panel("after T steps", "local steps τ between averages", "F − F*", tuple(lines))
