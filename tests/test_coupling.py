"""Networks whose samples change each other: no executor lets rows that only fill a batch reach them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import COMPILED, EXECUTORS, NETWORKS, OTHERS, SMALL, distance, experiment, unequal_clients
from coupled_networks import COUPLED, averaged_by_hand, coupled_experiment
from headway.engine import coupling, selection
from headway.engine.batched import alike
from headway.engine.building import build
from headway.engine.executor import Executor
from headway.engine.experiment import Experiment
from headway.engine.selection import choose, make_executor
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods.method import Method
from headway.methods.spelling import method
from methods_under_test import EVERY, sampled


def ended(chosen: Experiment, executor: Executor, store: ClientStates | None = None) -> Any:
    try:
        return list(simulate(chosen, executor, store or ClientStates(), begin(chosen)))[-1][1]
    finally:
        executor.close()


def numbers(model: Any) -> dict[str, Tensor]:
    return {**model.theta.leaves, **model.buffers}


@pytest.mark.parametrize("executor", [*EXECUTORS, *COMPILED])
@pytest.mark.parametrize("network", list(COUPLED))
def test_a_network_that_couples_samples_ends_as_in_a_plain_loop(network: str, executor: str) -> None:
    chosen = coupled_experiment(network=network)
    end = ended(chosen, make_executor(executor, chosen))
    by_hand, found = averaged_by_hand(chosen), numbers(end.model)
    assert by_hand.keys() == found.keys()
    assert distance({name: by_hand[name] for name in found}, found) < 1e-10


def agrees(chosen: Experiment, executor: str) -> None:
    """Model, buffers, server state and client states are serial's, which is held to a plain loop above."""
    mine, theirs = ClientStates(), ClientStates()
    end, other = (
        ended(chosen, make_executor("serial", chosen), mine),
        ended(chosen, make_executor(executor, chosen), theirs),
    )
    for part in ("theta", "buffers", "server"):
        assert distance(getattr(end.model, part), getattr(other.model, part)) < 1e-10
    assert mine.states.keys() == theirs.states.keys()
    assert all(distance(mine.states[client], theirs.states[client]) < 1e-10 for client in mine.states)


SAMPLE = ("fedacg", "scaffold", "mimelite", "moon", "fedmlb", "feddecorr", "gradma")


@pytest.mark.parametrize("name", SAMPLE)
def test_methods_agree_where_samples_are_coupled(name: str) -> None:
    agrees(coupled_experiment(EVERY[name], rounds=1), "batched")


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("executor", [*OTHERS, *COMPILED])
@pytest.mark.parametrize("name", sampled(EVERY))
def test_every_method_agrees_in_every_executor_where_samples_are_coupled(name: str, executor: str) -> None:
    agrees(coupled_experiment(EVERY[name]), executor)


CASES: dict[str, dict[str, Any]] = {
    "few steps": {"steps": 2},
    "a stream of batches": {"batches": "continued", "steps": 5, "rounds": 3},
    "stragglers": {"dropout": 0.5, "stragglers": "partial"},
    "a client twice in a round": {"sampling": "replacement", "participation": 0.9},
    "their own statistics": {"buffers": "keep-local"},
}


@pytest.mark.parametrize("case", list(CASES))
def test_rounds_of_all_kinds_agree_where_samples_are_coupled(case: str) -> None:
    agrees(coupled_experiment("mimelite" if case == "stragglers" else "scaffold", **CASES[case]), "batched")


def test_only_clients_with_batches_of_equal_sizes_are_stacked() -> None:
    """Of 3, 17, 8, 6, 6 and 11 samples in batches of 4: those of 8 have the first four batches of those of 17."""
    chosen = coupled_experiment("fedavg")
    rounds = selection._Contest(chosen, timed=True).rounds
    assert sorted(map(sorted, alike(rounds))) == [[0], [1, 2], [3, 4], [5]]
    whole = selection._Contest(coupled_experiment("mimelite"), timed=True).rounds
    assert sorted(map(sorted, alike(whole))) == [[0], [1], [2], [3, 4], [5]]


# ── What is found ────────────────────────────────────────────────────────────────────────────────────────────────────


class Careless:
    """A term that does not read `batch.weight`."""

    adds = True

    def value(self, w: Any, output: Any, memory: Any, step: Any) -> Tensor:
        return output.logits.mean(0).square().sum()  # type: ignore[no-any-return]


class Taught:
    """A frozen teacher that couples samples: its term is a mean over the samples, and yet hears of the others."""

    adds = True

    def value(self, w: Any, output: Any, memory: Any, step: Any) -> Tensor:
        taught = (step.batch.x - step.batch.x.mean(0))[:, :3]
        return step.batch.mean((output.logits - taught).square().sum(1))  # type: ignore[no-any-return]


class Looking:
    """A local rule that looks at the batch."""

    def direction(self, w: Any, gradient: Any, memory: Any, step: Any) -> Any:
        return gradient * step.batch.x.mean(), memory


class Adapted(nn.Module):
    """LoRA: a frozen layer and a product of two thin ones, of which the second begins at 0."""

    def __init__(self, centred: bool) -> None:
        super().__init__()
        self.base, self.first, self.second = nn.Linear(6, 3), nn.Linear(6, 2), nn.Linear(2, 3, bias=False)
        self.base.requires_grad_(False)
        nn.init.zeros_(self.second.weight)
        self.centred = centred

    def forward(self, x: Tensor) -> Tensor:
        thin = self.first(x)
        return self.base(x) + self.second(thin - thin.mean(0) if self.centred else thin)  # type: ignore[no-any-return]


class Dropping(nn.Module):
    """Draws from torch's own generator, so that a second layer draws other numbers after a longer batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        dropped = x * (torch.rand_like(x) > 0.5)
        return self.inner(dropped) * (torch.rand(len(x), 3) > 0.5)  # type: ignore[no-any-return]


class Single(nn.Module):
    """Cannot be run in float64."""

    def __init__(self, centred: bool) -> None:
        super().__init__()
        self.inner, self.fixed, self.centred = nn.Linear(6, 3), torch.eye(6), centred

    def forward(self, x: Tensor) -> Tensor:
        x = x @ self.fixed
        return self.inner(x - x.mean(0) if self.centred else x)  # type: ignore[no-any-return]


class Looked(nn.Module):
    """Behaves otherwise in batches of more than three."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x - x.mean(0) if len(x) > 3 else x)  # type: ignore[no-any-return]


def own(model: nn.Module, **settings: Any) -> Experiment:
    return build(SMALL.changed(**settings), method("fedavg"), model=model, **unequal_clients())


FOUND: dict[str, tuple[Any, str]] = {
    "a term": (lambda: experiment(Method(objective=Careless())), "the loss"),
    "a teacher": (lambda: experiment(Method(objective=Taught())), "the loss"),
    "a local rule": (lambda: experiment(Method(local=Looking())), "the local rule's direction"),
    "an adapter that begins at 0": (lambda: own(Adapted(True)), "the outputs"),
    "draws": (lambda: own(Dropping()), "the outputs"),
    "float32 only": (lambda: own(Single(True), precision="fp32"), "the outputs"),
    "large batches": (lambda: own(Looked()), "the outputs"),
    **{name: (lambda name=name: coupled_experiment(network=name), "the") for name in COUPLED},
}


@pytest.mark.parametrize("case", list(FOUND))
def test_what_couples_samples_is_found(case: str) -> None:
    make, what = FOUND[case]
    assert make().coupling.startswith(f"filler rows change {what}")


FREE: dict[str, Any] = {
    "an adapter": lambda: own(Adapted(False)),
    "float32 only": lambda: own(Single(False), precision="fp32"),
    **{name: lambda name=name: experiment("feddecorr", name) for name in NETWORKS},
    "half precision": lambda: experiment("gradma-w", "batch_norm_dropout", precision="bf16"),
}


@pytest.mark.parametrize("case", list(FREE))
def test_where_nothing_couples_samples_nothing_is_found(case: str) -> None:
    assert FREE[case]().coupling == ""


def test_what_cannot_be_looked_into_counts_as_coupled() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            assert len(x) == 2, "not today"
            return self.inner(x) * torch.nan  # type: ignore[no-any-return]

    assert own(Failing()).coupling == "what filler rows change could not be seen: AssertionError, not today"


def test_looking_takes_no_random_numbers_and_about_two_passes_of_a_batch() -> None:
    rows: list[int] = []

    class Counting(Dropping):
        def forward(self, x: Tensor) -> Tensor:
            rows.append(len(x))
            return nn.functional.relu(self.inner(x))

    chosen = build(
        SMALL.changed(batch_size=64), method("fedavg"), model=Counting(), **unequal_clients((70, 90, 100, 10))
    )
    before, parameters = torch.get_rng_state(), chosen.network.parameters.copy()
    rows.clear()
    assert chosen.coupling == ""
    assert torch.equal(torch.get_rng_state(), before)
    assert distance(chosen.network.parameters, parameters) == 0
    assert sum(rows) <= 2 * 64 + 10 * coupling.SAMPLES


@pytest.mark.parametrize(("sizes", "spelled"), [((4, 8, 12, 4), "fedavg"), ((8, 8), "mimelite"), ((3, 3), "fedavg")])
def test_nothing_is_looked_into_where_no_batch_is_short(
    sizes: tuple[int, ...], spelled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coupling, "found", lambda *_: pytest.fail("looked"))
    module = COUPLED["batch norm by hand"]()
    assert build(SMALL, method(spelled), model=module, **unequal_clients(sizes)).coupling == ""


# ── What is done and said ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("asked", ["serial", "pool", "batched", "auto"])
def test_an_executor_that_fills_no_batch_says_so_once(asked: str) -> None:
    told: list[str] = []
    chosen = coupled_experiment()
    executor = choose(chosen, asked, told.append)
    executor.close()
    said = [
        "the rows of a batch change each other in this model or method (filler rows change the outputs), so no batch "
        "is filled: only clients whose batches are equally large are stacked"
    ]
    assert executor.name == asked or asked == "auto"
    assert told == (said if executor.name == "batched" else [])
    assert ("coupling" in vars(chosen)) == (asked in ("batched", "auto"))


def test_a_captured_executor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "runs_on", lambda *_: True)
    with pytest.raises(
        UserError, match=r"'graphed', which fills short batches, but .* use batched, serial or auto, or"
    ):
        choose(coupled_experiment(executor="graphed"), "graphed", lambda _: None)


def test_auto_leaves_captured_executors_out(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = coupled_experiment()
    assert chosen.coupling
    object.__setattr__(chosen, "device", torch.device("cuda"))
    assert selection._candidates(chosen, "auto") == ["batched", "serial"]


class Squeezing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).squeeze()  # type: ignore[no-any-return]


@pytest.mark.parametrize("executor", ["serial", "batched"])
def test_a_last_batch_of_one_sample_may_lose_its_axis(executor: str) -> None:
    """17 samples in batches of 4. Each client's update is that of a model which keeps the axis."""
    given = unequal_clients((17, 5))
    given = {"clients": [(x, y.astype(float)) for x, y in given["clients"]], "test": given["test"]}
    given["test"] = (given["test"][0], given["test"][1].astype(float))
    ends = []
    for model in (Squeezing(), nn.Linear(6, 1)):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(0.1)
        chosen = build(SMALL.changed(participation=1.0), method("fedavg"), model=model, **given)
        ends.append(ended(chosen, make_executor(executor, chosen)).model.theta.flat())
    assert torch.allclose(*ends, rtol=0, atol=1e-12)
