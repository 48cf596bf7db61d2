"""A benchmark's result as a table for the terminal, and as a JSON file named after its date, hardware and workload."""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from headway.bench.result import Measured, WorkloadResult
from headway.errors import UserError


def table(result: WorkloadResult) -> Table:
    caption = [
        f"{result['environment']['hardware']}; median of {result['timed_rounds']} rounds after "
        f"{result['warm_up_rounds']}, engines in turns of {result['rounds_in_a_row']}, no evaluation in any of them",
        *(f"{entry['name']}: {entry['reason']}" for entry in result["skipped"]),
    ]
    title = f"{result['workload']}: {result['work']}"
    made = Table(box=box.SIMPLE_HEAD, title=title, caption=Text("\n".join(caption)), caption_justify="left")
    made.add_column("engine", no_wrap=True)
    for heading in ("seconds a round", "quartiles", "× loop", "GFLOP/s", "of ceiling", "memory"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("how")
    for row in result["engines"]:
        low, high = row["seconds_quartiles"]
        made.add_row(
            row["name"],
            _seconds(row["seconds_per_round"]),
            f"{_seconds(low)}–{_seconds(high)}",
            f"{row['ratio_to_loop']:.2f}",
            f"{row['flops_per_second'] / 1e9:.1f}",
            f"{row['share_of_ceiling']:.1%}",
            "–" if row["peak_memory_bytes"] is None else f"{row['peak_memory_bytes'] / 1e6:.0f} MB",
            ", ".join([row["precision"], *map(str, row["options"].values())]),
        )
    return made


def _seconds(value: float) -> str:
    return f"{value:.3g}" if value >= 0.01 else f"{value:.2g}"


def file_name(result: Measured) -> str:
    """DATE-HARDWARE-WORKLOAD.json."""
    parts = (result["environment"]["date"][:10], result["environment"]["hardware"], result["workload"])
    return "-".join(re.sub(r"[^a-z0-9-]+", "-", part.lower()).strip("-") for part in parts) + ".json"


def write_result(result: Measured, folder: Path) -> Path:
    """Write a result of one workload into a new file; from the second of the same name on it has a number."""
    path = first = folder / file_name(result)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in count(2):
            if not path.exists():
                break
            path = first.with_stem(f"{first.stem}-{number}")
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    except OSError as fault:
        raise UserError(f"{path} cannot be written: {fault.strerror}") from None
    return path
