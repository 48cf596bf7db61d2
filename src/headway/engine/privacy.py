"""What a private run must be: everything that differential privacy rests on is checked before the first round.

The guarantee is for clients: two runs that differ in whether one client's samples are there have models that can hardly
be told apart. Numbers of clients and of samples, and the settings of a run, are taken to be known to everybody.
"""

from __future__ import annotations

from headway.engine.experiment import Experiment
from headway.errors import UserError
from headway.methods.privacy import are, mirroring, privacy_of, takes, trusting_the_mean

ACCOUNTED = ("full", "poisson", "fixed")
"""Samplings of which an accountant knows how much is learnt of a client."""
DELTA = 1e-5
"""δ where none is given."""


def check(experiment: Experiment) -> None:
    """Refuse a private method where something of a client would reach others past the clipping and the noise."""
    scenario, method = experiment.scenario, experiment.method
    if privacy_of(method) is None:
        for name in ("delta", "epsilon", "accountant"):
            if getattr(scenario, name) is not None:
                raise UserError(
                    f"{name} is {getattr(scenario, name)}, but method '{method.name}' is not private; add "
                    f"+dp:clip=…,noise=…, or leave it out"
                )
        return
    if scenario.weights != "uniform":
        raise UserError(
            f"weights is '{scenario.weights}', but with +dp all clients count the same, or a large one could not be "
            "hidden; use --weights uniform"
        )
    if scenario.sampling not in ACCOUNTED:
        raise UserError(
            f"sampling is '{scenario.sampling}', of which no accountant says what is learnt of a client; with +dp use "
            "--sampling poisson, or full"
        )
    _check_paths(experiment)


def _check_paths(experiment: Experiment) -> None:
    """Refuse what a client would send past the clipping."""
    scenario = experiment.scenario
    if scenario.over_selection:
        raise UserError(
            f"over_selection is {scenario.over_selection:g}, by which one client decides whether another counts; with "
            "+dp leave it out"
        )
    if scenario.buffers == "average" and experiment.network.buffers:
        raise UserError(
            "buffers is 'average', which sends BatchNorm's statistics without noise; with +dp use --buffers "
            "keep-local, or a network without BatchNorm"
        )
    if scenario.global_loss:
        raise UserError(
            "global_loss measures the loss on all clients' training data, without noise; with +dp leave it out"
        )


def cautions(experiment: Experiment) -> list[str]:
    """What a user of a private method should know before its first round, each in a line."""
    scenario, privacy = experiment.scenario, privacy_of(experiment.method)
    if privacy is None:
        return []
    found = []
    if not privacy.noise:
        found.append("noise is 0: updates are clipped, and nobody is protected; no epsilon is recorded")
    elif scenario.sampling == "fixed" and scenario.cohort < experiment.population:
        found.append(
            "sampling 'fixed' is accounted as drawn without replacement, which costs many times the epsilon of "
            "--sampling poisson"
        )
    delta = scenario.delta or DELTA
    if privacy.noise and delta * experiment.population >= 1:
        found.append(
            f"delta is {delta:g}, not below 1/N with {experiment.population} clients, so epsilon says little; take a "
            "smaller one"
        )
    mirrors = mirroring(experiment.method)
    if mirrors:
        found.append(
            f"the guarantee holds, but {' and '.join(mirrors)} on the server {are(mirrors)} no longer the mean of what "
            "the clients keep: their part is neither clipped nor noisy"
        )
    trusting = trusting_the_mean(experiment.method)
    if trusting:
        found.append(
            f"the guarantee holds, but {' and '.join(trusting)} in the clients {takes(trusting)} the model for the "
            "mean of what they sent, which it no longer is"
        )
    if scenario.validation is not None or experiment.split.client_tests is not None:
        found.append("scores on clients' own samples are not covered by epsilon: do not publish them with the model")
    return found
