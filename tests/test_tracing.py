"""Programs that are traced: the same numbers as the functions they come from, on the CPU and without a GPU."""

from __future__ import annotations

import contextlib
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from conftest import SMALL, experiment, played, unequal_clients
from headway.data.batches import BatchPlanner, plan
from headway.engine import decompositions, selection
from headway.engine.building import build
from headway.engine.client_arrays import placed
from headway.engine.compile import _free_layouts, traced
from headway.engine.decompositions import DECOMPOSITIONS
from headway.engine.evaluation import _by_client
from headway.engine.executor import CannotExecute
from headway.engine.graphed import Graphed
from headway.engine.local_training import LocalTraining
from headway.engine.padding import stacked
from headway.engine.round import run_round
from headway.engine.selection import choose, make_executor
from headway.engine.server import initial_state
from headway.engine.states import ClientStates
from headway.engine.trial import first_rounds, round_input
from headway.errors import ClientError
from headway.methods.catalogue import METHODS
from headway.methods.method import Method
from headway.methods.spelling import method
from headway.scenario import Scenario
from headway.trees import leaves_of, stack
from headway.vectors import Vector
from methods_under_test import PROGRAMS, sampled

CPU = torch.device("cpu")


def farthest(one: Any, two: Any) -> float:
    pairs = zip(leaves_of(one), leaves_of(two), strict=True)
    return max(float((left.double() - right.double()).abs().max()) for left, right in pairs if left.numel())


def one_of_each_step() -> list[Any]:
    """The sampled methods; of those with the same objective and local training one, and the others in `make soak`."""
    seen: set[str] = set()
    names = []
    for one in sampled([*METHODS, *PROGRAMS]):
        name = one if isinstance(one, str) else one.values[0]
        built = method(name)
        step = repr((built.objective, built.local))
        names.append(pytest.param(name, marks=pytest.mark.soak) if step in seen else one)
        if one is name:
            seen.add(step)
    return names


@pytest.mark.parametrize("name", one_of_each_step())
def test_every_method_s_step_can_be_traced_for_one_client_and_for_a_stack(name: str) -> None:
    """What a captured graph replays is this list of operations; another step index than the traced one is played."""
    chosen = experiment(name, network="batch_norm_dropout")
    with chosen.arithmetic():
        given, clients = round_input(chosen), list(first_rounds(chosen, range(min(3, chosen.population))))
        states = stack([client.state for client in clients])
        together = placed(stacked([client.arrays for client in clients]), CPU)
        number = torch.tensor(1)
        for masked in (False, True):
            training = LocalTraining(chosen, functional=True, masked=masked)

            def begin(slots: Any, arrays: Any, training: Any = training) -> Any:
                return training.begin(given.message, given.buffers, slots, arrays)

            def advance(carry: Any, arrays: Any, index: Tensor, training: Any = training) -> Any:
                return training.step(carry, given.message, arrays, index, number)

            if masked:
                arrays, carry = together, vmap(begin)(states["slots"], together)
                step: Any = vmap(advance, in_dims=(0, 0, None))
            else:
                arrays = placed(clients[-1].arrays, CPU)
                carry, step = begin(clients[-1].state["slots"], arrays), advance
            program = traced(step, (carry, arrays, torch.tensor(0)), compiled=False)
            assert farthest(program(carry, arrays, torch.tensor(1)), step(carry, arrays, torch.tensor(1))) < 1e-14


def test_a_model_that_draws_by_itself_is_refused() -> None:
    def drawn(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5)

    with pytest.raises(CannotExecute, match="draws random numbers by itself"):
        traced(drawn, (torch.ones(4),), compiled=False)


def test_nothing_is_copied_only_to_change_its_layout() -> None:
    """GroupNorm asks for such copies at every layer, forwards and backwards; on a GPU they take a sixth of a step."""
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(shape, generator=generator) for shape in ((4, 3, 9, 9), (8, 3, 3, 3)))
    scale = torch.ones(8)

    def loss(weight: Tensor, scale: Tensor) -> Tensor:
        hidden = F.conv2d(x.contiguous(memory_format=torch.channels_last), weight)
        return (F.group_norm(hidden, 2, scale, scale).relu() ** 2).sum()

    given = (weight.contiguous(memory_format=torch.channels_last), scale)
    graph = make_fx(grad(loss, argnums=(0, 1)), decomposition_table=DECOMPOSITIONS)(*given)
    wanted = graph(*given)

    def copies() -> int:
        return sum(node.kwargs.get("memory_format") is torch.contiguous_format for node in graph.graph.nodes)

    assert copies() > 0
    _free_layouts(graph)
    assert copies() == 0
    assert farthest(graph(*given), wanted) < 1e-4


@pytest.mark.parametrize("shape", [(4, 8, 5, 7), (3, 8, 6), (2, 8)])
def test_group_normalisation_keeps_its_values_and_gradients(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    x, target = (torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(2))
    weight, bias = (torch.randn(8, dtype=torch.float64, generator=generator) for _ in range(2))

    def loss(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return (F.group_norm(x, 2, weight, bias) * target).sum()

    def both(*given: Tensor) -> Any:
        return loss(*given), grad(loss, argnums=(0, 1, 2))(*given)

    given = (x, weight, bias)
    assert farthest(traced(both, given, compiled=False)(*given), both(*given)) < 1e-12


@pytest.mark.parametrize(("dimensions", "biased"), [(2, True), (2, False), (1, True)])
def test_channels_of_zeros_change_no_convolution(
    dimensions: int, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decompositions, "_narrow", lambda x, how: x.shape[1] < decompositions.NARROW)
    draw = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, generator=draw)
        for shape in ((2, 3, *[9] * dimensions), (5, 3, *[3] * dimensions), (5,))
    )
    convolved = F.conv2d if dimensions == 2 else F.conv1d

    def loss(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return (convolved(x, weight, bias if biased else None, stride=2, padding=1) ** 2).sum() + bias.sum()

    def both(*given: Tensor) -> Any:
        return loss(*given), grad(loss, argnums=(0, 1, 2))(*given)

    given = (x, weight, bias)
    program = make_fx(both, decomposition_table=DECOMPOSITIONS)(*given)
    assert any("pad" in str(node.target) for node in program.graph.nodes)
    assert farthest(program(*given), both(*given)) < 1e-12


@pytest.mark.parametrize(
    ("before", "after", "kernel", "stride", "padding"),
    [(3, 6, 5, 1, 0), (6, 16, 5, 1, 2), (3, 32, 3, 1, 1), (3, 8, 3, 2, 1), (6, 6, 3, 2, 1), (8, 8, 3, 1, 1)],
)
def test_stacked_convolutions_keep_their_values_and_gradients(
    before: int, after: int, kernel: int, stride: int, padding: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, before, 9, 11, dtype=torch.float64, generator=generator)
    weight = torch.randn(3, after, before, kernel, kernel, dtype=torch.float64, generator=generator)
    bias = torch.randn(3, after, dtype=torch.float64, generator=generator)

    def loss(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return (F.conv2d(x, weight, bias, stride=stride, padding=padding) ** 2).mean()

    for wanted in ((0, 1, 2), (1, 2)):  # the first layer's input has no gradient

        def both(*given: Tensor, wanted: tuple[int, ...] = wanted) -> Any:
            return vmap(loss)(*given), vmap(grad(loss, argnums=wanted))(*given)

        given = (x, weight, bias)
        assert farthest(traced(both, given, compiled=False)(*given), both(*given)) < 1e-12


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler itself
@pytest.mark.parametrize("name", ["batched:compiled", "serial:compiled", "pool:compiled"])
def test_a_compiled_run_is_the_same_run(name: str) -> None:
    """Unequal clients in several rounds: one program serves them all."""
    chosen = experiment("fedacg", network="group_norm")
    plain = played(chosen)[1].model.theta.flat()
    executor = make_executor(name, chosen)
    progress = initial_state(chosen)
    try:
        with chosen.arithmetic():
            for number in range(1, chosen.scenario.rounds + 1):
                progress, _ = run_round(
                    chosen, progress, ClientStates(), executor, chosen.client_rounds.cohort(number), number
                )
    finally:
        executor.close()
    assert executor.name == name
    assert float((progress.theta.flat() - plain).abs().max()) < 1e-12


@pytest.mark.parametrize("name", ["serial:compiled", "pool:compiled"])
def test_a_model_that_draws_by_itself_is_not_compiled(name: str) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x * (torch.rand(x.shape[1:]) > 0.3).to(x.dtype))  # type: ignore[no-any-return]

    told: list[str] = []
    chosen = build(SMALL.changed(executor="serial"), method("fedavg"), model=Own(), **unequal_clients())
    assert choose(chosen, name, told.append).name == "serial"
    assert "draws random numbers by itself" in told[0]


class _Swapping:
    """A local rule whose memory comes back in another order than it began with."""

    def begin(self, received: Any, kept: Any, client: Any) -> Any:
        return {"a": received["model"].zeros(), "b": received["model"] * 0.5}

    def direction(self, w: Vector, gradient: Vector, memory: Any, step: Any) -> Any:
        a, b = memory["a"] * 0.9 + gradient, memory["b"] * 0.5 + gradient * 0.1
        return a + b, {"b": b, "a": a}


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["batched:compiled", "serial:compiled"])
def test_the_order_of_names_in_a_state_does_not_matter(name: str) -> None:
    chosen = experiment(Method(local=_Swapping()), network="norm_free", rounds=2)
    plain = played(chosen)[1].model.theta.flat()
    model = initial_state(chosen)
    executor = make_executor(name, chosen)
    with chosen.arithmetic():
        for number in (1, 2):
            model, _ = run_round(chosen, model, ClientStates(), executor, chosen.client_rounds.cohort(number), number)
    assert float((model.theta.flat() - plain).abs().max()) < 1e-12


def test_a_model_that_looks_at_values_runs_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long enough to compile, but it cannot be traced: the run goes on and says why."""

    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.head(x)
            return y if y.sum() > 0 else 2 * y

    monkeypatch.setattr(selection, "PAYS", 0.0)
    monkeypatch.setattr(selection, "_candidates", lambda *_: ["serial"])
    told: list[str] = []
    executor = choose(build(SMALL, method("fedavg"), model=Looking(), **unequal_clients()), "auto", told.append)
    assert executor.name == "serial"
    assert "cannot be compiled" in told[0]


def test_convolutions_over_one_dimension_can_be_traced() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(shape, generator=generator) for shape in ((4, 3, 9), (8, 3, 3)))
    given = (weight,)
    slope = grad(lambda weight: (F.conv1d(x, weight) ** 2).sum())
    assert farthest(traced(slope, given, compiled=False)(*given), slope(*given)) < 1e-4


@pytest.mark.parametrize("fault", [CannotExecute("no"), ClientError("client 3 failed")])
def test_a_trial_that_fails_leaves_nothing_open(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Failing:
        name = "batched"

        def run(self, given: Any, rounds: Any) -> Any:
            raise fault

        def close(self) -> None:
            closed.append(self.name)

    monkeypatch.setattr(selection, "make_executor", lambda name, chosen: Failing())
    with contextlib.suppress(ClientError):
        choose(experiment("fedavg"), "batched", lambda _: None)
    assert closed == ["batched"]


def test_where_compiling_fails_the_run_goes_on_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no C++ compiler\nfound")

    monkeypatch.setattr("headway.engine.compile.traced", lambda *_, **__: fail)
    monkeypatch.setattr(selection, "PAYS", 0.0)
    monkeypatch.setattr(selection, "_candidates", lambda *_: ["batched"])
    told: list[str] = []
    executor = choose(experiment("fedavg"), "auto", told.append)
    assert executor.name == "batched"
    assert told == [
        "the batched:compiled executor cannot take this model or method (it cannot be compiled: no C++ compiler)"
    ]


def test_compiling_is_tried_only_where_the_run_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def watched(name: str, chosen: Any) -> Any:
        tried.append(name)
        return make_executor(name.removesuffix(":compiled"), chosen)

    monkeypatch.setattr(selection, "make_executor", watched)
    monkeypatch.setattr(selection, "_candidates", lambda *_: ["batched"])
    for settings, names in (
        ({"rounds": 1}, ["batched"]),
        ({"rounds": 10**7}, ["batched", "batched:compiled"]),
        ({"rounds": 10**7, "deterministic": True}, ["batched"]),
    ):
        tried.clear()
        choose(experiment("fedavg", **settings), "auto", lambda _: None).close()
        assert tried == names


def test_what_is_compiled_depends_on_the_kind_of_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "cores", lambda: 4)
    linear = experiment("fedavg")
    convolving = build(Scenario(), method("fedavg"))
    assert selection._compiled(linear, "serial") == "batched:compiled"
    assert selection._compiled(convolving, "batched") == "batched:compiled"
    assert selection._compiled(convolving, "serial") == "pool:compiled"
    assert selection._compiled(convolving, "graphed:streams") == "graphed:streams:compiled"
    monkeypatch.setattr(selection, "cores", lambda: 1)
    assert selection._compiled(convolving, "serial") == "serial:compiled"


def test_graphs_need_a_gpu() -> None:
    told: list[str] = []
    chosen = experiment("fedavg")
    with pytest.raises(CannotExecute, match="CUDA device only"):
        Graphed(chosen, layout="streams")
    assert choose(chosen, "graphed", told.append).name == "serial"
    assert len(told) == 2
    assert all("CUDA device only" in line for line in told)
    assert ["one by one instead" in line for line in told] == [False, True]


@pytest.mark.parametrize("batches", ["reshuffled", "continued"])
def test_batches_made_ahead_are_those_made_in_time(batches: str) -> None:
    scenario = SMALL.changed(batches=batches)
    clients = [torch.arange(size).numpy() for size in (5, 8, 13)]
    planner = BatchPlanner(scenario, clients)
    planner.prepare(2, [2, 0])
    for client in (0, 1, 2):
        for number in (2, 3):
            wanted = plan(scenario, clients[client], scenario.seed, number, client, 4)
            given = planner.plan(client, number, 4, 0)
            assert (given.rows == wanted.rows).all()
            assert (given.counts == wanted.counts).all()


def test_vectors_have_one_arithmetic_inside_and_outside_of_transformations() -> None:
    generator = torch.Generator().manual_seed(0)
    one, two = (
        Vector({"a": torch.randn(3, 2, generator=generator), "b": torch.randn(4, generator=generator)})
        for _ in range(2)
    )

    def arithmetic(first: Vector, second: Vector, factor: Tensor) -> tuple[Vector, Tensor]:
        result = factor * first + second - 0.25 * first
        return result, result.norm()

    inside = vmap(arithmetic)(stack([one, two]), stack([two, one]), torch.tensor([2.0, 3.0]))
    for place, (first, second, factor) in enumerate([(one, two, 2.0), (two, one, 3.0)]):
        vector, norm = arithmetic(first, second, torch.tensor(factor))
        assert all(torch.equal(leaf, inside[0].leaves[name][place]) for name, leaf in vector.leaves.items())
        assert torch.allclose(norm, inside[1][place])


def test_a_copy_that_a_model_writes_into_stays_a_copy() -> None:
    """`contiguous` copies go where only the layout changes; here the copy is changed and the original read again."""

    def both(x: Tensor) -> Tensor:
        turned = x.transpose(0, 1)
        return F.relu(turned.contiguous(), inplace=True) + turned

    x = torch.arange(-3.0, 3.0).reshape(2, 3)
    kept = x.clone()
    assert torch.equal(traced(both, (x,), compiled=False)(x), both(kept.clone()))
    assert torch.equal(x, kept)


def test_a_scalar_parameter_is_trained_like_any_other() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.scale = nn.Linear(6, 3), nn.Parameter(torch.tensor(1.0))

        def forward(self, x: Tensor) -> Tensor:
            scaled: Tensor = self.scale * self.inner(x)
            return scaled

    chosen = build(SMALL, method("fedacg"), model=Scaled(), **unequal_clients())
    ends = [played(chosen, executor)[1].model.theta for executor in ("serial", "batched")]
    assert float(ends[0].leaves["scale"]) != 1.0
    assert farthest(*ends) < 1e-12


def test_clients_are_judged_by_classes_that_have_test_samples() -> None:
    mixes = np.array([[0.5, 0.5, 0.0], [0.2, 0.0, 0.8], [0.0, 0.0, 1.0]])
    correct, labels = np.array([True, False, True, True]), np.array([0, 0, 1, 1])
    assert np.allclose(_by_client(mixes, correct, labels), [0.75, 0.5])


def test_only_some_test_samples_are_evaluated_where_that_is_asked() -> None:
    module = nn.Linear(6, 3)
    few = build(SMALL.changed(eval_samples=7), method("fedavg"), model=module, **unequal_clients())
    assert len(few.federation.test) == len(few.test) == 7
    assert torch.equal(
        few.federation.test.x[-1].double(),
        build(SMALL, method("fedavg"), model=module, **unequal_clients()).federation.test.x[-1].double(),
    )
