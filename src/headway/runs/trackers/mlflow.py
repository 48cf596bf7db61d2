"""MLflow: one MLflow run for each run, in the experiment `headway`; its id is kept in the run's folder.

A resume goes on in the same MLflow run and writes only the rounds that are not there yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from headway.records import RoundRecord
from headway.runs.callbacks.run import Run
from headway.runs.files import read_json, write_json
from headway.runs.trackers.tracking import ALWAYS, id_file, parameters, scalars, totals

EXPERIMENT = "headway"
_STATUS = {"finished": "FINISHED", "stopped": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
_AT_ONCE = 500
"""Metrics in one call: MLflow takes a thousand."""


class MLflow:
    """Writes a run's settings and numbers to an MLflow run, which a resume goes on with."""

    may_fail = True

    def __init__(self, uri: str | None) -> None:
        self.uri = uri

    def on_start(self, run: Run) -> None:
        self.client, self.metrics = MlflowClient(tracking_uri=self.uri), run.metrics
        self.id = self._known(run.folder) or self._created(run)
        self.client.update_run(self.id, status="RUNNING")
        there = {metric.step for metric in self.client.get_metric_history(self.id, ALWAYS)}
        self.last = max(there, default=0)
        self._write([record for record in run.records if record["round"] > self.last])

    def on_round(self, run: Run) -> None:
        if run.round > self.last:  # a round that was played again after a kill is there already
            self._write([run.record])

    def on_end(self, run: Run) -> None:
        if run.result is not None:
            self._log([(name, value, run.round) for name, value in totals(run.result.summary).items()])
        self.client.set_terminated(self.id, _STATUS[run.status])

    def _write(self, records: Sequence[RoundRecord]) -> None:
        """A record's metrics in one call, so that a kill leaves a round or none of it."""
        for record in records:
            self._log([(name, value, record["round"]) for name, value in scalars(record, self.metrics).items()])

    def _log(self, numbers: list[tuple[str, float, int]]) -> None:
        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value, step in numbers]
        for start in range(0, len(metrics), _AT_ONCE):
            self.client.log_batch(self.id, metrics=metrics[start : start + _AT_ONCE])

    def _known(self, folder: Path | None) -> str | None:
        """The MLflow run that this run's folder names, if it is still there."""
        path = None if folder is None else folder / id_file("mlflow", self.uri)
        if path is None or not path.is_file():
            return None
        name = str(read_json(path).get("run_id"))
        try:
            found = self.client.get_run(name)
        except MlflowException:
            return None
        return name if found.info.lifecycle_stage == "active" else None

    def _experiment(self, name: str) -> str:
        """The number of the experiment, which is made where it is missing."""
        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self.client.create_experiment(name))
            except MlflowException:  # a run beside this one may have made it meanwhile
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _created(self, run: Run) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        made: str = self.client.create_run(self._experiment(name), run_name=run.name).info.run_id
        given = [Param(key, str(value)) for key, value in parameters(run).items()]
        tags = [RunTag("headway.folder", str(run.folder))] if run.folder is not None else []
        self.client.log_batch(made, params=given, tags=tags)
        if run.folder is not None:
            write_json(run.folder / id_file("mlflow", self.uri), {"run_id": made, "uri": self.uri})
        return made


def tracker(place: str | None) -> MLflow:
    return MLflow(place)
