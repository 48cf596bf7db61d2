"""Seconds of a round in an older commit and in the working tree, in alternation.

python benchmarks/before_after.py [--old REV | --old-tree PATH] [--new-tree PATH] [--workload cnn,mlp] [--times 5]
       [--engines serial,batched,pool] [--compiled] [--rounds 10] [--device cpu] [--precision fp32] [--threads N]
       [--warm] [--json]

Plays `headway bench --json` of one tree and of the other in turns (old, new, old, new, …), each in a process that sees
the tree's `src` first, so nothing inside either tree has to keep its name. Each turn gives the median of its timed
rounds for each engine. Shown are the medians of all turns, their ratio new/old, and the quartiles of the ratios of
neighbours (each new turn by the old one just before it). The plain loop, which both trees have and neither should
change, is there as a control: what its ratio is away from 1 is the machine's doing. Play it where nothing else runs.

With `--warm` each tree's engines are made once and stay (`warm_engines.py`), so that a turn is its rounds and no more:
many turns in a short time, where making the engines takes longer than their rounds. It needs two names inside the
trees, `measure.HeadwayEngine` and a workload's `experiment` or `world`. Which tree begins then alternates too.

Engines: on a CPU serial, batched and pool, and with `--compiled` batched:compiled; on a GPU graphed:streams and
graphed:stacked, and with `--compiled` auto, which then chooses in each turn anew and prints it. Workloads: mlp and
cnn, and on a GPU resnet18-b50 too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, Self

from golden import ROOT, checked_out, git

Turn = dict[tuple[str, str], tuple[float, str]]
"""Of one tree, once: seconds of a round and the executor, by workload and engine."""

ENGINES = {"cpu": ["serial", "batched", "pool"], "cuda": ["graphed:streams", "graphed:stacked"]}
COMPILED = {"cpu": "batched:compiled", "cuda": "auto"}
WORKLOADS = {"cpu": ["mlp", "cnn"], "cuda": ["resnet18-b50", "cnn", "mlp"]}


def turn(tree: Path, arguments: argparse.Namespace) -> Turn:
    """Play the workloads once in a tree."""
    command = [sys.executable, "-m", "headway", "bench", "--json", "--device", arguments.device]
    command += ["--workload", ",".join(arguments.workload), "--engines", ",".join(arguments.engines)]
    command += ["--rounds", str(arguments.rounds)]
    command += ["--precision", arguments.precision] if arguments.precision else []
    with tempfile.TemporaryDirectory() as place:
        environment = os.environ | {"PYTHONPATH": str(tree / "src"), "HEADWAY_CACHE": place}
        if arguments.threads:
            environment["OMP_NUM_THREADS"] = str(arguments.threads)
        done = subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{tree} could not be measured: {done.stderr.strip()}")
    return read(json.loads(done.stdout))


class WarmTree:
    """A tree whose engines are made once, in a process that plays a turn when it is told to."""

    def __init__(self, tree: Path, arguments: argparse.Namespace, cache: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(tree / "src"), "HEADWAY_CACHE": cache}
        if arguments.threads:
            environment["OMP_NUM_THREADS"] = str(arguments.threads)
        script = Path(__file__).with_name("warm_engines.py")
        what = [arguments.precision or "default", ",".join(arguments.workload), ",".join(arguments.engines)]
        command = [sys.executable, str(script), arguments.device, *what]
        self.rounds, self.tree = arguments.rounds, tree
        self.player = subprocess.Popen(
            command, env=environment, cwd=cache, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError):
            self.player.communicate(timeout=60)

    def turn(self, rounds: int | None = None) -> Turn:
        assert self.player.stdin is not None
        assert self.player.stdout is not None
        with suppress(BrokenPipeError):  # then there is no answer either
            print(rounds or self.rounds, file=self.player.stdin, flush=True)
        answer = self.player.stdout.readline()
        if not answer:
            sys.exit(f"{self.tree} could not be measured")
        return read(json.loads(answer))


def warm_turns(old: Path, new: Path, arguments: argparse.Namespace) -> Iterator[tuple[Turn, Turn]]:
    """The turns of two trees that stay warm, the first of each when both are."""
    with ExitStack() as stack:
        places = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(2)]
        # One after the other: an executor may be chosen by stopwatch while the engines are made.
        trees = []
        for tree, place in zip((old, new), places, strict=True):
            trees.append(stack.enter_context(WarmTree(tree, arguments, place)))
            trees[-1].turn(rounds=1)
        for number in range(arguments.times):
            found = {which: trees[which].turn() for which in ((0, 1) if number % 2 == 0 else (1, 0))}
            yield found[0], found[1]


def cold_turns(old: Path, new: Path, arguments: argparse.Namespace) -> Iterator[tuple[Turn, Turn]]:
    """The turns of two trees, each in a process of its own."""
    for _ in range(arguments.times):
        yield turn(old, arguments), turn(new, arguments)


def read(content: Any) -> Turn:
    """What `headway bench --json` printed for one workload, or for several, as often as they come."""
    results = content if isinstance(content, list) else [content]
    return {
        (result["workload"], engine["name"]): (
            engine["seconds_per_round"],
            str(engine["options"].get("executor", engine["name"])),
        )
        for result in results
        for engine in result["engines"]
    }


def compared(turns: list[tuple[Turn, Turn]]) -> list[dict[str, Any]]:
    """One row for each workload and engine that both trees could play in every turn; others have no numbers."""
    rows = []
    for one in dict.fromkeys(one for pair in turns for each in pair for one in each):
        row: dict[str, Any] = {"workload": one[0], "engine": one[1]}
        rows.append(row)
        if not all(one in old and one in new for old, new in turns):
            continue
        before, after = ([pair[side][one][0] for pair in turns] for side in (0, 1))
        ratios = [new / old for old, new in zip(before, after, strict=True)]
        low, _, high = statistics.quantiles(ratios, method="inclusive") if len(ratios) > 1 else ratios * 3
        row |= {
            "old": statistics.median(before),
            "new": statistics.median(after),
            "ratio": statistics.median(after) / statistics.median(before),
            "ratio_quartiles": [low, high],
            "seconds_old": before,
            "seconds_new": after,
            "executors": [sorted({pair[side][one][1] for pair in turns}) for side in (0, 1)],
        }
    return rows


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{'workload':14}{'engine':18}{'old':>10}{'new':>10}{'new/old':>9}   quartiles"
    for row in rows:
        head = f"{row['workload']:14}{row['engine']:18}"
        if "ratio" not in row:
            yield f"{head} not played by both trees in every turn"
            continue
        low, high = row["ratio_quartiles"]
        old, new = row["executors"]
        others = f"   executors: {', '.join(old)} / {', '.join(new)}" if old != new or len(old) > 1 else ""
        yield f"{head}{row['old']:9.4f}s{row['new']:9.4f}s{row['ratio']:9.3f}   {low:.3f} to {high:.3f}{others}"


def parsed() -> argparse.Namespace:
    def several(text: str) -> list[str]:
        return [word for word in text.split(",") if word]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", help="a commit; default: where this branch left main")
    parser.add_argument("--old-tree", type=Path)
    parser.add_argument("--new-tree", type=Path, default=ROOT)
    parser.add_argument("--workload", type=several)
    parser.add_argument("--engines", type=several)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--times", type=int, default=5, help="turns of each tree")
    parser.add_argument("--rounds", type=int, default=10, help="timed rounds of each engine in a turn")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision")
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS of both trees")
    parser.add_argument("--warm", action="store_true", help="make each tree's engines once")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.old and arguments.old_tree:
        parser.error("--old and --old-tree are both given; give one of them")
    if arguments.times < 1:
        parser.error(f"--times is {arguments.times}; it must be at least 1")
    kind = arguments.device.partition(":")[0]
    if kind not in ENGINES:
        parser.error(f"--device is '{arguments.device}'; allowed: cpu, cuda or cuda:N")
    arguments.workload = arguments.workload or WORKLOADS[kind]
    arguments.engines = [*(arguments.engines or ENGINES[kind]), *([COMPILED[kind]] if arguments.compiled else [])]
    return arguments


def main() -> None:
    arguments = parsed()
    given = arguments.old_tree
    revision = None if given else arguments.old or git("merge-base", "main", "HEAD")
    with nullcontext(given.resolve()) if given else checked_out(str(revision)) as old:
        turns = []
        play = warm_turns if arguments.warm else cold_turns
        for pair in play(old, arguments.new_tree.resolve(), arguments):
            turns.append(pair)
            print(f"turn {len(turns)} of {arguments.times}", file=sys.stderr, flush=True)
    rows = compared(turns)
    print(json.dumps(rows, indent=2) if arguments.json else "\n".join(table(rows)))


if __name__ == "__main__":
    main()
