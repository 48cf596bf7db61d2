"""headway bench."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.ranks import refuse_ranks
from headway.cli.screen import JSON, listed, print_json, screen, stderr_console
from headway.errors import UserError

if TYPE_CHECKING:
    import torch

    from headway.bench.result import WorkloadResult

PRECISIONS = ("fp32", "tf32", "bf16")
TIMED_ROUNDS, STARTED_ROUNDS = 10, 80
"""Rounds by default: those of an engine that are timed, and those that a run would have whose start is timed."""
WORKLOAD = typer.Option(
    help="mlp, cnn, lenet, resnet18-b50, resnet18-b10, or several with commas; with --start also fashion",
    show_default=False,
)
ENGINES = typer.Option(
    help="engines, with commas: loop, auto, pfl, flower, flower-tutorial or an executor's name; all by default",
    show_default=False,
)
ROUNDS = typer.Option(
    help="timed rounds of each engine, 10 by default; with --start: how many the run would have, 80 by default",
    min=1,
    show_default=False,
)
START = typer.Option(
    "--start", help="what is waited for before the first round is over: with an empty cache, and again with a full one"
)
EXECUTOR = typer.Option(help="with --start: an executor, or several with commas; auto by default", show_default=False)
TIMES = typer.Option(help="with --start: how often, 1 by default", min=1, show_default=False)
RANKS = typer.Option(
    help="numbers of ranks, with commas, such as 1,2,4: the rounds of auto, pfl or an executor on each",
    show_default=False,
)


def bench(
    workload: Annotated[str | None, WORKLOAD] = None,
    engines: Annotated[str | None, ENGINES] = None,
    rounds: Annotated[int | None, ROUNDS] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(PRECISIONS)}, or several with commas; tf32 by default on a GPU, else fp32",
            show_default=False,
        ),
    ] = None,
    ranks: Annotated[str | None, RANKS] = None,
    start: Annotated[bool, START] = False,
    executor: Annotated[str | None, EXECUTOR] = None,
    times: Annotated[int | None, TIMES] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto")] = "auto",
    json: Annotated[bool, JSON] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="folder for DATE-HARDWARE-WORKLOAD.json, such as benchmarks/results", show_default=False),
    ] = None,
) -> None:
    """The same rounds in every executor, a plain PyTorch loop and other simulators, side by side."""
    from headway.bench import measure, workloads
    from headway.engine.building import device_of
    from headway.runs.files import ensure_folder
    from headway.scenario import Scenario

    requested = _precisions(precision)
    refuse_ranks("bench")
    machine = device_of(Scenario(device=device).device)
    precisions = requested or [measure.default_precision(machine)]
    names = measure.choose_engines(listed(engines) if ranks is None else None)
    if out is not None:
        ensure_folder(out)  # before anything is measured
    console = stderr_console()

    def tell(line: str) -> None:
        console.print(line, style="dim", soft_wrap=True)

    _check_start(start, engines=engines, ranks=ranks, executor=executor, times=times)
    if start:
        begun = listed(workload) or ["fashion", "mlp"]
        _started(begun, listed(executor), rounds or STARTED_ROUNDS, times or 1, machine, precisions[0], tell, out, json)
        return
    rounds = rounds or TIMED_ROUNDS
    if ranks is not None:
        _over_ranks(workload or "cnn", listed(engines), ranks, rounds, str(machine), precisions[0], tell, out, json)
        return
    results = []
    for work in workloads.workloads(listed(workload) or workloads.usual(machine.type)):
        result = measure.measure(work, names, rounds, precisions, str(machine), tell)
        results.append(result)
        _show(result, out, json)
    if json:
        print_json(results[0] if len(results) == 1 else results)


def _check_start(start: bool, **given: object) -> None:
    """Refuse what a start does not have, and what only a start has."""
    for name in ("engines", "ranks") if start else ("executor", "times"):
        if given[name] is not None:
            why = (
                "--start starts one process with an --executor" if start else "it is for --start; others take --engines"
            )
            raise UserError(f"{name} is '{given[name]}', but {why}; leave it out")


def _started(
    workloads: list[str],
    executors: list[str] | None,
    rounds: int,
    times: int,
    device: torch.device,
    precision: str,
    tell: Callable[[str], None],
    out: Path | None,
    json: bool,
) -> None:
    """Measure starts, and show them as `_show` does."""
    from headway.bench import start, table

    made = executors or ["auto"]
    result = start.measure_starts(
        workloads, made, rounds=rounds, times=times, device=device, precision=precision, tell=tell
    )
    if out is not None:
        stderr_console().print(f"wrote {table.write_result(result, out)}", markup=False, soft_wrap=True)
    if json:
        print_json(result)
    else:
        screen().print(start.table(result))


def _over_ranks(
    workload: str,
    engines: list[str] | None,
    ranks: str,
    rounds: int,
    device: str,
    precision: str,
    tell: Callable[[str], None],
    out: Path | None,
    json: bool,
) -> None:
    """Measure engines on several numbers of ranks, and show it as `_show` does."""
    from headway.bench import over_ranks, table, workloads

    results = []
    names, counts = over_ranks.engines_over_ranks(engines), over_ranks.counts(listed(ranks) or [])
    for work in workloads.workloads(listed(workload) or []):
        result = over_ranks.measure_over_ranks(work, names, counts, rounds, device, precision, tell)
        results.append(result)
        if out is not None:
            stderr_console().print(f"wrote {table.write_result(result, out)}", markup=False, soft_wrap=True)
        if not json:
            screen().print(over_ranks.table(result))
    if json:
        print_json(results[0] if len(results) == 1 else results)


def _precisions(spelled: str | None) -> list[str]:
    """The precisions that are asked for, each once."""
    precisions = list(dict.fromkeys(listed(spelled) or ()))
    for requested in precisions:
        if requested not in PRECISIONS:
            raise UserError(f"precision is '{requested}'; allowed: {', '.join(PRECISIONS)}")
    return precisions


def _show(result: WorkloadResult, out: Path | None, json: bool) -> None:
    """Keep what was measured of a workload in the folder `out`, and print its table unless JSON is asked for."""
    from headway.bench import table

    if out is not None:
        stderr_console().print(f"wrote {table.write_result(result, out)}", markup=False, soft_wrap=True)
    if not json:
        screen().print(table.table(result))
