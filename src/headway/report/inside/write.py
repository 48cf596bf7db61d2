"""`headway.analyse`: measures a round's local models, and writes numbers, pictures and tables beside the run."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from headway.analysis import written
from headway.analysis.inside import Analysis, Wanted, analyse_run
from headway.data.own_samples import Padding
from headway.methods.method import Method
from headway.report.inside import pictures, sheets
from headway.runs.files import as_path
from headway.runs.given import Clients, Metrics
from headway.tasks.known import OwnTask


def analyse(
    run: str | Path,
    *,
    round: int | None = None,
    local_models: int = Wanted.local_models,
    samples: int = Wanted.samples,
    grid: int = Wanted.grid,
    eigenvalues: int = Wanted.eigenvalues,
    method: Method | None = None,
    model: str | nn.Module | None = None,
    clients: Clients | None = None,
    test: object = None,
    task: str | OwnTask | None = None,
    metrics: Metrics = (),
    padding: Padding = None,
) -> Analysis:
    """Look into the local models of a run that was made with `keep_checkpoints`.

    >>> analyse("runs/mine").summary()

    They are trained again from the server's model after `round`, or after the last round that was kept, with the
    batches that the run's next round had. `local_models` of the cohort are compared on `samples` held-out samples, the
    loss is drawn on a plane of `grid` × `grid` places, and the largest `eigenvalues` of its Hessian are found. Numbers,
    pictures and tables are in RUN/analysis/round-N. What is the user's own is given again, as for `load_run`.
    """
    folder = as_path("run", run)
    wanted = Wanted(local_models, samples, grid, eigenvalues)
    own = {"model": model, "clients": clients, "test": test, "task": task, "metrics": metrics, "padding": padding}
    found = analyse_run(folder, round, wanted, method, **own)
    place = written.place_of(folder, found.round)
    written.write(found, place)
    sheets.save_all(found, place)
    pictures.save_all(found, place)
    return found
