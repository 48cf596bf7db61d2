"""Runs on several processes: `--ranks N` has torchrun's launcher start this command N times."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from headway.cli.ending import LAUNCHED, Ended, complain
from headway.errors import UserError, shared

RANKS = typer.Option(
    "--ranks",
    help="processes that train each cohort together; started here, or as many as torchrun has started",
    show_default=False,
)
MAX_RESTARTS = typer.Option(
    "--max-restarts", help="how often all ranks are started again, from the last checkpoint, when one dies", min=0
)
RANK_TIMEOUT = typer.Option(
    "--rank-timeout", help="seconds after which a rank that does not answer is given up; 1800", show_default=False
)


def started_alone() -> bool:
    """Whether no launcher has started this process as one of several."""
    return os.environ.get("WORLD_SIZE", "1") in ("", "1")


def refuse_ranks(what: str, ranks: int | None = None) -> None:
    """Refuse a command that trains several runs: ranks share one."""
    if not started_alone() or ranks not in (None, 1):
        fault = UserError(
            f"headway {what} trains several runs, and ranks train one together; use headway run --ranks N"
        )
        raise fault if started_alone() else shared(fault)


def is_to_be_launched(ranks: int | None) -> bool:
    """Whether this process is to start the ranks; a launcher's own processes are the ranks."""
    if ranks is not None and ranks < 1:
        raise UserError(f"ranks is {ranks}; it must be at least 1")
    return ranks is not None and ranks > 1 and started_alone() and "RANK" not in os.environ


def folder_of_ranks(name: str) -> Path:
    """The folder of a run that torchrun has started without --out: the same after a restart, and for all ranks."""
    from headway.runs.files import slug

    if os.environ.get("GROUP_WORLD_SIZE", "1") != "1":
        raise shared(UserError("ranks on several machines need a folder that all of them see; give --out FOLDER"))
    started = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return Path("runs") / f"{slug(name)}-{slug(started)[:8]}-{os.getppid()}"


def launched(ranks: int, max_restarts: int, folder: Path, deterministic: bool, more: Sequence[str] = ()) -> int:
    """The exit code of this command on several ranks, which torch's launcher starts.

    `folder` is that of the run, and `more` are words that they get beside those of this command. In deterministic mode
    each rank has as many threads as this process would have alone, because the bits of a matrix product depend on it;
    otherwise they share the cores.
    """
    import torch
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from headway.cli.loopback import stay_on_this_machine

    for name in logging.root.manager.loggerDict:
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what the launcher has to say is said here
    threads = torch.get_num_threads()
    os.environ.setdefault("OMP_NUM_THREADS", str(threads if deterministic else max(threads // ranks, 1)))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ[LAUNCHED] = "1"
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id=f"headway-{os.getpid()}",
        rdzv_backend=stay_on_this_machine(),
        local_addr="127.0.0.1",
        max_restarts=max_restarts,
        monitor_interval=0.1,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "headway", *sys.argv[1:], *more)
    except ChildFailedError as fault:
        rank, first = fault.get_first_failure()
        if first.exitcode < 0:
            complain(f"rank {rank} was killed by {signal.Signals(-first.exitcode).name}{_advice(folder)}")
            return 1
        return first.exitcode
    except SignalException as fault:
        raise Ended("", 128 + int(fault.sigval)) from None
    return 0


def _advice(folder: Path) -> str:
    """How to go on, where there is something to go on with."""
    there = (folder / "scenario.toml").is_file()
    return f"; go on with: headway resume {shlex.quote(str(folder))}" if there else ""
