"""FedACG and GradMA on a problem: the step sizes that their theorems allow, beside practice, and the rate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from headway.engine.experiment import Experiment
from headway.errors import UserError
from headway.theory import fedacg, gradma
from headway.theory.estimate import Estimates, estimate
from headway.theory.points import points_of
from headway.theory.request import Request, local_steps
from headway.theory.result import NETWORKS, PRACTICE, Bounds, Curve, Limit, Panel

FIRST_TEXT_LAM = 0.962


def of_fedacg(request: Request, experiment: Experiment | None) -> Bounds:
    """FedACG's Theorem 1; L, σ, σ_g, B and F(θ⁰) − F* are given or estimated."""
    found = None if experiment is None else _estimated(request, experiment)
    given = request.given
    problem = fedacg.Problem(
        smoothness=_constant(given.get("L"), found, "smoothness"),
        sigma=_constant(given.get("sigma"), found, "sigma"),
        sigma_g=_constant(given.get("sigma_g"), found, "sigma_g"),
        b=given.get("B", 1.0),
        gap=_constant(given.get("gap"), found, "loss"),
    )
    scenario, clients, cohort, steps = _who(request, experiment)
    rounds = fedacg.Rounds(request.number("lam"), steps, clients, cohort, request.scenario.rounds)
    practice = request.scenario.rate
    limits = [Limit("η of Theorem 1", fedacg.largest_step(problem, rounds), practice)]
    if rounds.lam <= FIRST_TEXT_LAM:
        first = fedacg.largest_step_of_first_text(problem, rounds)
        limits.append(Limit("η of the first text's Theorem 2", first, practice))
    limits.append(Limit("λ for this rate, Theorem 1", fedacg.largest_lam(problem, rounds, practice), rounds.lam))
    rate, made = fedacg.rate(problem, rounds), fedacg.constants(problem, rounds)
    return Bounds(
        method=request.method,
        problem=scenario,
        origin=_origin(found),
        constants={
            "L": problem.smoothness,
            "sigma": problem.sigma,
            "sigma_g": problem.sigma_g,
            "B": problem.b,
            "gap": problem.gap,
            "K": steps,
            "D": made.d,
            "M1": made.m1,
            "M2": made.m2,
            "A": made.a,
        },
        limits=tuple(limits),
        rates={"sampling and batches": rate.sampling, "drift": rate.drift, "start": rate.start},
        panels=_fedacg_panels(problem, rounds, practice),
        notes=(
            "The rate is of ‖∇F‖² at the lookahead θ+λm, for β = 0 and clients of equal weight, up to factors that the "
            "paper leaves open: compare its terms with each other.",
            NETWORKS,
        ),
    )


def of_gradma(request: Request, experiment: Experiment | None) -> Bounds:
    """GradMA's Theorem 1; L, ρ and f(x₀) − f* are given or estimated, the errors of the two QPs are given."""
    found = None if experiment is None else _estimated(request, experiment)
    given = request.given
    problem = gradma.Problem(
        smoothness=_constant(given.get("L"), found, "smoothness"),
        rho=_constant(given.get("rho"), found, "dissimilarity"),
        gap=_constant(given.get("gap"), found, "loss"),
        epsilon_l=given.get("epsilon_l", 0.0),
        epsilon_g=given.get("epsilon_g", 0.0),
    )
    scenario, clients, cohort, steps = _who(request, experiment)
    rounds = gradma.Rounds(
        request.number("momentum"), request.number("memory_decay"), steps, clients, cohort, request.scenario.rounds
    )
    server_rate = request.number("server_rate")
    most = gradma.largest_step(problem, rounds, server_rate)
    eta = request.eta or most
    rate = gradma.rate(problem, rounds, eta, server_rate)
    notes = [
        "ρ holds everywhere only where all clients have the same Hessian; an estimate holds at its points.",
        NETWORKS,
    ]
    if not {"epsilon_l", "epsilon_g"} <= set(given):
        notes.insert(0, "epsilon_l and epsilon_g, the errors of the two QPs, are 0 where they are not given.")
    return Bounds(
        method=request.method,
        problem=scenario,
        origin=_origin(found),
        constants={"L": problem.smoothness, "rho": problem.rho, "gap": problem.gap, "I": steps}
        | {"epsilon_l": problem.epsilon_l, "epsilon_g": problem.epsilon_g}
        | dict(zip(("C1", "C2", "C3"), rate.factors, strict=True)),
        limits=(Limit(f"η_l of Theorem 1 with η_g = {server_rate:g}", most, request.scenario.rate),),
        rates={
            "start": rate.start,
            "C₁ε_l²": rate.local,
            "C₂ε_g²": rate.server,
            "C₃ρ²": rate.clients,
            "mean ‖∇f‖² is at most": rate.total,
        },
        panels=_gradma_panels(problem, rounds, server_rate, request.scenario.rate),
        eta=eta,
        notes=tuple(notes),
    )


def _constant(given: float | None, found: Estimates | None, name: str) -> float:
    if given is not None:
        return given
    assert found is not None, "what is not given is estimated"
    return float(getattr(found, name))


def _estimated(request: Request, experiment: Experiment) -> Estimates:
    if experiment.scenario.weights != "uniform":
        request.observer.tell(
            f"{request.method}: the theorem has clients of equal weight; constants are of the scenario's "
            f"weights ({experiment.scenario.weights}); give --weights uniform for the theorem's"
        )
    return estimate(experiment, points_of(request, experiment), request.look_at)


def _origin(found: Estimates | None) -> str:
    if found is None:
        return "given"
    return f"estimated: the largest over {found.points} points; curvature and batches of {found.looked_at} clients"


def _who(request: Request, experiment: Experiment | None) -> tuple[str, int, int, int]:
    """The problem in words, N, |S| and the local steps."""
    if experiment is None:
        scenario = request.scenario
        return request.words, scenario.clients, scenario.cohort, local_steps(scenario, None)
    scenario = experiment.scenario
    sizes = [int(size) for size in experiment.federation.sizes]
    words = f"{scenario.data}, {scenario.partition}, {scenario.cohort} of {scenario.clients} clients, {scenario.model}"
    return words, scenario.clients, scenario.cohort, local_steps(scenario, sizes)


def _panel(
    title: str, label: str, places: Sequence[float], lines: Sequence[tuple[str, Callable[[float], float]]], rate: float
) -> Panel:
    """Allowed step sizes over one number, and the scenario's rate."""
    curves = [
        Curve(name, np.array(places), np.array([of(place) for place in places]), colour)
        for colour, (name, of) in enumerate(lines)
    ]
    practice = Curve("this scenario's rate", np.array([places[0]]), np.array([rate]), PRACTICE, dashed=True)
    return Panel(title, label, "largest η", (*curves, practice), log_x=places[-1] > 1)


_STEPS = [float(2**power) for power in range(11)]


def _fedacg_panels(problem: fedacg.Problem, rounds: fedacg.Rounds, rate: float) -> tuple[Panel, ...]:
    def with_lam(lam: float) -> fedacg.Rounds:
        return dataclasses.replace(rounds, lam=lam)

    def with_steps(steps: float) -> fedacg.Rounds:
        return dataclasses.replace(rounds, local_steps=int(steps))

    both: list[tuple[str, Callable[[float], float]]] = [
        ("Theorem 1", lambda lam: fedacg.largest_step(problem, with_lam(lam))),
        ("first text, Theorem 2", lambda lam: fedacg.largest_step_of_first_text(problem, with_lam(lam))),
    ]
    over_steps: list[tuple[str, Callable[[float], float]]] = [
        ("Theorem 1", lambda steps: fedacg.largest_step(problem, with_steps(steps)))
    ]
    lams = np.linspace(0, FIRST_TEXT_LAM, 100).tolist()
    return (
        _panel(f"K = {rounds.local_steps} local steps", "λ", lams, both, rate),
        _panel(f"λ = {rounds.lam:g}", "local steps K", _STEPS, over_steps, rate),
    )


def _gradma_panels(problem: gradma.Problem, rounds: gradma.Rounds, server: float, rate: float) -> tuple[Panel, ...]:
    def with_momentum(momentum: float) -> float:
        return gradma.largest_step(problem, dataclasses.replace(rounds, momentum=momentum), server)

    def with_steps(steps: float) -> float:
        return gradma.largest_step(problem, dataclasses.replace(rounds, local_steps=int(steps)), server)

    momenta = np.linspace(0, 0.98, 99).tolist()
    return (
        _panel(f"I = {rounds.local_steps} local steps", "β₁", momenta, [("Theorem 1", with_momentum)], rate),
        _panel(f"β₁ = {rounds.momentum:g}", "local steps I", _STEPS, [("Theorem 1", with_steps)], rate),
    )


def check_samples(experiment: Experiment) -> None:
    """Refuse what is not a mean over samples."""
    if experiment.task.units is not None:
        raise UserError(
            f"task '{experiment.task.name}' is a mean over tokens or pixels, which the theory here does not know; "
            "use a task with one loss a sample"
        )
