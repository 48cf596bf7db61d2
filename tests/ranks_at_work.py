"""Several ranks for a test: forked processes that talk through gloo, each of which calls one function."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch.distributed as dist

from conftest import NETWORKS, experiment, unequal_clients
from headway.engine.experiment import Experiment
from headway.engine.process_group import ProcessRanks
from headway.engine.ranks import Ranks
from headway.random import built

SECONDS = 120.0
KEPT: dict[str, Any] = {
    "method": "scaffold",
    "deterministic": True,
    "executor": "serial",
    "rounds": 6,
    "checkpoint_every": 1,
}
"""Settings of a run in a folder, with states of its clients."""


def kept_run(**settings: Any) -> Experiment:
    """A run that is kept in a folder."""
    return experiment("scaffold", "batch_norm_dropout", **{**KEPT, **settings})


def own_objects() -> dict[str, Any]:
    """What is given again where `kept_run` is resumed or loaded."""
    return {"model": built(NETWORKS["batch_norm_dropout"], 7, "test"), **unequal_clients()}


def checkpoint_of(folder: Path) -> dict[str, bytes]:
    """Every file of a run's checkpoint."""
    return {file.name: file.read_bytes() for file in (folder / "checkpoint").iterdir()}


def _rank(count: int, rank: int, store: Path, end: Connection, work: Callable[[Ranks], object], seconds: float) -> None:
    """One rank's life: what its function returns, or the exception that it raises, goes to the test."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=count, timeout=timedelta(seconds=seconds)
        )
        assert dist.group.WORLD is not None
        found: tuple[str, object] = "returned", work(ProcessRanks(dist.group.WORLD, seconds, direct=False))
    except BaseException as fault:
        found = "raised", (type(fault).__name__, str(fault), traceback.format_exc())
    end.send(found)
    end.recv()  # nobody ends before all are done
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()
    os._exit(0)


def on_ranks(
    count: int, work: Callable[[Ranks], object], killed: Sequence[int] = (), seconds: float = SECONDS
) -> list[Any]:
    """What each rank's function returns, by rank; an exception as (name of its type, text, traceback).

    Of those that are `killed` nothing is heard. After `seconds` without an answer a rank is taken to hang.
    """
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ends: list[tuple[Connection, Connection]] = [context.Pipe() for _ in range(count)]
        processes = [
            context.Process(
                target=_rank, args=(count, rank, Path(folder) / "store", theirs, work, seconds), daemon=False
            )
            for rank, (_, theirs) in enumerate(ends)
        ]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
            for process in processes:
                process.start()
        try:
            found = []
            for _, theirs in ends:
                theirs.close()
            for rank, (mine, _) in enumerate(ends):
                if rank in killed:
                    found.append(())
                    continue
                assert mine.poll(seconds), f"rank {rank} has not answered"
                found.append(mine.recv()[1])
            for rank, (mine, _) in enumerate(ends):
                if rank not in killed:
                    mine.send("done")
        finally:
            for process in processes:
                process.join(5)
                process.kill()
                process.join()
    return found


def returned(found: Sequence[Any]) -> Sequence[Any]:
    """What ranks returned, where none of them raised."""
    for rank, one in enumerate(found):
        assert not (isinstance(one, tuple) and len(one) == 3 and "Traceback" in str(one[2])), f"rank {rank}: {one[2]}"
    return found
