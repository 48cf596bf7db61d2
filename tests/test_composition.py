"""Compositions: a `+` joins slots, is the named method that has these slots, and is refused where it cannot be."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import headway as hw
from conftest import distance, experiment, played
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods import broadcast, local, objective, server
from headway.methods.method import Method
from headway.methods.spelling import method
from headway.trees import leaves_of

ABLATION = {
    "fedavg": "fedavg",
    "fedprox:mu=0.3": "fedprox:mu=0.3",
    "fedavg+momentum:momentum=0.7": "fedavgm:momentum=0.7",
    "fedprox:mu=0.3+momentum:momentum=0.7": "fedproxm:mu=0.3,momentum=0.7",
    "fedavg+acg:lam=0.7": "fedacg:lam=0.7,beta=0",
    "fedprox:mu=0.3+acg:lam=0.7": "fedacg:lam=0.7,beta=0.3",
}
"""FedACG's Table 4: {no pull, pull} × {nothing, server momentum, momentum and lookahead}, and what each is called."""

NAMED = {
    "fedprox+acg": "fedacg",
    "fedprox+momentum": "fedproxm",
    "moon+momentum": "moonm",
    "fedmlb+momentum": "fedmlbm",
    "mifa+momentum": "mifam",
    "fedavg+momentum": "fedavgm",
    "fedavg+prox": "fedprox",
    "fedavgm+fedprox": "fedproxm",
    "fedprox:mu=0.3+momentum:momentum=0.8": "fedproxm:mu=0.3,momentum=0.8",
}
"""With the shipped values, or the same ones given on both sides."""

RUNNING = [
    *ABLATION,
    "fedmlb+acg",
    "moon+momentum",
    "fedmlb+momentum",
    "mifa+momentum",
    "fedacg+fedpaq:bits=8",
    "scaffold+momentum:momentum=0.5",
    "feddyn+acg",
    "fedcm+fedpaq",
    "gradma-w+fednag",
]


def ends(spelled: Any, executor: str = "serial", **settings: Any) -> tuple[list[dict[str, Any]], Any, ClientStates]:
    """The records of a short run without its clock, what the server holds and what clients hold."""
    store = ClientStates()
    records, progress = played(experiment(spelled, **settings), executor, store)
    timeless = [{name: value for name, value in one.items() if "seconds" not in name} for one in records]
    return timeless, progress.model, store


@pytest.mark.parametrize("composed", ABLATION)
def test_a_row_of_the_ablation_is_the_method_of_that_name(composed: str) -> None:
    """The same numbers, to the bit, in four rounds."""
    found, model, _ = ends(composed)
    expected, other, _ = ends(ABLATION[composed])
    assert found == expected
    assert torch.equal(model.theta.flat(), other.theta.flat())


def test_the_six_rows_of_the_ablation_are_six_different_methods() -> None:
    """Pairwise different models after four rounds."""
    models = {composed: ends(composed)[1].theta for composed in ABLATION}
    assert len(models) == 6
    for one, two in itertools.combinations(models, 2):
        assert distance(models[one], models[two]) > 1e-4, f"{one} and {two}"


@pytest.mark.parametrize("composed", NAMED)
def test_a_composition_is_the_named_method_with_these_slots(composed: str) -> None:
    """The same slots, and so the same numbers to the bit, client states included; the name is what was written."""
    built, named = method(composed), method(NAMED[composed])
    assert built == named
    assert (built.name, named.name) == (composed, NAMED[composed])
    found, model, mine = ends(composed)
    expected, other, theirs = ends(NAMED[composed])
    assert found == expected
    assert torch.equal(model.theta.flat(), other.theta.flat())
    assert mine.states.keys() == theirs.states.keys()
    assert distance(mine.states, theirs.states) == 0


@pytest.mark.parametrize("composed", RUNNING)
def test_a_composition_runs_the_same_in_serial_and_batched(composed: str) -> None:
    """Two rounds of unequal clients: server, clients, losses and bytes."""
    found, model, mine = ends(composed, "serial", rounds=2)
    others, other, theirs = ends(composed, "batched", rounds=2)
    assert distance(model.theta, other.theta) < 1e-10
    assert distance(model.server, other.server) < 1e-10
    assert mine.states.keys() == theirs.states.keys()
    assert distance(mine.states, theirs.states) < 1e-10
    for one, two in zip(found, others, strict=True):
        assert one["train_loss"] == pytest.approx(two["train_loss"], abs=1e-10)
        assert (one["bytes_up"], one["bytes_down"]) == (two["bytes_up"], two["bytes_down"])


@pytest.mark.parametrize(
    "composed", [name for name in RUNNING if name.startswith(("fedmlb", "moon", "scaffold", "feddyn"))]
)
def test_a_composition_is_not_its_first_half(composed: str) -> None:
    """What stands after the + has an effect from the second round on."""
    assert distance(ends(composed)[1].theta, ends(composed.split("+")[0])[1].theta) > 1e-4


def test_quantising_changes_only_what_is_uploaded() -> None:
    """FedACG with FedPAQ: up go an eighth of float64's bytes and a scale, down as many as before; θ is close."""
    plain, model, _ = ends("fedacg")
    coded, other, _ = ends("fedacg+fedpaq:bits=8")
    size = sum(leaf.numel() for leaf in leaves_of(model.theta))
    for one, two in zip(plain, coded, strict=True):
        assert one["bytes_down"] == two["bytes_down"] == 3 * 8 * size
        assert (one["bytes_up"], two["bytes_up"]) == (3 * 8 * size, 3 * (size + 4))
    assert 1e-6 < distance(model.theta, other.theta) < 0.1


def test_the_order_of_a_composition_does_not_matter() -> None:
    """Slots are joined, whichever side they come from."""
    left, right = ends("fedcm+fedpaq"), ends("fedpaq+fedcm")
    assert left[0] == right[0]
    assert torch.equal(left[1].theta.flat(), right[1].theta.flat())
    assert method("fedprox+acg") == method("fedavg+acg+prox") == method("fedavg+prox+acg")


REFUSED = {
    "fedacg+momentum": ("server slot", "momentum(momentum=0.85", "momentum(momentum=0.4"),
    "gradma-s+acg": ("server slot", "update_memory(", "momentum(momentum=0.85"),
    "fedadam+momentum": ("server slot", "adam(", "momentum(momentum=0.4"),
    "fedagm+momentum": ("server slot", "interpolation(", "momentum(momentum=0.4"),
    "scaffold+fedcm": ("local slot", "controlled()", "mixed(alpha=0.1)"),
    "fedcm+fednag": ("broadcast slot", "vector(name='direction')", "vector(name='velocity')"),
    "fedlc+fedagm:alpha=0.5": ("objective slot", "calibrated(", "task(alpha=0.5)"),
    "fedacg:lam=0.5+acg:lam=0.6": ("broadcast slot", "lookahead(lam=0.5)", "lookahead(lam=0.6)"),
    "fedpaq:bits=4+fedpaq:bits=8": ("wire slot", "quantised(bits=4", "quantised(bits=8"),
    "fedprox:mu=0.1+prox:beta=0.2": ("objective slot", "proximal(beta=0.1", "proximal(beta=0.2"),
    "mifa+gradma-s": ("server slot", "update_memory(", "local slot", "delta_changes("),
    "feddc+scaffold": ("drift(", "controlled()"),
}
"""What cannot be joined, and what the refusal names: the slot and both values in it."""


@pytest.mark.parametrize("composed", REFUSED)
def test_what_cannot_be_joined_is_refused_when_it_is_made(composed: str) -> None:
    """In one line that names the slot and both values."""
    with pytest.raises(UserError) as refusal:
        method(composed)
    message = str(refusal.value)
    assert "\n" not in message
    for words in REFUSED[composed]:
        assert words in message


UNMET: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "lookahead without momentum": (
        {"broadcast": broadcast.lookahead(0.9)},
        ("broadcast slot", "lookahead(lam=0.9)", "'momentum'", "server slot", "average("),
    ),
    "a rule whose message nobody sends": (
        {"local": local.controlled()},
        ("local slot", "controlled()", "'control'", "broadcast slot", "model()"),
    ),
    "a message that the server does not have": (
        {"broadcast": broadcast.vector("velocity"), "local": local.nesterov(0.9)},
        ("broadcast slot", "vector(name='velocity')", "server slot", "average("),
    ),
    "a server whose upload nobody makes": (
        {"server": server.latest_update_mean()},
        ("server slot", "latest_update_mean(", "'change'", "local slot", "sgd()"),
    ),
    "two task losses": (
        {"objective": (objective.calibrated(1.0), objective.task(0.5))},
        ("objective slot", "calibrated(", "task(alpha=0.5)"),
    ),
    "two local rules": ({"local": (local.mixed(0.5), local.nesterov(0.9))}, ("local slot", "mixed(", "nesterov(")),
}


@pytest.mark.parametrize("case", UNMET)
def test_slots_that_do_not_fit_are_refused_when_they_are_joined(case: str) -> None:
    """In one line that names who needs what, and the slot and value that should have given it."""
    slots, named = UNMET[case]
    with pytest.raises(UserError) as refusal:
        Method(**slots)
    message = str(refusal.value)
    assert "\n" not in message
    for words in named:
        assert words in message


def test_equal_values_are_no_conflict() -> None:
    """FedLC with FedAGM at α = 1: the calibrated loss in place of the plain one; twice the same is once."""
    joined = method("fedlc+fedagm")
    assert [type(part) for part in joined.objective] == [objective.calibrated, objective.proximal]
    assert method("fedprox+fedprox") == method("fedprox")
    assert method("fedacg+momentum:momentum=0.85") == method("fedacg")
    assert hw.method("fedpaq+fedpaq") == method("fedpaq")
