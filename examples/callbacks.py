"""Callbacks: the accuracy of each class and the drift of each client, round by round, and a run that ends by itself.

python examples/callbacks.py [FOLDER]
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from tempfile import mkdtemp

import torch

import headway as hw


class ClassAccuracy:
    """Writes the accuracy of the server's model on each class of the test set, a line for each round."""

    def on_start(self, run: hw.Run) -> None:
        test = run.experiment.federation.test
        self.classes = [test.rows(torch.nonzero(test.labels == label).flatten()) for label in test.labels.unique()]
        self.file = opened(run, "class_accuracy.jsonl")

    def on_round(self, run: hw.Run) -> None:
        accuracies = [run.evaluate(samples)["accuracy"] for samples in self.classes]
        print(json.dumps({"round": run.round, "accuracy": accuracies}), file=self.file, flush=True)

    def on_end(self, run: hw.Run) -> None:
        self.file.close()


class Drift:
    """Writes how far each client went, and how far it agrees with the others: ‖Δ_i‖ and its cosine with their mean."""

    needs = ("updates",)

    def on_start(self, run: hw.Run) -> None:
        self.file = opened(run, "drift.jsonl")

    def on_round(self, run: hw.Run) -> None:
        found = run.updates
        if found is None:  # nobody arrived
            return
        for client, norm, cosine in zip(found.clients, found.norms, found.cosines, strict=True):
            line = {
                "round": run.round,
                "client": client,
                "norm": norm,
                "cosine": None if math.isnan(cosine) else cosine,
            }
            print(json.dumps(line), file=self.file, flush=True)

    def on_end(self, run: hw.Run) -> None:
        self.file.close()


def opened(run: hw.Run, name: str):  # type: ignore[no-untyped-def]
    """A file in the run's folder, without the lines of rounds that a resume runs again."""
    assert run.folder is not None, "give the run a folder: out=…"
    path = run.folder / name
    lines = path.read_text().splitlines() if path.is_file() else []
    path.write_text("".join(f"{line}\n" for line in lines if json.loads(line)["round"] <= run.round))
    return path.open("a")


def main(folder: Path, **settings: object) -> hw.Study:
    callbacks = [ClassAccuracy(), Drift(), hw.EarlyStopping(patience=10), hw.KeepBest()]
    chosen = {"rounds": 60, "validation": 0.2, **settings}
    study = hw.compare(["fedavg", "fedacg"], callbacks=callbacks, out=folder, **chosen)
    for method, (run,) in study.runs.items():
        accuracies = [json.loads(line) for line in (run.folder / "class_accuracy.jsonl").read_text().splitlines()]
        drift = [json.loads(line)["cosine"] for line in (run.folder / "drift.jsonl").read_text().splitlines()]
        print(f"{method}: {run.stopped or 'all rounds'}")
        print(f"  accuracy by class  {' '.join(f'{one:.2f}' for one in accuracies[-1]['accuracy'])}")
        print(f"  cosine with the mean update  {sum(one or 0.0 for one in drift) / len(drift):.2f}")
        print(f"  the best model is of round {run.callbacks[3].best.round}")
    print(f"runs: {folder}")
    return study


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp()) / "runs")
