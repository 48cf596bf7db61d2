"""`--jobs` and `--devices` of the commands that make several runs."""

from __future__ import annotations

import typer

JOBS = typer.Option(
    "--jobs",
    help="how many runs at the same time, each in its own process, or auto: one for each core, or one for each GPU "
    "(whether more pay on a GPU: benchmarks/jobs.py); the numbers are the same for any",
    show_default=False,
)
DEVICES = typer.Option(
    "--devices", help="where the runs are trained: cpu, cuda:0-7 or cuda:0,cuda:1; one job for each", show_default=False
)
