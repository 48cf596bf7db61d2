"""The graphed executor's own logic without a GPU: streams and events do nothing, and a graph is its function again.

What the device itself does with graphs was compared on one (docs/performance.md); here seats, packing, waves, groups
and what is kept are held to serial's numbers for every method.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from conftest import NETWORKS, SMALL, distance, experiment, played, unequal_clients
from coupled_networks import COUPLED, coupled_experiment
from headway import random
from headway.engine import captured, evaluation, graphed
from headway.engine.building import build
from headway.engine.client_arrays import HostArrays
from headway.engine.client_rounds import Turn
from headway.engine.compile import traced
from headway.engine.executor import CannotExecute
from headway.engine.experiment import Experiment
from headway.engine.graphed import Graphed
from headway.engine.padding import stacked
from headway.engine.pinned import PinnedArrays
from headway.engine.selection import make_executor
from headway.engine.serial import Serial
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.engine.trial import first_rounds
from headway.methods.method import Method
from headway.methods.slots import Uploads
from headway.methods.spelling import method
from headway.random import built
from headway.vectors import Vector
from methods_under_test import EVERY, sampled

LAYOUTS = ("streams", "stacked")


class Nothing:
    """A stream or an event."""

    def wait_stream(self, other: Any) -> None: ...
    def synchronize(self) -> None: ...
    def record(self) -> None: ...


class Again:
    """A graph."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.replay = function


def _captured(function: Callable[[], Any], stream: Any, before: Any = lambda: None, warm_up: int = 2) -> Again:
    for _ in range(warm_up):
        before()
        function()
    return Again(function)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphed, "_check_device", lambda device: None)
    monkeypatch.setattr(captured, "new_stream", Nothing)
    monkeypatch.setattr(captured, "captured", _captured)
    monkeypatch.setattr(captured, "traced", lambda function, arguments, **how: function)
    monkeypatch.setattr(torch.cuda, "current_stream", Nothing)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", Nothing)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)


def graphs(chosen: Experiment, layout: str, store: ClientStates) -> tuple[list[dict[str, Any]], Any]:
    executor = Graphed(chosen, layout=layout)
    rounds_played = list(simulate(chosen, executor, store, begin(chosen)))
    return [record for record, _ in rounds_played], rounds_played[-1][1]


def agrees(chosen: Experiment, layout: str) -> None:
    mine, theirs = ClientStates(), ClientStates()
    reference, end = played(chosen, "serial", mine)
    records, other = graphs(chosen, layout, theirs)
    for part in ("theta", "buffers", "server"):
        assert distance(getattr(end.model, part), getattr(other.model, part)) < 1e-10
    assert mine.states.keys() == theirs.states.keys()
    assert all(distance(mine.states[client], theirs.states[client]) < 1e-10 for client in mine.states)
    for one, two in zip(reference, records, strict=True):
        assert one["train_loss"] == pytest.approx(two["train_loss"], abs=1e-10)
        for key in ("clients", "bytes_up", "bytes_down", "steps", "samples", "accuracy"):
            assert one[key] == two[key]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", sampled(EVERY))
def test_every_method_is_serial_s(name: str, layout: str) -> None:
    agrees(experiment(EVERY[name], "batch_norm_dropout"), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["fedacg", "scaffold"])
def test_the_clients_updates_are_serial_s(name: str, layout: str) -> None:
    """Also where a cohort is trained in several groups, each written over the one before."""
    chosen = experiment(name, participation=1.0)
    hands = [Serial(chosen), Graphed(chosen, layout=layout)]
    every = [
        [end.updates for _, end in simulate(chosen, hand, ClientStates(), begin(chosen), watched=True)]
        for hand in hands
    ]
    for one, other in zip(*every, strict=True):
        assert one is not None
        assert other is not None
        assert one.clients == other.clients
        assert other.norms == pytest.approx(one.norms, abs=1e-10)
        assert other.cosines == pytest.approx(one.cosines, abs=1e-10)
        assert other.pairwise == pytest.approx(one.pairwise, abs=1e-10)


CASES: dict[str, dict[str, Any]] = {
    "a client twice in a round": {"sampling": "replacement", "participation": 0.9},
    "one step": {"steps": 1},
    "stragglers": {"dropout": 0.5, "stragglers": "partial", "participation": 1.0},
    "nobody in some rounds": {"sampling": "bernoulli", "participation": 0.2},
    "more steps than one graph holds": {"steps": captured.STEPS_IN_ONE_GRAPH + 3},
    "a stream of batches": {"batches": "continued"},
    "their own statistics": {"buffers": "keep-local"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("name", ["fedacg", "scaffold"])
def test_rounds_of_all_kinds_are_serial_s(name: str, case: str, layout: str) -> None:
    agrees(experiment(name, "batch_norm_dropout", **CASES[case]), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_couples_samples_is_refused_where_batches_are_short(layout: str) -> None:
    with pytest.raises(CannotExecute, match="batches are filled to one shape"):
        make_executor(f"graphed:{layout}", coupled_experiment())
    module = COUPLED["batch norm by hand"]()
    agrees(build(SMALL, method("fedavg"), model=module, **unequal_clients((8, 16, 4, 24, 8, 4))), layout)


def test_samples_that_are_scored_jointly_are_scored_with_those_of_serial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 14, 14 and 12: none is filled with other samples."""

    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x - x.mean(0))

    monkeypatch.setitem(evaluation.CHUNK, "cpu", 14)
    chosen = build(SMALL.changed(rounds=1), method("fedavg"), model=Centred(), **unequal_clients((8, 16, 4, 24)))
    found, reference = graphs(chosen, "stacked", ClientStates())[0][-1], played(chosen)[0][-1]
    assert found["loss"] == pytest.approx(reference["loss"], abs=1e-12)


class Masked(nn.Module):
    """With an infinite buffer, as a causal mask is."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)
        self.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_infinite_buffer_stays_as_it_is_where_seats_are_empty(layout: str) -> None:
    scenario = SMALL.changed(sampling="bernoulli", participation=0.5, rounds=8)
    chosen = build(scenario, method("fedavg"), model=Masked(), **unequal_clients())
    assert len({len(chosen.sampling.draw(number)) for number in range(1, 9)}) > 1
    _, end = graphs(chosen, layout, ClientStates())
    assert torch.equal(end.model.buffers["mask"], torch.full((3, 3), -torch.inf, dtype=torch.float64).triu(1))


@dataclass(frozen=True)
class Remembering:
    """A local rule that keeps the last point, itself or as a view of it."""

    viewed: bool

    def begin(self, received: Any, kept: Any, client: Any) -> dict[str, Vector]:
        return {"before": received["model"]}

    def direction(self, w: Vector, gradient: Vector, memory: Any, step: Any) -> tuple[Vector, dict[str, Vector]]:
        keep = w.map(torch.detach) if self.viewed else w
        return gradient - 3.0 * (w - memory["before"]), {"before": keep}


@dataclass(frozen=True)
class Swapping:
    """A local rule whose two vectors change places in every step."""

    def begin(self, received: Any, kept: Any, client: Any) -> dict[str, Vector]:
        return {"one": received["model"], "other": received["model"].zeros()}

    def direction(self, w: Vector, gradient: Vector, memory: Any, step: Any) -> tuple[Vector, dict[str, Vector]]:
        return gradient + 0.3 * memory["other"], {"one": memory["other"], "other": memory["one"]}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rule", [Remembering(False), Remembering(True), Swapping()], ids=str)
@pytest.mark.parametrize("through", ["the function itself", "a traced program"])
def test_a_slot_may_return_what_it_was_given(
    rule: Any, layout: str, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if through == "a traced program":
        monkeypatch.setattr(captured, "traced", lambda function, given, **how: traced(function, given, compiled=False))
    agrees(experiment(Method(local=rule, name="own"), rounds=2), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cohort_larger_than_the_seats_goes_in_groups(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "AT_ONCE", dict.fromkeys(LAYOUTS, 2))
    agrees(experiment("feddyn", participation=0.84), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_next_round_is_taken_in_where_clients_keep_nothing(layout: str) -> None:
    """Packed before its turn, and not again at its turn; where clients keep something, nothing is."""
    packed: list[list[tuple[int, int]]] = []
    taken_in: list[int] = []

    class Counted(PinnedArrays):
        def _write(self, arrays: Any, weights: Any) -> None:
            packed.append(sorted(tuple(words) for words in np.array(arrays["key"]).tolist()))
            super()._write(arrays, weights)

        def expect(self, turn: Turn, arrays: HostArrays) -> None:
            taken_in.append(turn.round)
            super().expect(turn, arrays)

    for name, taken in (("fedacg", 3), ("scaffold", 0)):
        chosen = experiment(name, rounds=4)
        taken_in.clear()
        packed.clear()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(captured, "PinnedArrays", Counted)
            assert len(graphs(chosen, layout, ClientStates())[0]) == 4
        assert len(taken_in) == taken
        assert len(packed) == 4 + 1  # the first round is packed once more to open the hall
        assert packed[1:] == [
            sorted(
                random.key(chosen.scenario.seed, "client", n, client)
                for client in chosen.client_rounds.cohort(n).clients
            )
            for n in (1, 2, 3, 4)
        ]


@pytest.mark.parametrize("name", ["fedacg", "mimelite"])
@pytest.mark.parametrize(
    "settings", [{}, {"rate_decay_epoch": 0.7, "epochs": 3}, {"steps": 5, "rate_decay": 0.9}], ids=str
)
def test_tasks_made_together_are_those_made_one_by_one(name: str, settings: dict[str, Any]) -> None:
    chosen = experiment(name, participation=1.0, **settings)
    clients = range(chosen.population)
    assert len(set(chosen.federation.sizes)) > 1
    one_by_one = [client.arrays for client in first_rounds(chosen, clients, round=3)]
    wanted = stacked(one_by_one, chosen.shapes)
    turn, found = chosen.client_rounds.stacked(3, room=10)
    assert turn.clients == tuple(clients)
    assert bool(wanted.whole.size) == (name == "mimelite")
    for field, array in vars(wanted).items():
        assert getattr(found, field).dtype == array.dtype
        assert np.array_equal(getattr(found, field), array)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_server_may_keep_what_it_was_given(layout: str) -> None:
    """A mean that was handed out is a value: the next round is not written over it."""
    histories: list[list[Vector]] = [[], []]

    def played_with(history: list[Vector], executor: Any) -> None:
        def server(model: Vector, uploads: Uploads) -> Vector:
            history.append(uploads.mean["delta"])
            return model + uploads.mean["delta"]

        chosen = experiment(Method(server=server), participation=1.0)
        list(simulate(chosen, executor(chosen), ClientStates(), begin(chosen)))

    played_with(histories[0], lambda chosen: Serial(chosen))
    played_with(histories[1], lambda chosen: Graphed(chosen, layout=layout))
    assert len(histories[0]) == len(histories[1]) > 1
    assert all(distance(one, two) < 1e-10 for one, two in zip(*histories, strict=True))


def replayed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples each captured evaluation scores, as they are replayed."""
    sizes: list[int] = []
    replay = captured.CapturedEvaluation.replay

    def counted(one: Any, given: tuple[Any, ...]) -> Any:
        sizes.append(len(given[2]))
        return replay(one, given)

    monkeypatch.setattr(captured.CapturedEvaluation, "replay", counted)
    return sizes


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_kind_of_samples_has_its_own_graph(monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    """Training samples that are bytes, test samples that are numbers, and chunks of other lengths."""
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 256, (40, 6), dtype=np.uint8), draw.integers(0, 3, 40)
    clients = [(x[:20], y[:20]), (x[20:], y[20:])]
    chosen = build(
        SMALL.changed(rounds=2, global_loss=True),
        method("fedavg"),
        model=built(NETWORKS["norm_free"], 7, "test"),
        clients=clients,
        test=(x[:13] / np.float32(255), y[:13]),
    )
    sizes = replayed(monkeypatch)
    monkeypatch.setitem(evaluation.CHUNK, "cpu", 20)
    found, reference = graphs(chosen, layout, ClientStates())[0][-1], played(chosen)[0][-1]
    assert sizes == [13, 20, 20] * 2
    for name in ("loss", "global_loss"):
        assert found[name] == pytest.approx(reference[name], abs=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_test_set_is_scored_in_whole_chunks(monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    """Only what was captured for: the last chunk begins among the samples before it, which count once."""
    chosen = experiment("fedavg", rounds=1)
    count = len(chosen.test)
    reference = played(chosen)[0][-1]
    sizes = replayed(monkeypatch)
    for chunk, calls in ((count // 2 - 1, 3), (count, 1), (count + 5, 1)):
        monkeypatch.setitem(evaluation.CHUNK, "cpu", chunk)
        sizes.clear()
        found = graphs(chosen, layout, ClientStates())[0][-1]
        assert sizes == [-(-count // calls)] * calls
        for name in ("loss", "accuracy", "client_accuracy_std", "client_accuracy_low"):
            assert found[name] == pytest.approx(reference[name], abs=1e-12)


@pytest.mark.parametrize("buffers", ["average", "keep-local"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_clients_are_judged_by_captured_passes_over_their_own_samples(
    monkeypatch: pytest.MonkeyPatch, layout: str, buffers: str
) -> None:
    """Beside those over the test and the training set; with their own statistics the passes are not captured."""
    chosen = experiment("fedavg", "batch_norm_dropout", client_test=0.25, global_loss=True, buffers=buffers, rounds=2)
    scored = replayed(monkeypatch)
    found, reference = graphs(chosen, layout, ClientStates())[0][-1], played(chosen)[0][-1]
    held = sum(map(len, chosen.split.client_tests.rows))  # type: ignore[union-attr]
    assert scored == ([40, 68, held] * 2 if buffers == "average" else [])
    assert found["client_scores"] == "measured"
    for name in ("client_mean", "client_std", "client_worst", "client_quantiles"):
        assert found[name] == pytest.approx(reference[name], abs=1e-12)
