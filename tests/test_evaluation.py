"""What scores depend on, and what they must not: chunks, executors, classes that nobody has, types of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import headway as hw
from conftest import NETWORKS, played, unequal_clients, world
from headway.engine import evaluation
from headway.engine.evaluation import evaluate
from headway.engine.round import start
from headway.engine.serial import Serial
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods.slots import State, Uploads
from headway.random import built
from headway.vectors import Vector


@pytest.mark.parametrize("buffers", ["average", "keep-local"])
def test_a_model_that_is_handed_over_scores_as_recorded(buffers: str) -> None:
    given = unequal_clients()
    model = built(NETWORKS["batch_norm_dropout"], 7, "test")
    result = hw.simulate("fedavg", model=model, rounds=3, buffers=buffers, executor="serial", precision="fp64", **given)
    x, y = given["test"]
    with torch.no_grad():
        logits = result.model.double().eval()(torch.from_numpy(x))
    right = (logits.argmax(1).numpy() == y).mean()
    assert result.records[-1]["accuracy"] == pytest.approx(right)
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(y))
    assert result.records[-1]["loss"] == pytest.approx(float(loss), abs=1e-6)


def test_where_samples_share_statistics_the_device_s_chunk_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are then the same everywhere, and as equal as can be: nobody is normalised by itself."""
    chosen = world("fedavg", "batch_norm_dropout", buffers="keep-local")
    asked: list[int] = []

    class Own:
        def score(self, *given: Any) -> Any:
            raise AssertionError("samples of other chunks would be among these")

    score = evaluation.local.score
    monkeypatch.setattr(
        evaluation.local, "score", lambda rules, w, b, x, y: asked.append(len(x)) or score(rules, w, b, x, y)
    )
    monkeypatch.setitem(evaluation.CHUNK, "cpu", 39)
    own: Any = Own()
    assert evaluate(chosen, start(chosen), own) == evaluate(chosen, start(chosen))
    assert asked == [20, 20] * 2


@pytest.mark.parametrize(
    ("count", "most", "length"), [(1, 5, 1), (5, 5, 5), (6, 5, 3), (11, 5, 4), (10_000, 2500, 2500)]
)
def test_chunks_are_as_few_and_as_equal_as_can_be(count: int, most: int, length: int) -> None:
    assert evaluation._even(count, most) == length


def test_classes_that_no_client_has_leave_no_spread() -> None:
    x = torch.randn(40, 4)
    few = torch.tensor([0, 1] * 10)
    clients = [(x[:20], few), (x[20:], few)]
    test = (x[:5], torch.full((5,), 2))
    result = hw.simulate("fedavg", model=nn.Linear(4, 3), clients=clients, test=test, rounds=1, executor="serial")
    assert "accuracy" in result.records[0]
    assert "client_accuracy_std" not in result.records[0]
    assert "client_accuracy_low" not in result.records[0]


def test_clients_of_a_method_that_pools_them_are_judged_as_clients() -> None:
    y = np.repeat(np.arange(3), 20)
    x = np.random.default_rng(0).normal(size=(60, 4))
    clients = [(x[y == label], y[y == label]) for label in range(3)]
    result = hw.simulate("csgd", model=nn.Linear(4, 3), clients=clients, test=(x, y), rounds=2, executor="serial")
    assert result.records[-1]["client_accuracy_std"] > 0


def test_before_its_first_evaluation_the_best_iterate_is_not_known() -> None:
    chosen = world("fednag", rounds=4, eval_every=3)
    stands = [progress for _, progress in simulate(chosen, Serial(chosen.rules), ClientStates(), begin(chosen))]
    assert stands[1].output is stands[1].model
    assert stands[2].output is stands[2].best


@dataclass(frozen=True)
class telling:
    """A server's addition that measures."""

    name: str
    number: float

    def server_state(self, model: Vector, population: int) -> State:
        return {"none": torch.zeros(())}

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        return model + uploads.mean["delta"], state

    def measures(self, state: State) -> dict[str, Tensor]:
        return {self.name: torch.tensor(self.number)}


def test_a_measure_keeps_to_its_own_name_and_to_numbers() -> None:
    def records(name: str, number: float) -> Any:
        return played(world(hw.Method(server=telling(name, number)), rounds=1))[0]

    assert records("pull", 0.5)[0]["pull"] == 0.5
    assert "pull" not in records("pull", float("nan"))[0]
    with pytest.raises(UserError, match="accuracy"):
        records("accuracy", 0.99)
