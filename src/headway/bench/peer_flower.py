"""Flower: run_simulation with its FedAvg strategy, no evaluation on clients, in two ways.

`flower` is Flower at its best: an actor for each core, which keeps data and model from message to message, so that a
round costs it only what Flower itself does. `flower-tutorial` is an app as Flower's PyTorch tutorial teaches it: for
each message a new model, a new optimiser and a `DataLoader` that shuffles samples one by one, and Flower's own choice
of two cores for each actor. Whether Flower asks for the replies often enough is its own setting (every 0.1 s), which
`run_simulation` does not offer.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

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
    from headway.bench.peers import Gate, Order


@cache
def _federation(name: str) -> Federation:
    return WORKLOADS[name].federation()


@cache
def _kept(name: str, device: str, variant: Variant) -> tuple[Federation, LocalSGD]:
    """What an actor's process keeps: data and model on the device."""
    workload, federation = WORKLOADS[name], _federation(name)
    scenario = workload.scenario(device, variant.precision)
    return federation, LocalSGD(workload.module(), federation, scenario, torch.device(device), variant)


def _kept_training(message: Any, client: int, order: Order) -> tuple[nn.Module, int]:
    """The client's model after its steps, and its number of samples."""
    federation, local = _kept(order.workload, order.device, order.variant)
    workload = WORKLOADS[order.workload]
    local.module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    rows = torch.from_numpy(np.asarray(federation.clients[client]))
    order_of = permutations(int(message.content["config"]["server-round"]), f"bench/flower/{client}")
    orders = [rows[order_of(len(rows))] for _ in range(workload.epochs)]
    with order.variant.arithmetic(), torch.enable_grad():
        local.train(torch.split(torch.cat(orders).to(order.device), workload.batch))
    return local.module, len(rows)


class _Samples(Dataset[tuple[Tensor, Tensor]]):
    """A client's samples one by one, normalised as they are read."""

    def __init__(self, federation: Federation, client: int) -> None:
        self.pool, self.rows = federation.train, federation.clients[client]
        self.inputs = normaliser(federation, Variant(), torch.float32, torch.device("cpu"))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        row = int(self.rows[number])
        return self.inputs(self.pool.x[row]), self.pool.y[row]


def _tutorial_training(message: Any, client: int, order: Order) -> tuple[nn.Module, int]:
    workload = WORKLOADS[order.workload]
    scenario = workload.scenario(order.device, order.variant.precision)
    model = workload.module()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    model.to(order.device).train()
    samples = _Samples(_federation(order.workload), client)
    loader = DataLoader(samples, batch_size=workload.batch, shuffle=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=scenario.rate, weight_decay=scenario.weight_decay)
    with order.variant.arithmetic(), torch.enable_grad():
        for _ in range(workload.epochs):
            for x, y in loader:
                optimiser.zero_grad()
                loss = F.cross_entropy(model(x.to(order.device)), y.to(order.device))
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(model.parameters(), scenario.clip)
                optimiser.step()
    return model, len(samples)


_WAYS = {"flower": (_kept_training, 1), "flower-tutorial": (_tutorial_training, 2)}
"""What an actor does, and its cores; two are Flower's choice where nothing is said."""


def _reply(message: Any, client: int, order: Order) -> Any:
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    training, _ = _WAYS[order.peer]
    model, samples = training(message, client, order)
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": samples})}
    return Message(content=RecordDict(content), reply_to=message)


def _resources(order: Order) -> dict[str, float]:
    """Of one actor."""
    _, each = _WAYS[order.peer]
    actors = max(min(WORKLOADS[order.workload].cohort, cores() // each), 1)
    return {"num_cpus": each, "num_gpus": 1 / actors if order.device.startswith("cuda") else 0.0}


def play(order: Order, gate: Gate) -> None:
    from flwr.app import ArrayRecord
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    workload = WORKLOADS[order.workload]
    client_app, server_app = ClientApp(), ServerApp()

    def train(message: Any, context: Any) -> Any:
        return _reply(message, int(context.node_config["partition-id"]), order)

    def serve(grid: Any, context: Any) -> None:
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
            "client_resources": _resources(order),
        },
    )
