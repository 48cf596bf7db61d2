"""The model of the best round, kept beside the last one."""

from __future__ import annotations

from headway.errors import UserError
from headway.runs import best_models
from headway.runs.best_models import BestModels
from headway.runs.callbacks.best import Best, Watched, best_of, check_metric, watched
from headway.runs.callbacks.run import Run
from headway.runs.model_files import as_bytes


class KeepBest:
    """Keeps the model of the evaluation with the best `metric` in the run's folder; of equal ones the first.

    >>> result = headway.simulate("fedavg", out="runs/mine", callbacks=headway.KeepBest())
    >>> result.best_model, headway.load_run("runs/mine").best_model

    `metric` and `higher_is_better` are as of `EarlyStopping`. Where the run has no folder, the state dict is kept in
    memory: `best_model` gives it too.
    """

    def __init__(self, metric: str | None = None, higher_is_better: bool | None = None) -> None:
        self.higher_is_better = check_metric(metric, higher_is_better)
        self.metric = metric
        self.best = Best()
        """Round and value of the model that is kept."""
        self.content: bytes | None = None
        """Its state dict as safetensors, where the run has no folder."""
        self._number: Watched | None = None
        self._kept: BestModels | None = None

    def on_start(self, run: Run) -> None:
        """Go on with what was kept up to the round from which the run goes on; later rounds are run again."""
        number = self._number = watched(run.experiment, self.metric, self.higher_is_better)
        self.best, self.content = Best(), None
        self._kept = BestModels(number.name, number.higher_is_better)
        past = best_of(number, run.records)
        if run.folder is not None:
            found = best_models.read(run.folder)
            if found is not None:
                self._go_on(run, found)
        if past.round is not None and past.round != self.best.round:
            if past.round == run.round:
                self._keep(run, past)
            else:
                run.tell(
                    f"the model of round {past.round}, the best so far ({number.name} {past.value:.6g}), was not kept: "
                    f"from round {run.round + 1} on the best one is"
                )

    def _go_on(self, run: Run, found: BestModels) -> None:
        """Take over the models of a folder whose rounds are not after the checkpoint."""
        assert self._kept is not None
        assert run.folder is not None
        if (found.metric, found.higher_is_better) != (self._kept.metric, self._kept.higher_is_better):
            raise UserError(f"{run.folder} keeps the model with the best {found.metric}, not {self._kept.metric}")
        self._kept = found.up_to(run.round)
        for kept in self._kept.models:
            best_models.check_of_run(run.folder, kept, run.records)
        if self._kept.best is not None:
            self.best = Best(self._kept.best.round, self._kept.best.value)
        if self._kept != found:
            best_models.write(run.folder, self._kept)
        else:
            best_models.remove_others(run.folder, found)

    def on_round(self, run: Run) -> None:
        assert self._number is not None, "the run did not begin"
        self._number.check(run.record)
        best = self.best.then(self._number, run.record)
        if best.round != self.best.round:
            self._keep(run, best)

    def on_end(self, run: Run) -> None:
        """One model is enough for a run that is finished."""
        if run.result is not None and run.folder is not None and self._kept is not None and self._kept.models[1:]:
            best_models.write(run.folder, self._kept.last())

    def _keep(self, run: Run, best: Best) -> None:
        assert self._kept is not None
        assert best.round is not None
        assert best.value is not None
        self.best, content = best, as_bytes(run.model)
        if run.folder is None:
            self.content = content
        else:
            saved = 0 if run.saved is None else run.saved
            self._kept = best_models.add(run.folder, self._kept, best.value, content, saved, run.record)
