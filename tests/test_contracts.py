"""What holds for every entry of the catalogue: a new method is tested the day it is listed."""

from __future__ import annotations

import dataclasses
import inspect
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from conftest import experiment as any_experiment
from conftest import played
from headway.engine.cost import cost
from headway.engine.experiment import Experiment
from headway.engine.serial import Serial
from headway.engine.server import initial_state
from headway.engine.simulation import simulate
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods import objective
from headway.methods.arguments import Among, ranges
from headway.methods.catalogue import METHODS, MODIFIERS
from headway.methods.spelling import defaults, method
from headway.methods.wire import Wire
from headway.runs.checkpoint import Checkpoint
from headway.trees import copied, leaves_of, nbytes
from headway.vectors import Vector
from methods_under_test import PROGRAMS

NAMES = list(METHODS)
SPELLED = [*NAMES, *PROGRAMS]
RATES = {"local-adamw": 0.01, "local-muon": 0.01, "diloco": 0.01, "snoo": 0.01}
"""The local rate of methods whose clients do not step by a gradient."""
SLOPED = [name for name in objective.__all__ if hasattr(getattr(objective, name), "slope")]


def experiment(name: str, network: str = "norm_free", **settings: Any) -> Experiment:
    return any_experiment(name, network, **{**PROGRAMS.get(name, {}), **settings})


@cache
def accuracy(name: str, rate: float) -> float:
    """After twelve rounds, with the shipped defaults."""
    last = played(experiment(name, "group_norm", rounds=12, rate=rate))[0][-1]
    return last["accuracy"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", SPELLED)
def test_it_learns(name: str) -> None:
    """With its shipped defaults it gets well above chance on an easy problem, and reaches 0.9 of FedAvg's accuracy."""
    mine = accuracy(name, RATES.get(name, 0.1))
    assert mine > 0.6
    assert mine >= 0.9 * accuracy("fedavg", 0.1)


@pytest.mark.parametrize("name", SPELLED)
def test_the_same_seed_gives_the_same_bits_and_another_does_not(name: str) -> None:
    first, again, other = (played(experiment(name, seed=seed))[1].model.theta.flat() for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", SPELLED)
def test_a_round_changes_none_of_its_inputs(name: str) -> None:
    """The model and server state that went into a round are untouched after it."""
    chosen = experiment(name)
    before = initial_state(chosen)
    saved = copied({"theta": before.theta, "server": before.server})
    played(chosen)
    kept = zip(leaves_of(saved), leaves_of({"theta": before.theta, "server": before.server}), strict=True)
    assert all(torch.equal(one, two) for one, two in kept)
    assert torch.equal(chosen.network.parameters.flat(), before.theta.flat())


@cache
def plainly(name: str) -> tuple[list[dict[str, Any]], Any, ClientStates]:
    """A run of four rounds as it is, which no test changes: its records, its end and what clients keep."""
    store = ClientStates()
    return *played(experiment(name), store=store), store


@pytest.mark.parametrize("name", SPELLED)
def test_counted_bytes_are_the_cost_times_the_model(name: str) -> None:
    """Bytes are those of `headway methods`: a number of vectors, each as long as its wire writes it."""
    records, progress, _ = plainly(name)
    built, key = method(name), torch.zeros(2, dtype=torch.int64)
    vectors = cost(dataclasses.replace(built, wire=Wire()))
    down, up = (nbytes(code.encode(progress.model.theta, key)) for code in (built.wire.down, built.wire.up))
    for record in records:
        assert record["bytes_down"] == vectors.down * down * len(record["clients"])
        assert record["bytes_up"] == vectors.up * up * len(record["clients"])


@pytest.mark.parametrize("name", SPELLED)
def test_client_state_is_kept_for_exactly_those_who_took_part(name: str) -> None:
    records, _, store = plainly(name)
    seen = {client for record in records for client in record["clients"]}
    assert set(store.states) == (seen if cost(method(name)).client_state else set())


@pytest.mark.parametrize("name", [*METHODS, *MODIFIERS])
def test_its_docstring_says_equation_and_its_arguments_have_ranges(name: str) -> None:
    entry = {**METHODS, **MODIFIERS}[name]
    text = inspect.getdoc(entry.build) or ""
    assert "θ" in text or "β" in text
    assert set(ranges(entry.build)) == {
        argument for argument, value in defaults(entry).items() if not isinstance(value, bool)
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_value_outside_its_range_is_refused(name: str) -> None:
    for argument, allowed in ranges(METHODS[name].build).items():
        outside = ("nonsense",) if isinstance(allowed, Among) else (allowed.low - 1, allowed.high + 1)
        for value in outside:
            if value in (float("inf"), float("-inf")):
                continue
            with pytest.raises(UserError, match=argument):
                method(f"{name}:{argument}={value}")


@pytest.mark.parametrize("name", SPELLED)
def test_a_returning_client_and_a_new_one_both_work(name: str) -> None:
    """Over rounds in which some clients return and others are new, losses stay finite numbers."""
    records, _ = played(experiment(name, rounds=8))
    counts: dict[int, int] = {}
    for record in records:
        assert record["train_loss"] == pytest.approx(record["train_loss"])
        for client in record["clients"]:
            counts[client] = counts.get(client, 0) + 1
    assert max(counts.values()) > 1


def test_the_catalogue_is_two_pages_of_slots() -> None:
    """No entry computes anything: each builds one Method."""
    from headway.methods import catalogue, further

    for page in (catalogue, further):
        assert len(inspect.getsource(page).splitlines()) < 350
    for entry in (*METHODS.values(), *MODIFIERS.values()):
        lines: list[Any] = inspect.getsource(entry.build).split('"""')[-1].split()
        assert lines[0] == "return"
        assert lines[1].startswith("Method(")


@pytest.mark.parametrize("name", SPELLED)
def test_it_resumes_exactly(name: str, tmp_path: Path) -> None:
    """Two rounds, a checkpoint on disk and two more rounds from it are the bits of four rounds."""
    chosen, store = experiment(name, "batch_norm_dropout"), ClientStates()
    _, straight = played(chosen)
    _, halfway = played(experiment(name, "batch_norm_dropout", rounds=2), store=store)
    Checkpoint(tmp_path, chosen).save(halfway, store, "serial")
    progress, states = Checkpoint(tmp_path, chosen).reopen()
    for _, progress in simulate(chosen, Serial(chosen), states, progress):  # noqa: B007, B020
        pass
    ends = zip(
        leaves_of([straight.output(chosen).theta, straight.model.server, straight.model.buffers]),
        leaves_of([progress.output(chosen).theta, progress.model.server, progress.model.buffers]),
        strict=True,
    )
    assert all(torch.equal(one, two) for one, two in ends)


@pytest.mark.parametrize(
    ("name", "more"), [*((name, {}) for name in SLOPED), ("proximal", {"half": False}), ("drift", {"program": True})]
)
def test_a_slope_is_the_gradient_of_its_value(name: str, more: dict[str, Any]) -> None:
    build = getattr(objective, name)
    named = inspect.signature(build).parameters
    part = build(
        **{argument: 0.3 + 0.1 * n for n, argument in enumerate(named) if argument not in ("half", "program")}, **more
    )
    draw = torch.Generator().manual_seed(3)

    def vector() -> Vector:
        return Vector(
            {"a": torch.randn(4, 3, generator=draw, dtype=torch.float64), "b": torch.randn(2, generator=draw).double()}
        )

    w = vector().map(torch.Tensor.requires_grad_)
    memory = {"pull": vector(), "anchor": vector(), "shift": vector()}
    if more == {"program": True}:
        memory["alpha"] = torch.tensor(0.7)
    start = vector()
    step: Any = SimpleNamespace(received={"model": start, "control": vector()}, moved=lambda at: at - start)
    found = torch.autograd.grad(part.value(w, None, memory, step), leaves_of(w))
    for one, other in zip(found, leaves_of(part.slope(w, memory, step)), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)
        assert float(one.abs().max()) > 0.01


def test_the_terms_of_w_alone_have_slopes() -> None:
    assert SLOPED == ["drift", "dual", "proximal"]
