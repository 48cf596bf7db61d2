"""headway privacy: what a noise costs in ε, and what noise a budget needs, before anything is trained."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.screen import JSON, print_json
from headway.errors import UserError

_SAMPLINGS = ("poisson", "full", "fixed")


def privacy(
    noise: Annotated[
        float | None, typer.Option("--noise", help="z of +dp, to see its ε", metavar="<float>", show_default=False)
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="a budget, to see its noise", metavar="<float>", show_default=False),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", help="communication rounds T")] = 80,
    clients: Annotated[int, typer.Option("--clients", help="number of clients N")] = 600,
    participation: Annotated[float, typer.Option("--participation", help="share of the clients in each round")] = 0.1,
    sampling: Annotated[str, typer.Option("--sampling", help=f"which clients take part: {', '.join(_SAMPLINGS)}")] = (
        "poisson"
    ),
    delta: Annotated[float, typer.Option("--delta", help="δ of (ε, δ)")] = 1e-5,
    json: Annotated[bool, JSON] = False,
) -> None:
    """What a noise of +dp costs in ε, or which noise a budget needs; nothing is trained."""
    from headway.runs.accountant import Accountant, Mechanism, accountant, least_noise
    from headway.scenario import Scenario

    if (noise is None) == (epsilon is None):
        raise UserError("give one of --noise, to see its epsilon, and --epsilon, to see its noise")
    if sampling not in _SAMPLINGS:
        raise UserError(f"sampling is '{sampling}', of which no accountant knows; allowed: {', '.join(_SAMPLINGS)}")
    if noise is not None and not 0 < noise < 1e6:
        raise UserError(f"noise is {noise:g}; it must be above 0 and below 1e6")
    plan = Scenario(rounds=rounds, clients=clients, participation=participation, delta=delta, epsilon=epsilon)
    if plan.clients < 1:
        raise UserError(f"clients is {clients}; it must be at least 1")

    def of(z: float, sampling: str = sampling, kind: str | None = None) -> Accountant:
        return accountant(Mechanism(z, sampling, plan.share, plan.clients, plan.cohort), delta, kind)

    found = least_noise(epsilon, rounds, of) if epsilon is not None else noise
    assert found is not None
    kinds = ("rdp",) if of(found).kind == "rdp" else ("pld", "rdp")
    spent = {kind: of(found, kind=kind).epsilon(rounds) for kind in kinds}
    always = of(found, "full").epsilon(rounds)
    if json:
        print_json(
            {"noise": found, "delta": delta, "rounds": rounds, "epsilon": spent, "epsilon_without_sampling": always}
        )
        return
    words = ", ".join(f"{value:.4g} ({kind})" for kind, value in spent.items())
    mean = clients if sampling == "full" else plan.share * clients if sampling == "poisson" else plan.cohort
    typer.echo(
        f"noise {found:g}, {rounds} rounds, sampling {sampling} of {mean:g} of {clients} clients, delta {delta:g}"
    )
    typer.echo(f"epsilon: {words}; {always:.4g} if everybody knew who takes part")
    typer.echo(f"the mean update has noise of deviation {found / mean:.4g} · clip on every coordinate")
