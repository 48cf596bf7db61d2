"""Early stopping: a run ends when it has not become better for a while."""

from __future__ import annotations

import numpy as np

from headway.errors import UserError, shown
from headway.runs.callbacks.best import Best, Watched, best_of, check_metric, watched
from headway.runs.callbacks.run import Run

MOST = 1e308
"""Of a least gain."""


class EarlyStopping:
    """Ends a run after `patience` evaluations in a row without a value that is better by more than `min_delta`.

    >>> headway.simulate("fedavg", rounds=500, validation=0.1, callbacks=EarlyStopping(patience=20))

    `metric` is a number of the records, such as "loss" or "accuracy_smoothed"; the task's headline where none is named.
    `higher_is_better` is known of the task's metrics and of losses. What it has seen is read from the run's records, so
    a resume stops in the same round. Give the run `validation=`, or the test set decides when it ends.
    """

    def __init__(
        self,
        metric: str | None = None,
        patience: int = 10,
        min_delta: float = 0.0,
        higher_is_better: bool | None = None,
    ) -> None:
        self.higher_is_better = check_metric(metric, higher_is_better)
        counted, least = (one.item() if isinstance(one, np.generic) else one for one in (patience, min_delta))
        if type(counted) is not int or counted < 1:
            raise UserError(f"patience is {shown(patience)}; it must be a number of evaluations, at least 1")
        if type(least) not in (int, float) or not 0 <= least <= MOST:
            raise UserError(f"min_delta is {shown(min_delta)}; it must be a number, at least 0")
        self.metric, self.patience, self.min_delta = metric, counted, float(least)
        self.best = Best()
        self._number: Watched | None = None

    def on_start(self, run: Run) -> None:
        """Nothing is kept beside the records: they are read again."""
        number = self._number = watched(run.experiment, self.metric, self.higher_is_better)
        if run.records:
            number.check(run.record)
        self.best = best_of(number, run.records, self.min_delta)
        self._stop_where_due(run, number)

    def on_round(self, run: Run) -> None:
        assert self._number is not None, "the run did not begin"
        self._number.check(run.record)
        self.best = self.best.then(self._number, run.record, self.min_delta)
        self._stop_where_due(run, self._number)

    def _stop_where_due(self, run: Run, number: Watched) -> None:
        if self.best.since >= self.patience:
            by = f" by more than {self.min_delta:g}" if self.min_delta else ""
            evaluations = f"{self.patience} evaluation{'s' if self.patience > 1 else ''}"
            run.stop(
                f"{number.name} did not improve{by} in {evaluations} after its best, {self.best.value:.6g} in round "
                f"{self.best.round}"
            )
