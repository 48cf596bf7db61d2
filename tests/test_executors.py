"""Every executor gives serial's numbers, whatever the method, the network and the sizes of the clients."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import headway as hw
from conftest import COMPILED, EXECUTORS, OTHERS, SMALL, distance, experiment, played, unequal_clients
from headway import executors
from headway.engine import client_rounds, selection
from headway.engine.aggregate import Group
from headway.engine.building import build
from headway.engine.client_rounds import CohortRounds, Turn
from headway.engine.executor import RoundInput
from headway.engine.serial import ClientTrainer, Serial, group_of_one
from headway.engine.states import ClientStates
from headway.engine.trial import first_rounds
from headway.errors import ClientError
from headway.executors import ExecutorKind
from headway.methods.method import Method
from headway.methods.spelling import method
from headway.trees import leaves_of
from methods_under_test import EVERY, FURTHER, SAMPLE, sampled


def state_of(progress: Any) -> dict[str, Any]:
    return {"theta": progress.model.theta, "buffers": progress.model.buffers, "server": progress.model.server}


WITH_NETWORKS = [
    *(("batch_norm_dropout", executor) for executor in OTHERS),
    ("group_norm", "batched"),
    *(pytest.param("group_norm", executor, marks=pytest.mark.soak) for executor in OTHERS if executor != "batched"),
    *(
        pytest.param(network, *compiled.values, marks=compiled.marks)
        for network in ("group_norm", "batch_norm_dropout")
        for compiled in COMPILED
    ),
]
"""Worker processes run serial's own function, so one network shows that they get all of it."""


@pytest.mark.parametrize(("network", "executor"), WITH_NETWORKS)
@pytest.mark.parametrize("name", sampled(EVERY))
def test_float64_agrees_over_several_rounds(name: str, network: str, executor: str) -> None:
    """Within 1e-10 over four rounds of unequal clients: model, buffers, server state, client states, losses, bytes."""
    chosen = experiment(EVERY[name], network)
    mine, theirs = ClientStates(), ClientStates()
    reference, end = played(chosen, "serial", mine)
    records, other = played(chosen, executor, theirs)
    assert distance(state_of(end), state_of(other)) < 1e-10
    assert mine.states.keys() == theirs.states.keys()
    assert all(distance(mine.states[client], theirs.states[client]) < 1e-10 for client in mine.states)
    for one, two in zip(reference, records, strict=True):
        assert one["train_loss"] == pytest.approx(two["train_loss"], abs=1e-10)
        assert [one[key] for key in ("clients", "bytes_up", "bytes_down", "steps")] == [
            two[key] for key in ("clients", "bytes_up", "bytes_down", "steps")
        ]


@pytest.mark.parametrize("name", sorted(FURTHER - SAMPLE))
def test_each_further_method_agrees_in_one_executor_and_one_network(name: str) -> None:
    """The rest of the product above is in `make soak`."""
    chosen = experiment(EVERY[name], "batch_norm_dropout", rounds=3)
    mine, theirs = ClientStates(), ClientStates()
    (_, end), (_, other) = played(chosen, "serial", mine), played(chosen, "batched", theirs)
    assert distance(state_of(end), state_of(other)) < 1e-10
    assert all(distance(mine.states[client], theirs.states[client]) < 1e-10 for client in mine.states)


@pytest.mark.parametrize("network", ["norm_free", "batch_norm_dropout"])
@pytest.mark.parametrize("name", sampled(EVERY))
def test_float32_agrees_for_one_round(name: str, network: str) -> None:
    """Within rtol 1e-4 of the model's size after one round from a common start; the pool runs serial's own function."""
    chosen = experiment(EVERY[name], network, rounds=1, precision="fp32")
    (_, end), (_, other) = played(chosen, "serial"), played(chosen, "batched")
    size = max(float(leaf.abs().max()) for leaf in leaves_of(end.model.theta))
    assert distance(end.model.theta, other.model.theta) < 1e-4 * size


def test_a_new_executor_is_a_module_and_a_line_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that trains the cohort backwards: its sums are added in another order, which is a rounding."""

    class Backwards(Serial):
        def run(self, given: RoundInput, rounds: CohortRounds) -> Iterator[Group]:
            for position in reversed(range(len(rounds))):
                client, trainer = rounds[position], self._trainer
                result = trainer.decoded(given, client, *trainer.upload(given, client))
                yield group_of_one(position, result, trainer.computed(client))

    module = types.ModuleType("headway.engine.serial_backwards")
    vars(module)["executor"] = lambda experiment, forms, coupled: Backwards(experiment, coupled=coupled)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(executors, "KINDS", {**executors.KINDS, "serial-backwards": ExecutorKind(alone=True)})
    chosen = experiment("fedacg", participation=1.0)
    (_, end), (_, other) = played(chosen, "serial"), played(chosen, "serial-backwards")
    assert 0 < distance(state_of(end), state_of(other)) < 1e-10
    assert not executors.fills("serial-backwards")
    assert not executors.is_form_of("serial-backwards", "serial")
    assert executors.is_form_of("serial:compiled", "serial")


def test_padding_is_what_fills_the_shape_of_a_stack() -> None:
    """Clients of 3 … 24 samples in batches of 4, two epochs: alone none, in a stack they wait for the longest."""
    chosen = experiment("fedavg", participation=1.0)
    (single, _), (together, _) = played(chosen, "serial"), played(chosen, "batched")
    sizes = chosen.federation.sizes
    batch = chosen.scenario.batch_size
    steps = [chosen.scenario.epochs * -(-int(size) // min(batch, int(size))) for size in sizes]
    samples = chosen.scenario.epochs * int(sizes.sum())
    for record, computed in ((single[0], samples), (together[0], len(sizes) * max(steps) * batch)):
        assert record["samples"] == samples
        assert record["padding"] == pytest.approx(1 - samples / computed)


@pytest.mark.parametrize(("compiled", "coupled", "computed"), [(0, 0, 34), (1, 0, 40), (1, 1, 34)])
def test_a_compiled_step_fills_the_largest_batch(compiled: bool, coupled: bool, computed: int) -> None:
    """17 samples in batches of 4, two epochs: five steps each, the last of one sample."""
    chosen = experiment("fedavg", participation=1.0)
    trainer = ClientTrainer(chosen, compiled=compiled, coupled=coupled)
    assert trainer.computed(first_rounds(chosen, range(chosen.population))[1]) == computed


def test_a_trial_has_the_clients_that_count() -> None:
    """Those asked beyond the cohort do not train in a round, so no executor makes room for them."""
    contest = selection._Contest(experiment("fedavg", participation=0.5, over_selection=1.0), timed=True)
    assert len(contest.rounds) == contest.cohort == 3


@pytest.mark.parametrize(("sampling", "share"), [("full", 0.5), ("fixed", 1.0), ("fixed", 0.5)])
def test_the_length_of_a_run_is_judged_by_who_is_asked(
    sampling: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "TRIAL_CLIENTS", 2)
    chosen = experiment("fedavg", sampling=sampling, participation=share, rounds=10)
    contest = selection._Contest(chosen, timed=True)
    contest.seconds = 1.0
    steps = max(contest.rounds.lengths)
    asked = 6 if "full" in sampling or share == 1.0 else 3
    assert contest.projected == pytest.approx(10 * chosen.shapes["rows"][0] / steps * asked / 2)


@pytest.mark.parametrize("executor", ["serial", "pool"])
def test_a_buffer_that_a_module_changes_in_its_place_is_each_client_s_own(executor: str) -> None:
    """Every client counts its own passes from 0: none sees another's count, and the average is that of K_i."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 3)
            self.register_buffer("passes", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.passes += 1
            return self.head(x)  # type: ignore[no-any-return]

    chosen = build(
        SMALL.changed(rounds=1, steps=5, participation=1.0), method("fedavg"), model=Counting(), **unequal_clients()
    )
    _, end = played(chosen, executor)
    assert float(end.model.buffers["passes"]) == pytest.approx(5.0)
    assert float(chosen.network.buffers["passes"]) == 0.0


def test_client_rounds_are_made_one_by_one_and_released() -> None:
    made: list[int] = []

    def make(at: int) -> Any:
        made.append(at)
        return f"round {at}"

    rounds = CohortRounds(Turn(1, (7, 8, 9), np.ones(3)), [3, 1, 2], make, lambda at: (0, ()))
    assert (len(rounds), rounds.lengths, made) == (3, (3, 1, 2), [])
    assert rounds.at([2, 0]) == ["round 2", "round 0"]
    assert rounds[2] == "round 2"
    assert made == [2, 0]
    rounds.release([2])
    assert rounds[2] == "round 2"
    assert made == [2, 0, 2]


SETTINGS = {
    "steps, not epochs": {"steps": 7},
    "one stream across rounds": {"batches": "continued", "steps": 5},
    "uniform weights": {"weights": "uniform"},
    "decay in the round": {"rate_decay_epoch": 0.5, "rate_decay": 0.9},
    "no clipping, no weight decay": {"clip": 0.0, "weight_decay": 0.0},
    "tight clipping": {"clip": 0.05},
    "everybody": {"participation": 1.0},
}


@pytest.mark.parametrize("executor", OTHERS)
@pytest.mark.parametrize("settings", list(SETTINGS))
def test_every_way_of_local_training_agrees(settings: str, executor: str) -> None:
    chosen = experiment("fedacg", "batch_norm_dropout", **SETTINGS[settings])
    (_, end), (_, other) = played(chosen, "serial"), played(chosen, executor)
    assert distance(state_of(end), state_of(other)) < 1e-10


@pytest.mark.parametrize("executor", EXECUTORS)
def test_local_statistics_stay_with_their_client(executor: str) -> None:
    """Under keep-local the server's buffers never change, and each client has its own."""
    chosen = experiment("fedavg", "batch_norm_dropout", buffers="keep-local", rounds=6)
    store = ClientStates()
    _, end = played(chosen, executor, store)
    assert distance(end.model.buffers, chosen.network.buffers) == 0
    first, second = (store.states[client]["buffers"] for client in list(store.states)[:2])
    assert distance(first, second) > 0


@pytest.mark.parametrize("executor", EXECUTORS)
def test_no_sample_is_dropped(executor: str) -> None:
    """One epoch over a client of n samples moves a linear model by the gradient of all n of them."""
    x = torch.eye(5, dtype=torch.float64)
    clients = [(x[:size], torch.zeros(size, dtype=torch.int64)) for size in (1, 3, 5)]
    model = nn.Linear(5, 2, bias=False)
    result = hw.simulate(
        "fedavg",
        model=model,
        clients=clients,
        test=(x, torch.zeros(5, dtype=torch.int64)),
        rounds=1,
        participation=1.0,
        epochs=1,
        batch_size=2,
        clip=0.0,
        weight_decay=0.0,
        precision="fp64",
        executor=executor,
        weights="uniform",
    )
    moved = (result.model.weight.detach() - model.weight.detach().double()).abs().sum(0)
    assert (moved > 0).all()


class Refusing(nn.Module):
    """A model that vmap cannot take: it looks at a number in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * (2.0 if x.sum().item() > 0 else 1.0)


class Drawing(nn.Module):
    """A model that draws from torch's own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x + 0.1 * torch.randn_like(x) if self.training else x)


class Looking(nn.Module):
    """A model that fails in a stack, and not for what torch says of vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * (1.0 if x.untyped_storage().nbytes() else 2.0)


@pytest.mark.parametrize("model", [Refusing(), Drawing(), Looking()], ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("executor", ["batched", "auto"])
def test_a_model_that_cannot_be_batched_is_reported_and_runs(model: nn.Module, executor: str) -> None:
    """The numbers are serial's, also for a model that draws from torch's own generator."""
    from conftest import SMALL, unequal_clients

    with pytest.warns(UserWarning, match="batched executor cannot take this model"):
        other = hw.simulate("fedavg", SMALL, model=model, executor=executor, **unequal_clients())
    alone = hw.simulate("fedavg", SMALL, model=model, executor="serial", **unequal_clients())
    assert other.executor in ("serial", "pool")
    assert [record["train_loss"] for record in other.records] == [record["train_loss"] for record in alone.records]


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            raise KeyError("not today")
        return self.inner(x)


@pytest.mark.parametrize("executor", ["serial", "pool", "auto"])
def test_a_failing_client_says_where(executor: str) -> None:
    from conftest import SMALL, unequal_clients

    with pytest.raises(ClientError, match=r"round 1, client \d+, step 0: KeyError: 'not today'"):
        hw.simulate("fedavg", SMALL, model=Failing(), executor=executor, **unequal_clients())


def test_a_slot_that_writes_into_the_facts_of_a_client_changes_no_other_round() -> None:
    """Nobody should; where somebody does, every round still begins with the truth, as in every executor."""

    @dataclass(frozen=True)
    class smoothed:
        adds = True

        def begin(self, received: Any, kept: Any, client: Any) -> dict[str, Any]:
            counts = client.class_counts
            counts += 1
            return {"shares": counts.double() / counts.sum()}

        def value(self, w: Any, output: Any, memory: Any, step: Any) -> Any:
            return 0.1 * step.batch.mean((output.logits * memory["shares"]).sum(1))

    ends = []
    for name in ("serial", "batched"):
        chosen = experiment(Method(objective=smoothed()), participation=1.0)
        ends.append(played(chosen, name)[1].model.theta)
        assert (chosen.client_rounds.facts(0).class_counts == chosen.federation.class_counts(0)).all()
    assert distance(*ends) < 1e-10


def test_what_is_remembered_of_clients_is_bounded_and_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_rounds, "FACTS_AT_MOST", 2)
    chosen = experiment("fedavg")
    for client in (0, 1, 2, 1, 0, 2):
        found = chosen.client_rounds.facts(client)
        assert int(found.size) == len(chosen.federation.clients[client])
        assert found.class_counts.tolist() == chosen.federation.class_counts(client).tolist()
        assert len(chosen.client_rounds._facts) <= 2
