"""Slots of one's own: what is misspelt, not declared or not understood is refused when a method is made."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import headway as hw
from conftest import SMALL, experiment, played, refused, unequal_clients
from headway.methods.hooks import ATTRIBUTES, HOOKS, arguments, entrances, required
from headway.methods.local.optimiser import Optimiser
from headway.methods.method import Method
from slot_parts import HOOK, NAME, direction, finish, slot, update, value

# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

MISSPELT = [
    ("server", {"serverstate": lambda self, model, population: {}}, "server_state"),
    ("server", {"server_States": lambda self, model, population: {}}, "server_state"),
    ("server", {"measure": lambda self, state: {}}, "measures"),
    ("server", {"need_each": True}, "needs_each"),
    ("server", {"provide": ("server:momentum",)}, "provides"),
    ("server", {"own": ("rows",)}, "owns"),
    ("local", {"clientstate": lambda self, model: {}}, "client_state"),
    ("local", {"beginn": lambda self, received, kept, client: {}}, "begin"),
    ("local", {"finished": finish}, "finish"),
    ("local", {"need": ("message:control",)}, "needs"),
    ("local", {"replace_delta": True}, "replaces_delta"),
    ("objective", {"add": True}, "adds"),
    ("objective", {"adds": True, "solpe": lambda self, w, memory, step: w}, "slope"),
    ("broadcast", {"suggest": {"participation": 1.0}}, "suggests"),
    ("broadcast", {"keep_best": True}, "keeps_best"),
]


@pytest.mark.parametrize(
    ("place", "members", "meant"), MISSPELT, ids=lambda one: one if isinstance(one, str) else " ".join(one)
)
def test_a_misspelt_hook_or_attribute_is_refused(place: str, members: dict[str, Any], meant: str) -> None:
    own = slot("Mine", **{NAME[place]: HOOK[place]}, **members)
    wrong = list(members)[-1]
    refused(
        lambda: Method(**{place: own}),
        f"{place} slot: Mine() has {wrong}",
        f"did you mean '{meant}'?",
        f"_{wrong}",
    )


def test_a_misspelt_required_hook_is_named() -> None:
    own = slot("Mine", udpate=update)
    refused(lambda: Method(server=own), "Mine() has no update(model, uploads, state)", "is udpate meant to be update?")


def test_names_of_ones_own_are_not_taken_for_hooks() -> None:
    """Fields, properties, constants and methods that only sound a little like a hook."""

    @dataclass(frozen=True)
    class Own:
        seeds: int = 0
        scope: str = "model"
        bits: int = 8
        state: float = 0.5
        values: tuple[float, ...] = (1.0,)
        bounds: tuple[int, int] = (0, 1)
        address: str = ""
        LIMIT = 3

        @property
        def factor(self) -> float:
            return self.state

        def project(self, x: Any) -> Any:
            return x

        def fitted(self) -> bool:
            return True

        def step(self) -> None: ...

        def _measure(self) -> None: ...

        update = update

    assert played(experiment(Method(server=Own()), rounds=1))[0][0]["update_norm"] > 0


STRAY = [
    ("local", "server_state", lambda self, model, population: {}, "server"),
    ("server", "client_state", lambda self, model: {}, "objective"),
    ("server", "finish", finish, "objective"),
    ("broadcast", "measures", lambda self, state: {}, "objective"),
    ("local", "needs_each", True, "server"),
    ("objective", "replaces_delta", True, "local"),
    ("local", "slope", lambda self, w, memory, step: w, "objective"),
]


@pytest.mark.parametrize(("place", "name", "member", "asked"), STRAY)
def test_a_hook_of_another_slot_is_refused(place: str, name: str, member: Any, asked: str) -> None:
    own = slot("Mine", **{NAME[place]: HOOK[place], name: member})
    refused(lambda: Method(**{place: own}), f"{place} slot: Mine() has {name}", f"asked of the {asked} slot only")


def test_one_object_may_stand_in_two_slots() -> None:
    both = slot("Both", update=update, direction=direction, server_state=lambda self, model, population: {"m": model})
    assert played(experiment(Method(local=both, server=both), rounds=1))[0][0]["update_norm"] > 0
    refused(lambda: Method(local=both), "asked of the server slot only; give it there too")


WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a class": ({"server": type("Heavy", (), {"update": update})}, ("Heavy is a class; give an instance: Heavy()",)),
    "a class with arguments": (
        {"objective": hw.proximal},
        ("objective slot: proximal is a class; give an instance: proximal(beta=…)",),
    ),
    "a class of codes": ({"wire": hw.Wire(up=hw.plain)}, ("wire slot: plain is a class", "plain()")),
    "a code without hooks": (
        {"wire": hw.Wire(up=slot("Half", encode=print))},
        ("Half() has no decode(payload, like)",),
    ),
    "no hook": ({"local": 3}, ("local slot: 3 has no direction(w, gradient, memory, step) and is not a function",)),
    "a hook of other arguments": (
        {"server": slot("Short", update=lambda self, model, uploads: model)},
        ("server slot: Short(): its update takes (model, uploads)", "update(model, uploads, state)"),
    ),
    "a function of other arguments": (
        {"local": lambda w, gradient: gradient},
        ("local slot: <lambda> takes (w, gradient)", "(w, gradient, step)"),
    ),
    "a hook that is no method": (
        {"server": slot("Flat", update=update, measures=0.5)},
        ("server slot: Flat(): its measures is 0.5; it must be a method, measures(state)",),
    ),
    "an addition to the local rule": (
        {"local": slot("Second", adds=True, direction=direction)},
        ("local slot: Second() has adds = True", "one rule"),
    ),
    "a slope of a base": (
        {"objective": slot("Base", value=value, slope=lambda self, w, memory, step: w)},
        ("Base() has a slope and is a base",),
    ),
    "needs that are a text": (
        {"local": slot("Texts", direction=direction, needs="model:stages")},
        ("its needs is 'model:stages'; write a tuple",),
    ),
    "needs of no kind": (
        {"local": slot("Kinds", direction=direction, needs=("mesage:control",))},
        ("its needs has 'mesage:control'", "did you mean 'message'?"),
    ),
    "needs that the model does not have": (
        {"local": slot("Whole", direction=direction, needs=("model:full_grad",))},
        ("it needs 'model:full_grad'", "did you mean 'full_gradient'?"),
    ),
    "suggestions that nobody reads": (
        {"server": slot("Eager", update=update, suggests={"rate": 0.1})},
        ("it suggests 'rate'; only a participation",),
    ),
    "owns without state": (
        {"server": slot("Owner", update=update, owns=("rows",))},
        ("Owner() has owns", "server_state"),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_stand_in_a_slot_is_refused_when_the_method_is_made(case: str) -> None:
    slots, words = WRONG[case]
    refused(lambda: Method(**slots), *words)


def test_attributes_of_a_function_are_refused() -> None:
    """They would not be read."""

    def median(model: Any, uploads: Any) -> Any:
        return model

    median.needs_each = True  # type: ignore[attr-defined]
    refused(lambda: Method(server=median), "median has needs_each", "write a class with update(model, uploads, state)")


# ── what can stand for a function ─────────────────────────────────────────────────────────────────────────────────────


def scaled(model: Any, uploads: Any, by: float = 0.5) -> Any:
    return model + by * uploads.mean["delta"]


class Scaled:
    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, model: Any, uploads: Any) -> Any:
        return scaled(model, uploads, self.by)

    def method(self, model: Any, uploads: Any) -> Any:
        return self(model, uploads)


@pytest.mark.parametrize(
    ("own", "named"),
    [
        (functools.partial(scaled, by=0.25), "scaled"),
        (functools.partial(functools.partial(scaled), by=0.25), "scaled"),
        (Scaled(0.25), "Scaled"),
        (Scaled(0.25).method, "method"),
    ],
)
def test_whatever_can_be_called_is_a_function(own: Any, named: str) -> None:
    mine = Method(server=own)
    assert [name for name, _ in mine.parts("server")] == [f"server.{named}"]
    assert repr(mine.server[0]) == named
    found = played(experiment(mine))[1].model.theta
    expected = played(experiment(Method(server=lambda model, uploads: scaled(model, uploads, 0.25))))[1].model.theta
    assert torch.equal(found.flat(), expected.flat())


def test_a_value_that_is_a_tuple_is_one_value() -> None:
    class Rate(NamedTuple):
        by: float

        def update(self, model: Any, uploads: Any, state: Any) -> Any:
            return scaled(model, uploads, self.by), state

    assert Method(server=Rate(0.5)).server == (Rate(0.5),)


# ── needs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

UNMET: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a message": (
        {"local": hw.local.controlled()},
        ("needs 'control'", "does not provide; add it to the message", "hw.broadcast.vector('control')"),
    ),
    "a state": (
        {"broadcast": hw.lookahead(0.5)},
        ("add hw.server.interpolation() or hw.server.momentum(momentum=…) or a value of your own", "server:momentum"),
    ),
    "an upload": (
        {"server": hw.server.control_mean()},
        (
            "add hw.local.controlled() or hw.objective.drift(alpha=…) or a value of your own",
            "('upload:control',)",
        ),
    ),
    "an upload that nothing of the catalogue makes": (
        {"server": slot("Lists", update=update, needs=("upload:rows",))},
        ("add a value of your own whose finish uploads it and that has provides = ('upload:rows',)",),
    ),
    "the update itself": (
        {"local": hw.local.delta_changes(), "server": hw.server.dual_mean(0.1)},
        ("needs 'delta'", "take a local rule without replaces_delta"),
    ),
}


@pytest.mark.parametrize("case", UNMET)
def test_an_unmet_need_says_what_to_add(case: str) -> None:
    slots, words = UNMET[case]
    refused(lambda: Method(**slots), *words)


def test_following_the_advice_ends_in_a_method() -> None:
    """SCAFFOLD, one refusal after another."""
    rule = hw.local.controlled()
    refused(lambda: Method(local=rule), "hw.broadcast.vector('control')")
    sends = hw.broadcast.vector("control")
    refused(lambda: Method(local=rule, broadcast=sends), "hw.server.control_mean()")
    assert Method(local=rule, broadcast=sends, server=hw.server.control_mean()) == hw.method("scaffold")


# ── the catalogue ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("place", ["broadcast", "objective", "local", "server"])
def test_every_slot_of_the_catalogue_is_as_its_protocol_says(place: str) -> None:
    """Its hooks have the arguments of the protocol, in that order, and every public method is a hook.

    What the abstract `Optimiser` asks of an optimiser is not a hook.
    """
    assert required(place) == NAME[place]
    home = getattr(hw, place)
    for made in (getattr(home, name) for name in home.__all__):
        kind = made if inspect.isclass(made) else type(made())
        fields = set(kind.__dataclass_fields__)
        own = {name for name in vars(kind) if not name.startswith("_")} - fields - set(ATTRIBUTES[place]) - {"factor"}
        if issubclass(kind, Optimiser):
            own -= {"averaged", "optimiser_state"}
        assert own & set(entrances(place))
        assert own <= set(HOOKS[place])
        for hook in own:
            names = list(vars(kind)[hook].__code__.co_varnames[1 : vars(kind)[hook].__code__.co_argcount])
            assert names == arguments(place, hook)[: len(names)]


# ── models of several inputs ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_model_of_several_inputs_has_a_sentence_of_its_own() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor, mask: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            return scale * self.inner(x * mask)  # type: ignore[no-any-return]

    def ask() -> Any:
        return hw.simulate("fedavg", SMALL, model=Masked(), **unequal_clients())

    refused(ask, "the model takes several inputs (x, mask)", "give samples as a tuple in that order or as a dictionary")
