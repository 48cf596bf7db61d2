"""Flower: run_simulation with its FedAvg strategy, as many actors as there are cores, no evaluation on clients.

An actor keeps data and model from message to message, so that a round costs it only what Flower itself does. Whether
Flower asks for the replies often enough is its own setting (every 0.1 s), which `run_simulation` does not offer.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headway.bench.loop import LocalSGD, Variant
from headway.bench.workloads import ENDLESS, WORKLOADS
from headway.data.federation import Federation
from headway.engine.pool import cores
from headway.random import permutations

if TYPE_CHECKING:
    from headway.bench.peers import Gate, Order


@cache
def _kept(name: str, device: str, variant: Variant) -> tuple[Federation, LocalSGD]:
    """What an actor's process keeps: data and model on the device."""
    workload = WORKLOADS[name]
    federation = workload.federation()
    scenario = workload.scenario(device, variant.precision)
    return federation, LocalSGD(workload.module(), federation, scenario, torch.device(device), variant)


def _trained(message: Any, client: int, order: Order) -> Any:
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    federation, local = _kept(order.workload, order.device, order.variant)
    workload = WORKLOADS[order.workload]
    local.module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    rows = torch.from_numpy(np.asarray(federation.clients[client]))
    order_of = permutations(int(message.content["config"]["server-round"]), f"bench/flower/{client}")
    orders = [rows[order_of(len(rows))] for _ in range(workload.epochs)]
    with order.variant.arithmetic(), torch.enable_grad():
        local.train(torch.split(torch.cat(orders).to(order.device), workload.batch))
    content = {
        "arrays": ArrayRecord(local.module.state_dict()),
        "metrics": MetricRecord({"num-examples": len(rows)}),
    }
    return Message(content=RecordDict(content), reply_to=message)


def play(order: Order, gate: Gate) -> None:
    from flwr.app import ArrayRecord
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    workload = WORKLOADS[order.workload]
    client_app, server_app = ClientApp(), ServerApp()
    actors = min(workload.cohort, cores())

    def train(message: Any, context: Any) -> Any:
        return _trained(message, int(context.node_config["partition-id"]), order)

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
    graphics = 1.0 if order.device.startswith("cuda") else 0.0
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=workload.clients,
        backend_config={
            "init_args": {"num_cpus": cores(), "include_dashboard": False, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": graphics / actors},
        },
    )
