"""All callbacks of a run: those of its settings, then the user's, then its trackers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headway.engine.experiment import Experiment
from headway.errors import UserError
from headway.runs.accountant import accountant_of
from headway.runs.callbacks.best import watched
from headway.runs.callbacks.early_stopping import EarlyStopping
from headway.runs.callbacks.hooks import Callback, Hooked, hooked_as
from headway.runs.callbacks.keep_best import KeepBest
from headway.runs.callbacks.privacy_budget import PrivacyBudget


def every_callback(
    experiment: Experiment, given: Sequence[Hooked], trackers: Mapping[str, Callback]
) -> tuple[Hooked, ...]:
    """All callbacks in the order of their calls. One that cannot work in this experiment is refused."""
    scenario = experiment.scenario
    settings: list[Callback] = []
    accountant = accountant_of(experiment)
    if accountant is not None:
        settings.append(PrivacyBudget(accountant, scenario.epsilon or math.inf, scenario.rounds))
    if scenario.patience is not None:
        settings.append(EarlyStopping(patience=scenario.patience))
    if scenario.keep_best:
        settings.append(KeepBest())
    named = [hooked_as(type(one).__name__, one) for one in settings]
    every = (*named, *given, *(hooked_as(name, one) for name, one in trackers.items()))
    if sum(isinstance(one.given, KeepBest) for one in every) > 1:
        raise UserError("KeepBest is given twice, and a run keeps one best model; give it once, or only keep_best=True")
    for one in every:
        if isinstance(one.given, EarlyStopping | KeepBest):
            watched(experiment, one.given.metric, one.given.higher_is_better)
    _check_updates(experiment, every)
    return every


def _check_updates(experiment: Experiment, every: Sequence[Hooked]) -> None:
    """Refuse a method whose clients do not send what is to be measured."""
    rules = [part for _, part in experiment.method.parts("local") if getattr(part, "replaces_delta", False)]
    reading = next((one.name for one in every if "updates" in one.needs), None)
    if rules and reading is not None:
        raise UserError(
            f"callback {reading} needs the clients' updates, but with {experiment.method.name} they send something "
            f"else in their place (the local rule {type(rules[0]).__name__})"
        )
