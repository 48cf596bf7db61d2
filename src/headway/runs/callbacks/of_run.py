"""All callbacks of a run: those of its settings, then the user's, then its trackers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.errors import UserError
from headway.runs.callbacks.early_stopping import EarlyStopping
from headway.runs.callbacks.hooks import Callback, Hooked, hooked_as
from headway.runs.callbacks.keep_best import KeepBest
from headway.scenario import Scenario


def every_callback(scenario: Scenario, given: Sequence[Hooked], trackers: Mapping[str, Callback]) -> tuple[Hooked, ...]:
    """In the order in which they are called."""
    settings: list[Callback] = []
    if scenario.patience is not None:
        settings.append(EarlyStopping(patience=scenario.patience))
    if scenario.keep_best:
        settings.append(KeepBest())
    named = [hooked_as(type(one).__name__, one) for one in settings]
    every = (*named, *given, *(hooked_as(name, one) for name, one in trackers.items()))
    if sum(isinstance(one.given, KeepBest) for one in every) > 1:
        raise UserError("KeepBest is given twice, and a run keeps one best model; give it once, or only keep_best=True")
    return every
