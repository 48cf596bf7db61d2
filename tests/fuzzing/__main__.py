"""The long form: `python -m fuzzing [KIND …]`. It prints counts and findings; exit code 1 where there are any."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch

from fuzzing.attempts import played
from fuzzing.kinds import KINDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)}; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="cases of each kind; else " + ", ".join(map(_said, KINDS)))
    parser.add_argument("--case", type=int, help="only the case of this number, again")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # a command's own lines are looked at; those of Python calls are no findings
    tallies = []
    for name in chosen.kinds or KINDS:
        make, count = KINDS[name]
        numbers = range(chosen.count or count) if chosen.case is None else [chosen.case]
        with tempfile.TemporaryDirectory(prefix="headway-fuzz-") as place:
            started = time.monotonic()
            tally = played(name, make(Path(place).resolve()), chosen.seed, numbers, print)
            tallies.append(tally)
            print(f"{tally.line()}  ({time.monotonic() - started:.0f} s)", flush=True)
    print("\n" + "\n".join(tally.line() for tally in tallies))
    found = sum(len(tally.findings) for tally in tallies)
    print(f"{sum(tally.count for tally in tallies):,} cases, {found} findings")
    return min(found, 1)


def _said(name: str) -> str:
    return f"{KINDS[name][1]} {name}"


if __name__ == "__main__":
    sys.exit(main())
