"""pfl-research: FederatedAveraging on its simulated backend, tensors in memory on the device, no evaluation.

pfl reads a user's batches in the same order in every round. It shuffles nothing, which is a little less work than the
others do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.bench.loop import normaliser
from headway.bench.workloads import ENDLESS, WORKLOADS, Workload

if TYPE_CHECKING:
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    from headway.bench.peers import BetweenRounds, PeerJob


class _WithLoss(nn.Module):
    """A network with the methods `loss` and `metrics` that pfl calls."""

    def __init__(self, network: nn.Module, normalise: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.network, self.normalise = network, normalise

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.network(self.normalise(x)), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, object]:
        return {}


class _WaitBetweenRounds:
    """pfl's callback that waits before each round; for the first one before the training begins."""

    def __init__(self, gate: BetweenRounds) -> None:
        self.gate = gate

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        from pfl.metrics import Metrics

        self.gate.wait()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        from pfl.metrics import Metrics

        self.gate.wait()
        return False, Metrics()

    def on_train_end(self, *, model: PyTorchModel) -> None:
        pass


def _users(workload: Workload, device: torch.device) -> list[PyTorchTensorDataset]:
    """A dataset for each client, made once, as pfl keeps the batches into which it cuts one."""
    from pfl.data.pytorch import PyTorchTensorDataset

    federation = workload.federation()
    pool = federation.train.to(device)
    assert isinstance(pool.x, Tensor)
    return [
        PyTorchTensorDataset((pool.x[torch.from_numpy(rows)], pool.labels[torch.from_numpy(rows)]), user_id=str(number))
        for number, rows in enumerate(federation.clients)
    ]


def play(job: PeerJob, gate: BetweenRounds) -> None:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    workload, device = WORKLOADS[job.workload], torch.device(job.device)
    scenario = workload.scenario(job.device, job.variant.precision)
    module = _WithLoss(workload.module(), normaliser(workload.federation(), job.variant, torch.float32, device)).to(
        device
    )
    if job.variant.channels_last:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def local(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
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
        callbacks=[_WaitBetweenRounds(gate)],
        send_metrics_to_platform=False,
    )
