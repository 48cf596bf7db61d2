"""Weights & Biases: one of its runs for each run, in the project `headway`; its id is kept in the run's folder.

A resume goes on in the same run and writes only the rounds that are not there yet. Offline nothing can be asked of the
server, so the rounds of before are written again, in a new folder that takes the place of the old one.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import wandb

from headway.records import RoundRecord
from headway.runs.callbacks.run import Run
from headway.runs.files import read_json, write_json
from headway.runs.trackers.tracking import id_file, parameters, scalars, totals

PROJECT = "headway"


class WeightsAndBiases:
    """Writes a run's settings and numbers to a run of Weights & Biases, which a resume goes on with."""

    may_fail = True

    def __init__(self, place: str | None) -> None:
        self.place = place

    def on_start(self, run: Run) -> None:
        entity, _, project = (self.place or "").rpartition("/")
        self.run = wandb.init(
            entity=entity or None,
            project=project or os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.name,
            id=self._known(run.folder),
            resume="allow",
            reinit="create_new",  # a run of the user's own goes on beside it
            dir=run.folder,
            config=parameters(run),
            settings=wandb.Settings(console="off", silent=True),
        )
        if run.folder is not None:
            write_json(run.folder / id_file("wandb", self.place), {"run_id": self.run.id, "place": self.place})
            if self.run.offline:
                self._remove_before(run.folder)
        self.first, self.metrics = self.run.starting_step, run.metrics
        for record in run.records:
            self._write(record)

    def on_round(self, run: Run) -> None:
        self._write(run.record)

    def on_end(self, run: Run) -> None:
        if run.result is not None:
            self.run.summary.update(totals(run.result.summary))
        self.run.finish(exit_code=0 if run.result is not None else 1)

    def _write(self, record: RoundRecord) -> None:
        if record["round"] >= self.first:  # a round that was played again after a kill is there already
            self.run.log(scalars(record, self.metrics), step=record["round"])

    def _known(self, folder: Path | None) -> str | None:
        """The id that this run's folder has from before."""
        path = None if folder is None else folder / id_file("wandb", self.place)
        return str(read_json(path).get("run_id")) if path is not None and path.is_file() else None

    def _remove_before(self, folder: Path) -> None:
        """What earlier parts of the run wrote offline; all of it is written again."""
        for old in (folder / "wandb").glob(f"offline-run-*-{self.run.id}"):
            if old.name != Path(self.run.settings.sync_dir).name:
                shutil.rmtree(old)


def tracker(place: str | None) -> WeightsAndBiases:
    return WeightsAndBiases(place)
