"""pfl-research: FederatedAveraging on its simulated backend, tensors in memory on the device, no evaluation.

pfl reads a user's batches in one order, so it shuffles nothing; that is a little less work than the others do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.bench.loop import normaliser
from headway.bench.workloads import ENDLESS, WORKLOADS, Workload

if TYPE_CHECKING:
    from headway.bench.peers import Gate, Order


class _WithLoss(nn.Module):
    """A network with the `loss` and `metrics` that pfl asks for."""

    def __init__(self, network: nn.Module, inputs: Any) -> None:
        super().__init__()
        self.network, self.inputs = network, inputs

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.network(self.inputs(x)), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        return {}


class _Between:
    """pfl's callback after each iteration. The word for the first round comes before the training begins."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def on_train_begin(self, *, model: Any) -> Any:
        from pfl.metrics import Metrics

        self.gate.wait()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Any]:
        from pfl.metrics import Metrics

        self.gate.wait()
        return False, Metrics()

    def on_train_end(self, *, model: Any) -> None:
        pass


def _users(workload: Workload, device: torch.device) -> Any:
    """A dataset for each client, made once: pfl keeps the batches it cut."""
    from pfl.data.pytorch import PyTorchTensorDataset

    federation = workload.federation()
    pool = federation.train.to(device)
    assert isinstance(pool.x, Tensor)
    return [
        PyTorchTensorDataset((pool.x[torch.from_numpy(rows)], pool.y[torch.from_numpy(rows)]), user_id=str(number))
        for number, rows in enumerate(federation.clients)
    ]


def play(order: Order, gate: Gate) -> None:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    workload, device = WORKLOADS[order.workload], torch.device(order.device)
    scenario = workload.scenario(order.device, order.variant.precision)
    module = _WithLoss(workload.module(), normaliser(workload.federation(), order.variant, torch.float32, device)).to(
        device
    )
    if order.variant.channels_last:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def local(parameters: Any, lr: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=lr, weight_decay=scenario.weight_decay, foreach=True)

    users = _users(workload, device)
    sampler = get_user_sampler("minimize_reuse", list(range(workload.clients)))
    data = FederatedDataset(lambda user: users[user], sampler)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=ENDLESS,
            evaluation_frequency=ENDLESS,
            train_cohort_size=workload.cohort,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()]),
        model=PyTorchModel(module, local, torch.optim.SGD(module.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(
            local_batch_size=workload.batch,
            local_num_epochs=workload.epochs,
            local_learning_rate=scenario.rate,
            local_max_grad_norm=scenario.clip,
        ),
        callbacks=[_Between(gate)],
        send_metrics_to_platform=False,
    )
