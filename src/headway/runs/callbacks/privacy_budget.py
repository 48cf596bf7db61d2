"""The end of a run whose next round would spend more than its budget of privacy."""

from __future__ import annotations

import math

from headway.errors import UserError
from headway.runs.accountant import Accountant
from headway.runs.callbacks.run import Run


class PrivacyBudget:
    """Ends a run before the round after which ε would be above `budget`; what it goes by is the number of rounds."""

    def __init__(self, accountant: Accountant, budget: float, rounds: int) -> None:
        first = accountant.epsilon(1)
        if first > budget:
            raise UserError(
                f"epsilon is {budget:g}, but the first round spends {first:.4g} at delta {accountant.delta:g}; allow "
                "more, or add more noise"
            )
        if not math.isfinite(budget) and not math.isfinite(accountant.epsilon(rounds)):
            raise UserError(
                f"noise is {accountant.mechanism.noise:g}, too little for an epsilon after {rounds} rounds at delta "
                f"{accountant.delta:g}; add more noise"
            )
        self._accountant, self._budget = accountant, budget

    def on_start(self, run: Run) -> None:
        """Nothing is kept beside the number of rounds."""
        self.on_round(run)

    def on_round(self, run: Run) -> None:
        if run.round >= run.experiment.scenario.rounds or not math.isfinite(self._budget):
            return
        spent, more = (self._accountant.epsilon(rounds) for rounds in (run.round, run.round + 1))
        if more > self._budget:
            run.stop(
                f"the budget of epsilon {self._budget:g} is spent: {spent:.4g} after round {run.round}, and {more:.4g} "
                f"after one more, at delta {self._accountant.delta:g}"
            )
