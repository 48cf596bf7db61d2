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
    from headway.bench.result import WorkloadResult

PRECISIONS = ("fp32", "tf32", "bf16")
RANKS = typer.Option(
    help="numbers of ranks, with commas, such as 1,2,4: the rounds of auto, pfl or an executor on each",
    show_default=False,
)


def bench(
    workload: Annotated[
        str | None,
        typer.Option(help="mlp, cnn, lenet, resnet18-b50, resnet18-b10, or several with commas", show_default=False),
    ] = None,
    engines: Annotated[
        str | None,
        typer.Option(
            help="engines, with commas: loop, auto, pfl, flower, flower-tutorial or an executor's name; all by default",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="timed rounds of each engine", min=1)] = 10,
    precision: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(PRECISIONS)}, or several with commas; tf32 by default on a GPU, else fp32",
            show_default=False,
        ),
    ] = None,
    ranks: Annotated[str | None, RANKS] = None,
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
    small = [name for name, work in workloads.WORKLOADS.items() if work.small or machine.type == "cuda"]
    if out is not None:
        ensure_folder(out)  # before anything is measured
    console = stderr_console()

    def tell(line: str) -> None:
        console.print(line, style="dim", soft_wrap=True)

    if ranks is not None:
        _over_ranks(workload or "cnn", listed(engines), ranks, rounds, str(machine), precisions[0], tell, out, json)
        return
    results = []
    for work in workloads.workloads(listed(workload) or small):
        result = measure.measure(work, names, rounds, precisions, str(machine), tell)
        results.append(result)
        _show(result, out, json)
    if json:
        print_json(results[0] if len(results) == 1 else results)


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
