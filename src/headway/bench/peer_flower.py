"""Flower: run_simulation with its FedAvg strategy, no evaluation on clients, in two ways.

`flower` is Flower at its best: an actor for each core, which keeps data and model from message to message, so that a
round costs only what Flower itself does. `flower-tutorial` is an app as Flower's PyTorch tutorial teaches it: for each
message a new model, a new optimiser and a `DataLoader` that reads samples one by one, and two cores for each actor,
which is Flower's default. Flower polls for replies every 0.1 s, which `run_simulation` does not let one change.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from headway.bench.loop import LocalSGD, Variant, normaliser
from headway.bench.workloads import ENDLESS, WORKLOADS
from headway.data.federation import Federation
from headway.engine.pool import cores
from headway.random import permutations

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.serverapp import Grid

    from headway.bench.peers import BetweenRounds, PeerJob


@cache
def _federation(name: str) -> Federation:
    return WORKLOADS[name].federation()


@cache
def _kept_in_actor(name: str, device: str, variant: Variant) -> tuple[Federation, LocalSGD]:
    """The data and the model on the device, which an actor's process keeps from message to message."""
    workload, federation = WORKLOADS[name], _federation(name)
    scenario = workload.scenario(device, variant.precision)
    return federation, LocalSGD(workload.module(), federation, scenario, torch.device(device), variant)


def _fast_training(message: Message, client: int, job: PeerJob) -> tuple[nn.Module, int]:
    """The client's model after its steps, and its number of samples."""
    federation, local = _kept_in_actor(job.workload, job.device, job.variant)
    workload = WORKLOADS[job.workload]
    local.module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    rows = torch.from_numpy(np.asarray(federation.clients[client]))
    permutation = permutations(int(message.content["config"]["server-round"]), f"bench/flower/{client}")
    epochs = [rows[permutation(len(rows))] for _ in range(workload.epochs)]
    with job.variant.arithmetic(), torch.enable_grad():
        local.train(torch.split(torch.cat(epochs).to(job.device), workload.batch))
    return local.module, len(rows)


class _Samples(Dataset[tuple[Tensor, Tensor]]):
    """A client's samples one by one, normalised as they are read."""

    def __init__(self, federation: Federation, client: int) -> None:
        self.pool, self.rows = federation.train, federation.clients[client]
        self.normalise = normaliser(federation, Variant(), torch.float32, torch.device("cpu"))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        row = int(self.rows[number])
        assert isinstance(self.pool.x, Tensor)
        return self.normalise(self.pool.x[row]), self.pool.labels[row]


def _tutorial_training(message: Message, client: int, job: PeerJob) -> tuple[nn.Module, int]:
    """The same as Flower's tutorial does it."""
    workload = WORKLOADS[job.workload]
    scenario = workload.scenario(job.device, job.variant.precision)
    model = workload.module()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    model.to(job.device).train()
    samples = _Samples(_federation(job.workload), client)
    loader = DataLoader(samples, batch_size=workload.batch, shuffle=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=scenario.rate, weight_decay=scenario.weight_decay)
    with job.variant.arithmetic(), torch.enable_grad():
        for _ in range(workload.epochs):
            for x, y in loader:
                optimiser.zero_grad()
                loss = F.cross_entropy(model(x.to(job.device)), y.to(job.device))
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(model.parameters(), scenario.clip)
                optimiser.step()
    return model, len(samples)


_WAYS = {"flower": (_fast_training, 1), "flower-tutorial": (_tutorial_training, 2)}
"""How an actor trains, and its cores; two are Flower's default."""


def _reply(message: Message, client: int, job: PeerJob) -> Message:
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    training, _ = _WAYS[job.peer]
    model, samples = training(message, client, job)
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": samples})}
    return Message(content=RecordDict(content), reply_to=message)


def _resources(job: PeerJob) -> dict[str, float]:
    """The share of the machine that one actor takes."""
    _, each = _WAYS[job.peer]
    actors = max(min(WORKLOADS[job.workload].cohort, cores() // each), 1)
    return {"num_cpus": each, "num_gpus": 1 / actors if job.device.startswith("cuda") else 0.0}


def play(job: PeerJob, gate: BetweenRounds) -> None:
    from flwr.app import ArrayRecord
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    workload = WORKLOADS[job.workload]
    client_app, server_app = ClientApp(), ServerApp()

    def train(message: Message, context: Context) -> Message:
        return _reply(message, int(context.node_config["partition-id"]), job)

    def serve(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=workload.cohort / workload.clients,
            fraction_evaluate=0.0,
            min_train_nodes=workload.cohort,
            min_available_nodes=workload.clients,
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(workload.module().state_dict()),
            num_rounds=ENDLESS,
            evaluate_fn=lambda number, arrays: gate.wait(),
        )

    client_app.train()(train)
    server_app.main()(serve)
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=workload.clients,
        backend_config={
            "init_args": {
                "num_cpus": max(cores(), 2),
                "include_dashboard": False,
                "log_to_driver": False,
            },
            "client_resources": _resources(job),
        },
    )
