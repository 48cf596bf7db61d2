"""`Experiment`: a scenario and a method bound to data, network and device. Everything that is fixed during a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from headway.data.batches import has_short_batches, planned_steps
from headway.data.cohort import Attendance
from headway.data.columns import Tensors
from headway.data.federation import ClientTests, Federation, Samples
from headway.data.participation import Fixed, Sampling, sampling, wanted
from headway.data.task import doubt, task_in_words
from headway.engine import coupling
from headway.engine.client_rounds import ClientRounds, ClientState
from headway.engine.determinism import DETERMINISTIC
from headway.engine.network import Network
from headway.errors import UserError
from headway.methods.method import Method
from headway.random import Normals, normals
from headway.scenario import Scenario
from headway.schedules import schedule
from headway.tasks.task import Task
from headway.trees import copied, leaves_of, tree_map

MIXES_AT_MOST = 1000


@dataclass(frozen=True)
class Experiment:
    """What a run is about. What changes from round to round is in `simulation.Progress` and the client store."""

    scenario: Scenario
    method: Method
    federation: Federation
    """Who holds what. A centralised method has one client here, which holds everybody's samples."""
    split: Federation
    """The data as it was split among clients, for a centralised method too."""
    task: Task
    """What is learnt, and how it is judged."""
    network: Network
    samples: Samples
    """The training samples on the run's device."""
    device: torch.device
    dtype: torch.dtype
    """Type of the parameters."""
    autocast: torch.dtype | None
    """Type of the forward pass, where it differs from the parameters'."""
    attendance: Attendance | None = None
    """Who takes part in each round, where another run's rounds are played again."""
    noise_source: Callable[[int], Normals] | None = None
    """Where the noise of a private server comes from, by the round; None: from the run's seed, so that it repeats."""

    @property
    def population(self) -> int:
        """N, the number of clients."""
        return len(self.federation.clients)

    @cached_property
    def task_in_words(self) -> str:
        """What the targets were taken for, the loss and the metrics; and on what clients are judged by themselves."""
        words, tests = task_in_words(self.federation, self.task), self.split.client_tests
        if tests is None:
            return words
        kind = "test" if self.scenario.validation is None else "validation"
        return f"{words}; {tests.count:,} of {len(tests.rows):,} clients are judged on their own {kind} samples"

    @cached_property
    def doubt(self) -> str | None:
        """Why the task may not be the one that is meant, where something speaks for it."""
        return doubt(self.federation) if self.scenario.task == "auto" else None

    def targets(self, y: Tensors) -> Tensors:
        """Raw targets as a loss takes them: numbers in the parameters' type, classes as they are."""
        if isinstance(y, Tensor):
            return y.to(self.dtype) if y.is_floating_point() else y
        return tree_map(lambda part: self.targets(part), y)  # type: ignore[no-any-return]

    @cached_property
    def weight_total(self) -> float:
        """Σ_N of the unnormalised aggregation weights."""
        if self.scenario.weights == "uniform":
            return float(self.population)
        return float(self.federation.total_size)

    def weight(self, client: int) -> float:
        """A client's unnormalised aggregation weight: n_i, or 1 where weights are uniform."""
        return 1.0 if self.scenario.weights == "uniform" else float(self.federation.sizes[client])

    def weights(self, clients: Sequence[int]) -> tuple[np.ndarray, float]:
        """ω_i of each of these clients, with Σω_i = 1, and the share of all clients' weight that they have together."""
        sizes = self.federation.sizes[list(clients)]
        given = np.ones(len(sizes)) if self.scenario.weights == "uniform" else sizes.astype(np.float64)
        total = float(given.sum())
        return given / total, total / self.weight_total

    def rate(self, round: int) -> float:
        """η of the schedule at the first step of a round: by default η · d^(t−1)."""
        return _rate(self.scenario, round)

    @property
    def advice(self) -> str:
        """What may help where numbers have run away."""
        return f"a smaller rate (now {self.scenario.rate:g}) or clipping (--clip) may help"

    @cached_property
    def sampling(self) -> Sampling:
        """Who is invited in a round."""
        return sampling_of(self.scenario, self.method)

    @property
    def wanted(self) -> float:
        """How many clients a round is planned to have, whoever comes."""
        return wanted(self.scenario)

    def normals(self, round: int) -> Normals:
        """Standard normal numbers of a round for a server that adds noise.

        Everybody who has the seed can draw those of a simulation; a deployment gives `random.secret_normals` instead.
        """
        return normals(self.scenario.seed, "privacy", round) if self.noise_source is None else self.noise_source(round)

    @cached_property
    def client_rounds(self) -> ClientRounds:
        """Makes cohorts and the rounds of their clients, and remembers what is asked for again."""
        return ClientRounds(self)

    @cached_property
    def test(self) -> Samples:
        """The test samples on the run's device."""
        return self.federation.test.to(self.device)

    @cached_property
    def client_tests(self) -> ClientTests | None:
        """The test samples of each client on the run's device; None where no client has any."""
        tests = self.split.client_tests
        if tests is None:
            return None
        samples = self.test if tests.samples is self.split.test else tests.samples.to(self.device)
        return ClientTests(samples, tests.rows)

    @cached_property
    def initial_client_state(self) -> ClientState:
        """What a client holds before its first round: states of slots, its place in its stream, local statistics.

        Clients at other places hold theirs there, so that there is nothing here.
        """
        if self.federation.is_elsewhere:
            return {"slots": {}}
        state: ClientState = {"slots": self.method.client_state(self.network.parameters)}
        if self.scenario.batches == "continued":
            state["cursor"] = torch.zeros((), dtype=torch.int64)
        if self.scenario.buffers == "keep-local":
            state["buffers"] = self.network.buffers
        return copied(state)

    @cached_property
    def has_client_state(self) -> bool:
        """Whether a client holds anything between its rounds."""
        return bool(leaves_of(self.initial_client_state))

    @cached_property
    def reads_whole(self) -> bool:
        """Whether some slot reads a gradient over all of a client's data."""
        return "full_gradient" in self.method.needs("model")

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The largest shapes of a `ClientArrays` that this run can meet, by field."""
        most = int(self.federation.sizes.max())
        steps, batch = planned_steps(self.scenario, most), min(self.scenario.batch_size, most)
        whole = most if self.reads_whole else 0
        return {"rows": (steps, batch), "counts": (steps,), "rates": (steps,), "whole": (whole,)}

    @cached_property
    def coupling(self) -> str:
        """What rows that fill a batch change here; empty where they change nothing, or no batch has to be filled."""
        least, most = int(self.federation.sizes.min()), int(self.federation.sizes.max())
        if not has_short_batches(self.scenario, self.federation.sizes) and not (self.reads_whole and least < most):
            return ""
        with self.arithmetic():
            return coupling.found(self, self.shapes["rows"][1])

    @cached_property
    def scores_jointly(self) -> bool:
        """Whether samples that are scored together change each other's outputs."""
        with self.arithmetic():
            return self.network.joint or coupling.in_evaluation(self)

    @property
    def state_limit(self) -> int | None:
        """Bytes of client state in memory before the rest goes to a file."""
        limit = self.scenario.client_state_mb
        return None if limit is None else int(limit * 1e6)

    @cached_property
    def sample_weights(self) -> Tensor:
        """p_i/n_i of each training sample, so that Σ weights · losses is Σ_i p_i F_i."""
        weights = torch.zeros(len(self.federation.train), dtype=torch.float64)
        for client, rows in enumerate(self.federation.clients):
            each = torch.tensor(self.weight(client) / self.weight_total / len(rows), dtype=torch.float64)
            weights.index_put_((torch.as_tensor(rows),), each, accumulate=True)  # a split may have a sample twice
        return weights

    @cached_property
    def class_mixes(self) -> np.ndarray:
        """Class shares of up to 1,000 clients, evenly spaced by id, shape (clients, classes)."""
        count = len(self.split.clients)
        chosen = np.unique(np.linspace(0, count - 1, min(count, MIXES_AT_MOST)).astype(int))
        counts = np.stack([self.split.class_counts(int(client)) for client in chosen])
        shares: np.ndarray = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        return shares

    def forward_precision(self) -> torch.autocast:
        """A forward pass inside computes in `autocast`, where that is given."""
        kind = self.autocast
        return torch.autocast(self.device.type, kind, enabled=kind is not None, cache_enabled=False)

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """The scenario's precision and determinism inside, the caller's settings outside."""
        with ExitStack() as stack:
            if self.device.type == "cuda":
                stack.enter_context(torch.cuda.device(self.device))
                matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
                before = matmul.allow_tf32, convolution.allow_tf32
                matmul.allow_tf32 = convolution.allow_tf32 = self.scenario.precision in ("tf32", "bf16")
                stack.callback(lambda: _restore_tf32(before))
                stack.callback(setattr, convolution, "benchmark", convolution.benchmark)
                convolution.benchmark = not self.scenario.deterministic
            if self.scenario.deterministic:
                stack.enter_context(DETERMINISTIC)
            stack.enter_context(torch.no_grad())
            yield


def sampling_of(scenario: Scenario, method: Method) -> Sampling:
    """The sampling that the scenario names; the one client of a centralised method always takes part."""
    return Fixed(1, 1, scenario.seed) if method.pooled else sampling(scenario, scenario.clients)


def _restore_tf32(before: tuple[bool, bool]) -> None:
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def _rate(scenario: Scenario, round: int) -> float:
    return scenario.rate * schedule(scenario.schedule).share(round - 1, scenario.rounds, scenario.rate_decay)


def check_rate(scenario: Scenario, round: int, dtype: torch.dtype) -> None:
    """Refuse a rate that is rounded to 0: nothing would be learnt, and some rules divide by the sum of rates."""
    rate = _rate(scenario, round)
    if rate < torch.finfo(dtype).smallest_normal and not torch.tensor(rate, dtype=dtype):
        raise UserError(
            f"schedule '{scenario.schedule}': from rate {scenario.rate:g} the rate of round {round} is {rate:g}, "
            f"which is 0 in {str(dtype).removeprefix('torch.')}; let it fall more slowly, or run fewer rounds"
        )
