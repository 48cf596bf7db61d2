"""What a user waits for before the first round: an older commit and the working tree, side by side.

python benchmarks/waiting.py [--old REV | --old-tree PATH] [--new-tree PATH] [--times 5] [--case fashion:auto,mlp:auto]
       [--rounds 80] [--device cpu] [--precision fp32] [--json]

A case is an executor and a work: fashion, which is `hw.simulate("fedavg")` on the embedded data, or a workload of
`headway bench`. In every turn each tree starts it twice in fresh processes: cold, with empty caches of Headway and of
torch's compiler, and warm, with what the cold start left. Trees take turns, and which begins alternates. Shown are
medians of the seconds for imports, from the call to the end of the first round, for the whole process, and of the
seconds that it and its workers computed, with the ratio new/old.
`headway bench --start` has the parts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from golden import ROOT, checked_out, git

NUMBERS = ("imports", "call", "process", "cpu")
CHILD = """\
import json, sys, time
begin = time.perf_counter()
import torch
import headway as hw
hw.simulate
imported = time.perf_counter() - begin
work, executor, rounds, device, precision = json.loads(sys.argv[1])
from headway.bench.workloads import WORKLOADS
from headway.engine.building import build
from headway.malloc import keep_freed_memory
from headway.methods.spelling import method
from headway.runs.callbacks.hooks import hooked
from headway.runs.driver import drive
from headway.runs.job import Job

class Watch:
    ended, executor = 0.0, ""
    def begins(self, experiment, done, executor):
        self.executor = executor
    def round(self, record):
        self.ended = time.perf_counter()
    def tell(self, message):
        print(message, file=sys.stderr)

def once(run):
    run.stop("only the first round is timed")

keep_freed_memory()
watch, begin = Watch(), time.perf_counter()
if work == "fashion":
    settings = {"rounds": rounds, "executor": executor, "device": device, "precision": precision}
    hw.simulate("fedavg", observer=watch, callbacks=once, **settings)
else:
    one = WORKLOADS[work]
    scenario = one.scenario(device, precision).changed(rounds=rounds, executor=executor, eval_every=1)
    federation = one.federation()
    experiment = build(scenario, method("fedavg"), model=one.module(), federation=federation)
    drive(Job(experiment, None, watch, hooked(once)))
print(json.dumps({"imports": imported, "call": watch.ended - begin, "executor": watch.executor}))
"""


def started(tree: Path, case: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One start in a fresh process, whose caches and temporary files lie in a folder."""
    work, _, executor = case.partition(":")
    job = [work, executor or "auto", arguments.rounds, arguments.device, arguments.precision]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("TORCHINDUCTOR", "TRITON"))
    }
    environment |= {"PYTHONPATH": str(tree / "src"), "HEADWAY_CACHE": str(folder / "cache"), "TMPDIR": str(folder)}
    begin, before = time.perf_counter(), cpu_of_children()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(job)], env=environment, cwd=folder, capture_output=True, text=True
    )
    took = time.perf_counter() - begin
    if done.returncode:
        sys.exit(f"{case} of {tree} did not start:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "process": took, "cpu": cpu_of_children() - before}


def cpu_of_children() -> float:
    """Seconds that the processes computed which this one started and that ended; other work hardly changes them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def turn(trees: dict[str, Path], arguments: argparse.Namespace, number: int) -> list[dict[str, Any]]:
    """Every case of both trees, cold and warm."""
    found = []
    for case in arguments.case:
        for name in list(trees)[:: -1 if number % 2 else 1]:
            with tempfile.TemporaryDirectory() as folder:
                for cache in ("cold", "warm"):
                    one = started(trees[name], case, arguments, Path(folder))
                    found.append({"case": case, "tree": name, "cache": cache, **one})
    return found


def compared(starts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each case and state of the cache, with the medians of both trees."""
    rows = []
    for case, cache in dict.fromkeys((one["case"], one["cache"]) for one in starts):
        mine = [one for one in starts if (one["case"], one["cache"]) == (case, cache)]
        row: dict[str, Any] = {"case": case, "cache": cache}
        for tree in ("old", "new"):
            of_tree = [one for one in mine if one["tree"] == tree]
            row[tree] = {number: statistics.median(one[number] for one in of_tree) for number in NUMBERS}
            row[tree]["calls"] = [one["call"] for one in of_tree]
            row[tree]["executors"] = sorted({one["executor"] for one in of_tree})
        rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{'case':24}{'cache':6}" + "".join(f"{f'{number}, s':>24}" for number in NUMBERS) + "   executors"
    for row in rows:
        old, new = row["old"], row["new"]
        pairs = (f"{old[one]:.2f} → {new[one]:.2f} ({new[one] / old[one]:.2f})" for one in NUMBERS)
        names = dict.fromkeys((*old["executors"], *new["executors"]))
        yield f"{row['case']:24}{row['cache']:6}" + "".join(f"{pair:>24}" for pair in pairs) + f"   {', '.join(names)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", help="a commit; default: where this branch left main")
    parser.add_argument("--old-tree", type=Path)
    parser.add_argument("--new-tree", type=Path, default=ROOT)
    parser.add_argument("--case", type=lambda text: text.split(","), default=["fashion:auto", "mlp:auto"])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=80, help="that the run would have")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.old and arguments.old_tree:
        parser.error("--old and --old-tree are both given; give one of them")
    if arguments.times < 1:
        parser.error(f"--times is {arguments.times}; it must be at least 1")
    given = arguments.old_tree
    revision = None if given else arguments.old or git("merge-base", "main", "HEAD")
    with nullcontext(given.resolve()) if given else checked_out(str(revision)) as old:
        trees, starts = {"old": Path(old), "new": arguments.new_tree.resolve()}, []
        for number in range(arguments.times):
            print(f"turn {number + 1} of {arguments.times}", file=sys.stderr, flush=True)
            starts += turn(trees, arguments, number)
    rows = compared(starts)
    print(json.dumps(rows, indent=2) if arguments.json else "\n".join(table(rows)))


if __name__ == "__main__":
    main()
