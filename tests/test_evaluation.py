"""What scores depend on, and what they must not: chunks, executors, classes that nobody has, types of samples."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import headway as hw
from conftest import EXECUTORS, NETWORKS, SMALL, experiment, played, unequal_clients
from headway.data.federation import Federation
from headway.engine import evaluation
from headway.engine.building import build
from headway.engine.evaluation import evaluate
from headway.engine.serial import Serial
from headway.engine.server import initial_state
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.errors import Diverged, UserError
from headway.methods.slots import State, Uploads
from headway.random import built
from headway.runs.export import export
from headway.runs.folder import failure
from headway.vectors import Vector


@pytest.mark.parametrize("buffers", ["average", "keep-local"])
def test_a_model_that_is_handed_over_scores_as_recorded(buffers: str) -> None:
    given = unequal_clients()
    model = built(NETWORKS["batch_norm_dropout"], 7, "test")
    result = hw.simulate("fedavg", model=model, rounds=3, buffers=buffers, executor="serial", precision="fp64", **given)
    x, y = given["test"]
    with torch.no_grad():
        logits = result.model.eval()(torch.from_numpy(x))
    right = (logits.argmax(1).numpy() == y).mean()
    assert result.records[-1]["accuracy"] == pytest.approx(right)
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(y))
    assert result.records[-1]["loss"] == pytest.approx(float(loss), rel=1e-12)


def test_where_samples_share_statistics_the_device_s_chunk_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are then the same everywhere, and as equal as can be: nobody is normalised by itself."""
    chosen = experiment("fedavg", "batch_norm_dropout", buffers="keep-local")
    scored: list[int] = []

    class Own:
        def score(self, *given: Any) -> Any:
            raise AssertionError("samples of other chunks would be among these")

    score = evaluation.score_samples
    monkeypatch.setattr(
        evaluation, "score_samples", lambda one, w, b, x, y: scored.append(len(x)) or score(one, w, b, x, y)
    )
    monkeypatch.setitem(evaluation.CHUNK, "cpu", 39)
    own: Any = Own()
    assert evaluate(chosen, initial_state(chosen), own) == evaluate(chosen, initial_state(chosen))
    assert scored == [20, 20] * 2


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
    chosen = experiment("fednag", rounds=4, eval_every=3)
    stands = [progress for _, progress in simulate(chosen, Serial(chosen), ClientStates(), begin(chosen))]
    assert stands[1].output(chosen) is stands[1].model
    assert stands[2].output(chosen) is stands[2].best


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
        return played(experiment(hw.Method(server=telling(name, number)), rounds=1))[0]

    assert records("pull", 0.5)[0]["pull"] == 0.5
    assert "pull" not in records("pull", float("nan"))[0]
    with pytest.raises(UserError, match="accuracy"):
        records("accuracy", 0.99)


# What is not finite has no score.


class Overflowing(nn.Module):
    """A linear model whose evaluation multiplies its answer by a number that training never uses."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.linear, self.factor = nn.Linear(4, 3), factor

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x)
        return logits if self.training else logits * self.factor * self.factor


def _given(classes: int = 3) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(60, 4, generator=draw), torch.arange(60) % classes
    return {"clients": [(x[:20], y[:20]), (x[20:], y[20:])], "test": (x[:12].clone(), y[:12])}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_samples_that_are_not_finite_are_refused_and_not_scored(executor: str) -> None:
    """A NaN that came after the data was bound is not an answer of class 0: round, set and first sample are named."""
    chosen = build(SMALL.changed(rounds=1), hw.method("fedavg"), model=nn.Linear(4, 3), **_given())
    chosen.federation.test.x[7:, 1] = torch.nan
    with pytest.raises(UserError, match=r"^round 1: in the test set the inputs of 5 of 12 samples") as refusal:
        played(chosen, executor)
    assert "(the first is number 7)" in str(refusal.value)
    assert not isinstance(refusal.value, Diverged), "no other rate would help"


@pytest.mark.parametrize("executor", EXECUTORS)
def test_finite_weights_that_overflow_in_evaluation_are_a_divergence(executor: str) -> None:
    chosen = build(SMALL.changed(rounds=1), hw.method("fedavg"), model=Overflowing(1e200), **_given())
    with pytest.raises(Diverged, match=r"^round 1: in the test set the model's outputs are not finite for 12 of 12"):
        played(chosen, executor)


def test_a_round_that_cannot_be_scored_leaves_a_run_folder_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="round 1: in the test set"):
        hw.simulate("fedavg", SMALL.changed(rounds=2), model=Overflowing(1e200), out=tmp_path / "run", **_given())
    assert "outputs are not finite" in str(failure(tmp_path / "run"))
    assert hw.load_run(tmp_path / "run", model=Overflowing(1e200), **_given()).records == []


def test_what_else_is_not_finite_is_named() -> None:
    """Targets, the clients' own data, a loss of finite answers; where samples share statistics, only the guilty."""

    given = _given()
    x, y = given["test"]

    def told(model: nn.Module, given: dict[str, Any], damage: Callable[[Federation], None], **settings: Any) -> str:
        """What is said of data that was sound when it was bound."""
        started = _started(model, copy.deepcopy(given), **settings)
        damage(started[0].federation)
        with pytest.raises(UserError) as refusal:
            evaluate(*started, None, 4)
        return str(refusal.value)

    def some_targets(federation: Federation) -> None:
        federation.test.y[y == 2] = torch.inf

    def far_targets(federation: Federation) -> None:
        federation.test.y.fill_(1e200)

    def a_client_s_input(federation: Federation) -> None:
        federation.train.x[3] = torch.nan

    def a_test_input(federation: Federation) -> None:
        federation.test.x[3] = torch.nan

    numbers = {"clients": [(x, y.double()), (x, y.double())], "test": (x, y.double())}
    assert told(nn.Linear(4, 1), numbers, some_targets).startswith(
        "round 4: in the test set the targets of 4 of 12 samples"
    )
    assert told(nn.Linear(4, 1), numbers, far_targets).startswith(
        "round 4: in the test set the loss is not finite for 12 of 12"
    )
    theirs = {"clients": [(x, y), (x, y)], "test": (x, y)}
    assert told(nn.Linear(4, 3), theirs, a_client_s_input, global_loss=True).startswith(
        "round 4: in the clients' data the inputs of 1 of 24 samples (the first is number 3)"
    )
    joint = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    assert told(joint, theirs, a_test_input, buffers="keep-local").startswith(
        "round 4: in the test set the inputs of 1 of 12 samples (the first is number 3)"
    )


def _started(model: nn.Module, given: dict[str, Any], **settings: Any) -> Any:
    chosen = build(SMALL.changed(**settings), hw.method("fedavg"), model=model, **given)
    return chosen, initial_state(chosen)


class Masked(nn.Module):
    """Class 2 is ruled out by a logit of −∞."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).masked_fill(torch.arange(3) == 2, -torch.inf)


def test_a_class_that_a_model_rules_out_is_scored_unless_it_is_the_true_one() -> None:
    with torch.no_grad():
        assert np.isfinite(evaluate(*_started(Masked(), _given(classes=2))).loss)
        with pytest.raises(Diverged, match="outputs are not finite for 4 of 12"):
            evaluate(*_started(Masked(), _given(classes=3)))


@pytest.mark.parametrize(("precision", "dtype"), [("fp64", torch.float64), ("fp32", torch.float32)])
@pytest.mark.parametrize("given", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_model_that_is_handed_over_has_the_run_s_type(
    precision: str, dtype: torch.dtype, given: torch.dtype, tmp_path: Path
) -> None:
    """Also its buffers, also exported: what a run computed is neither rounded nor pretended. bf16 runs keep float32."""
    module = built(NETWORKS["batch_norm_dropout"], 7, "test").to(given)
    data = unequal_clients()
    settings = SMALL.changed(rounds=1, precision=precision, executor="serial")
    result = hw.simulate("fedavg", settings, model=module, out=tmp_path / "run", **data)
    state = result.model.state_dict()
    assert {tensor.dtype for tensor in state.values() if tensor.is_floating_point()} == {dtype}
    assert {leaf.dtype for leaf in module.parameters()} == {given}, "the user's own is left as it was"
    loaded = hw.load_run(tmp_path / "run", model=module, **data).model.state_dict()
    assert all(torch.equal(state[name], loaded[name]) for name in state)
    x, y = (torch.as_tensor(part) for part in data["test"])
    with torch.no_grad():
        loss = float(nn.functional.cross_entropy(result.model.eval()(x.to(dtype)), y))
    assert loss == pytest.approx(result.records[-1]["loss"], rel=1e-12 if precision == "fp64" else 1e-5)


@pytest.mark.parametrize(("precision", "dtype"), [("fp64", torch.float64), ("bf16", torch.float32)])
def test_an_exported_model_has_the_run_s_type(precision: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Of a model of Headway's, which is made in float32; a bf16 run's weights are float32."""
    hw.simulate("fedavg", rounds=1, steps=1, clients=4, model="mlp", precision=precision, out=tmp_path / "run")
    state = load_file(export(tmp_path / "run", tmp_path / "model.safetensors"))
    assert {tensor.dtype for tensor in state.values()} == {dtype}
