"""What a round over a network costs beside its training, for a small and a large model, and beside a plain Flower app.

.venv-deploy/bin/python benchmarks/deployment.py --rounds 3 --out build/deployment.json

Two sites on this machine, TLS, sites known by their keys. The plain app is Flower's own FedAvg with the same network,
the same data, and one pass over them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from headway.deploy.processes import Stage
from headway.deploy.rehearse import Plan, Scene
from headway.runs.roster import STATUS

WIDTHS = {"1 kB": 64, "44 MB": 2_750_000}
"""Inputs of a linear network of four outputs in float32."""
SAMPLES = 8
PYPROJECT = """
[project]
name = "{name}"
version = "1.0.0"
description = "a benchmark"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "headway"
[tool.flwr.app.components]
serverapp = "app:server"
clientapp = "app:client"
[tool.flwr.app.config]
headway = ""
"""
NETWORK = """
from torch import nn

class Net(nn.Linear):
    def __init__(self):
        super().__init__({width}, 4, bias=False)
"""
HEADWAY = """
from network import Net
import headway as hw

def data(folder):
    return hw.read_samples(folder / "cohort.safetensors")

client = hw.client_app(model=Net, data=data, classes=4)
server = hw.server_app("fedavg", model=Net, classes=4, sample=({width},), epochs=1, batch_size=8, rate=0.01)
"""
PLAIN = """
import json, os, time
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from safetensors.torch import load_file
from network import Net

client = ClientApp()
server = ServerApp()

@client.train()
def train(message: Message, context: Context) -> Message:
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    samples = load_file(os.path.join(str(context.node_config["data"]), "cohort.safetensors"))
    step = torch.optim.SGD(net.parameters(), 0.01)
    torch.nn.functional.cross_entropy(net(samples["x"]), samples["y"]).backward()
    step.step()
    metrics = MetricRecord({{"num-examples": len(samples["y"])}})
    return Message(RecordDict({{"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}}), reply_to=message)

@server.main()
def main(grid: Grid, context: Context) -> None:
    times = []
    def ended(round, arrays):
        times.append(time.time())
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2)
    strategy.start(grid, ArrayRecord(Net().state_dict()), num_rounds={rounds}, evaluate_fn=ended)
    with open({times!r}, "w") as file:
        json.dump(times, file)
"""


def project(folder: Path, width: int, app: str) -> Path:
    """A project with this network, and data of two sites."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT.format(name=folder.name))
    (folder / "network.py").write_text(NETWORK.format(width=width))
    (folder / "app.py").write_text(app)
    return folder


def cohorts(folder: Path, width: int) -> dict[str, Path]:
    places = {}
    for number in (1, 2):
        draw = np.random.default_rng(number)
        place = places[f"site-{number}"] = folder / f"site-{number}"
        place.mkdir(parents=True)
        x = draw.standard_normal((SAMPLES, width), np.float32)
        save_file({"x": x, "y": draw.integers(0, 4, SAMPLES)}, place / "cohort.safetensors")
    return places


def headway_round(folder: Path, width: int, rounds: int) -> dict[str, float]:
    """Medians of the parts of a round in Headway, without the first."""
    plan = Plan(
        project(folder / "headway", width, HEADWAY.format(width=width)), 2, folder / "run", settings={"rounds": rounds}
    )
    with Stage() as stage:
        Scene.built(stage, plan, cohorts(folder / "data", width), lambda line: None).play()
    records = [json.loads(line) for line in (plan.out / "rounds.jsonl").read_text().splitlines()][1:]
    assert json.loads((plan.out / STATUS).read_text())["round"] == rounds

    def median(*names: str) -> float:
        return statistics.median(sum(record[name] for name in names) for record in records)

    sites, waiting = median("seconds_at_sites"), median("seconds_waiting")
    whole = median("seconds_training", "seconds_evaluation")
    return {"whole": whole, "training at sites": sites, "messages": waiting - sites, "server": whole - waiting}


def plain_round(folder: Path, width: int, rounds: int) -> dict[str, float]:
    """The median of a round of the plain app, without the first."""
    times = folder / "times.json"
    place = project(folder / "plain", width, PLAIN.format(rounds=rounds, times=str(times)))
    plan = Plan(place, 2, folder / "none")
    with Stage() as stage:
        scene = Scene.built(stage, plan, cohorts(folder / "data-plain", width), lambda line: None)
        scene.operator.flower("run", str(place), "headway")
        until = time.monotonic() + 600
        while not times.is_file() or not times.stat().st_size:
            assert time.monotonic() < until, "the plain app did not end"
            time.sleep(0.5)
        time.sleep(0.5)
        moments = json.loads(times.read_text())
    return {"whole": statistics.median(after - before for before, after in itertools.pairwise(moments[1:]))}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--sizes", default=",".join(WIDTHS))
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    found = {}
    for size in given.sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            ours = headway_round(Path(folder), WIDTHS[size], given.rounds)
            plain = plain_round(Path(folder), WIDTHS[size], given.rounds)
        found[size] = {"headway": ours, "plain flower": plain, "load": os.getloadavg()[0]}
        print(size, json.dumps(found[size]), flush=True)
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
