"""TensorBoard: one event file for each run, in RUN/tensorboard or in DIR/RUN.

A resume writes the file anew from the run's own records, so the curve has every round once, also after a kill.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from headway.errors import UserError
from headway.records import RoundRecord
from headway.runs.callbacks.run import Run
from headway.runs.trackers.tracking import NO_FOLDER, parameters, scalars

SUFFIX = ".headway"
"""How the names of our event files end; others in the folder are left alone."""


class TensorBoard:
    """Writes a run's settings and numbers to one event file, which a resume writes anew."""

    may_fail = True

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def on_start(self, run: Run) -> None:
        if self.folder is None and run.folder is None:
            raise UserError(NO_FOLDER)
        place = self.folder / run.name if self.folder is not None else Path(str(run.folder), "tensorboard")
        given = parameters(run)
        for old in place.glob(f"events.out.tfevents.*{SUFFIX}"):
            old.unlink()
        self.writer = SummaryWriter(str(place), filename_suffix=SUFFIX)
        values = {key: value for key, value in given.items() if isinstance(value, bool | int | float | str)}
        on = "validation" if "validation" in given else "test"
        self.metrics = run.metrics
        shown = {f"{run.metrics[0]}/{on}_smoothed": 0.0, f"loss/{on}": 0.0}
        file = self.writer._get_file_writer()  # type: ignore[no-untyped-call]
        for part in hparams(values, shown):  # type: ignore[no-untyped-call]
            file.add_summary(part)  # add_hparams would write to another folder
        self.writer.add_text("scenario", _table(given))
        for record in run.records:
            self._write(record)
        self.writer.flush()

    def on_round(self, run: Run) -> None:
        self._write(run.record)
        self.writer.flush()

    def on_end(self, run: Run) -> None:
        if run.result is not None:
            self.writer.add_text("summary", _table(dict(run.result.summary)), run.round)
        self.writer.close()

    def _write(self, record: RoundRecord) -> None:
        for name, value in scalars(record, self.metrics).items():
            self.writer.add_scalar(name, value, record["round"])


def _table(values: Mapping[str, object]) -> str:
    """Markdown."""
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in values.items())])


def tracker(place: str | None) -> TensorBoard:
    return TensorBoard(None if place is None else Path(place).expanduser())
