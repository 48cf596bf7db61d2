"""Slots of one's own: what is misspelt, not declared or returned for nothing is refused, and nothing is lost."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import headway as hw
from conftest import SMALL, played, unequal_clients, world
from headway.engine import round as rounds
from headway.engine.choice import Nothing, made
from headway.errors import UserError
from headway.methods.method import Method
from headway.vectors import Vector

COMPILING = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs a C++ compiler")


def refused(ask: Callable[[], Any], *words: str, kind: type[Exception] = UserError) -> str:
    """What is said, in one line, where something is refused."""
    with pytest.raises(kind) as caught:
        ask()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


def slot(name: str, **members: Any) -> Any:
    """A value of a class of this name."""
    return type(name, (), members)()


def update(self: Any, model: Any, uploads: Any, state: Any) -> Any:
    return model + uploads.mean["delta"], state


def direction(self: Any, w: Any, gradient: Any, memory: Any, step: Any) -> Any:
    return gradient, memory


def value(self: Any, w: Any, output: Any, memory: Any, step: Any) -> Any:
    return 1e-3 * w.square()


def message(self: Any, model: Any, server: Any) -> Any:
    return {"model": model}


def finish(self: Any, end: Any, memory: Any, kept: Any) -> Any:
    return {}, kept


HOOK: dict[str, Any] = {"broadcast": message, "objective": value, "local": direction, "server": update}
NAME = {"broadcast": "message", "objective": "value", "local": "direction", "server": "update"}


# ── what hooks return ────────────────────────────────────────────────────────────────────────────────────────────────


class Heavy:
    """Heavy ball, whose author forgot `server_state`."""

    def update(self, model: Any, uploads: Any, state: Any) -> Any:
        velocity = uploads.mean["delta"] + 0.9 * state.get("velocity", model.zeros())
        return model + velocity, {"velocity": velocity}


class Preparing:
    update = update

    def prepare(self, uploads: Any, state: Any) -> Any:
        return uploads, {"seen": uploads.mean["delta"]}


class Remembering:
    """Local momentum, whose author forgot `begin`."""

    def direction(self, w: Any, gradient: Any, memory: Any, step: Any) -> Any:
        velocity = gradient + 0.9 * memory.get("velocity", gradient.zeros())
        return velocity, {"velocity": velocity}


class Renaming:
    direction = Remembering.direction

    def begin(self, received: Any, kept: Any, client: Any) -> Any:
        return {"momentum": received["model"].zeros()}


class Keeping:
    """A control variate, whose author forgot `client_state`."""

    direction = direction

    def finish(self, end: Any, memory: Any, kept: Any) -> Any:
        return {}, {"control": end.mean_direction}


class KeepingMore(Keeping):
    def client_state(self, model: Any) -> Any:
        return {}


class Reading:
    """Uploads ∇f_i(φ); its author forgot to say that it needs the client's whole data."""

    direction = direction

    def finish(self, end: Any, memory: Any, kept: Any) -> Any:
        return {"gradient": end.full_grad_at(end.received["model"])}, kept


class Looking:
    """A sum over stages that nobody asked for is a sum over nothing."""

    adds = True

    def value(self, w: Any, output: Any, memory: Any, step: Any) -> Any:
        return sum((stage.square().mean() for stage in output.stages), start=w.square() * 0)


LOST: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "memory without begin": (
        {"local": Remembering()},
        ("client", "local slot Remembering of method 'mine'", "'velocity'", "add begin(received, kept, client)"),
    ),
    "memory of other names": ({"local": Renaming()}, ("local slot Renaming", "'momentum' is missing", "begin")),
    "client state without client_state": (
        {"local": Keeping()},
        ("local slot Keeping of method 'mine'", "'control'", "add client_state(model)"),
    ),
    "client state of other names": ({"local": KeepingMore()}, ("Keeping", "'control' is new", "client_state")),
    "a full gradient without needs": (
        {"local": Reading()},
        ("local slot Reading of method 'mine'", "full_grad_at", 'needs = ("model:full_gradient",)'),
    ),
    "stages without needs": (
        {"objective": Looking()},
        ("objective slot Looking of method 'mine'", "stages", 'needs = ("model:stages",)'),
    ),
    "a direction without its memory": (
        {"local": slot("Bare", direction=lambda self, w, gradient, memory, step: gradient)},
        ("local slot Bare", "direction returned a Vector", "(direction, memory)"),
    ),
    "a direction of other shapes": (
        {"local": lambda w, gradient, step: gradient.map(lambda leaf: leaf.mean().reshape(1))},
        ("local slot <lambda>", "has shape (1,), not (5, 6)"),
    ),
    "a value for each sample": (
        {"objective": lambda w, output, step: step.losses(output.logits)},
        ("objective slot <lambda>", "tensor of shape (4,)", "one number"),
    ),
    "an upload that is no vector": (
        {
            "local": slot(
                "Summing", direction=direction, finish=lambda self, end, memory, kept: ({"n": end.steps}, kept)
            )
        },
        ("local slot Summing", "a Tensor for 'n'", "a Vector"),
    ),
}


@pytest.mark.parametrize("executor", ["serial", "batched", "pool"])
@pytest.mark.parametrize("case", LOST)
def test_what_a_clients_hook_returns_for_nothing_is_refused(case: str, executor: str) -> None:
    """In every executor, as a mistake of the user's, with round and client."""
    slots, words = LOST[case]
    chosen = world(Method(**slots, name="mine"), rounds=1)
    refused(lambda: played(chosen, executor), "round 1, client", *words)


@COMPILING
@pytest.mark.parametrize("executor", ["serial:compiled", "batched:compiled"])
@pytest.mark.parametrize("case", ["memory without begin", "stages without needs", "a direction of other shapes"])
def test_in_a_traced_program_it_is_refused_too(case: str, executor: str) -> None:
    """And is not taken for something that cannot be compiled."""
    slots, words = LOST[case]
    chosen = world(Method(**slots, name="mine"), rounds=1)
    hand = made(executor, chosen)
    with chosen.arithmetic():
        model = rounds.start(chosen)
        ask = lambda: rounds.play(chosen, model, Nothing(), hand, chosen.turnout(1), 1)  # noqa: E731
        words = tuple(word.replace("(4,)", "") for word in words)
        refused(ask, "round 1, client", *words)


@pytest.mark.parametrize("executor", ["auto", "batched"])
def test_the_choice_of_an_executor_says_it_as_it_is(executor: str) -> None:
    """A mistake in a slot is none of the executor's."""
    mine = Method(local=Remembering(), name="mine")
    ask = lambda: hw.simulate(mine, SMALL, model=nn.Linear(6, 3), executor=executor, **unequal_clients())  # noqa: E731
    refused(ask, "local slot Remembering of method 'mine'")


SERVERS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "state without server_state": (
        {"server": Heavy()},
        ("server slot Heavy of method 'mine'", "'velocity'", "add server_state(model, population)"),
    ),
    "state of prepare": ({"server": Preparing()}, ("server slot Preparing", "prepare", "'seen'", "server_state")),
    "state of other names": (
        {"server": slot("Odd", update=Heavy.update, server_state=lambda self, model, population: {"m": model})},
        ("server slot Odd", "'m' is missing", "server_state"),
    ),
    "a model without its state": (
        {"server": slot("Bare", update=lambda self, model, uploads, state: model)},
        ("server slot Bare", "update returned a Vector", "(model, state)"),
    ),
    "a function's model and state": (
        {"server": lambda model, uploads: (model, {})},
        ("server slot <lambda>", "returned a tuple of length 2 where a Vector belongs"),
    ),
    "leaves of another shape": (
        {"server": lambda model, uploads: model.map(lambda leaf: leaf.mean().reshape(1))},
        ("server slot <lambda>", "'stages.0.0.weight' has shape (1,), not (5, 6)"),
    ),
    "leaves without a shape": (
        {"server": lambda model, uploads: model.map(torch.mean)},
        ("server slot <lambda>", "has shape (), not (5, 6)"),
    ),
    "a leaf too few": (
        {"server": lambda model, uploads: Vector(dict(list(model.leaves.items())[1:]))},
        ("server slot <lambda>", "'stages.0.0.weight' is missing"),
    ),
    "a leaf too many": (
        {"server": lambda model, uploads: Vector({**model.leaves, "more": torch.zeros(1)})},
        ("server slot <lambda>", "'more', which the model does not have"),
    ),
    "a message that is a vector": (
        {"broadcast": lambda model, server: model},
        ("broadcast slot <lambda>", "message returned a Vector", "dictionary"),
    ),
    "a message without a model": ({"broadcast": lambda model, server: {"phi": model}}, ("no 'model'", "{'model': φ}")),
    "a message over another's": (
        {"broadcast": slot("Over", adds=True, message=message)},
        ("broadcast slot Over", "'model', which another value returned too"),
    ),
}


@pytest.mark.parametrize("case", SERVERS)
def test_what_a_hook_of_the_server_returns_for_nothing_is_refused(case: str) -> None:
    slots, words = SERVERS[case]
    refused(lambda: played(world(Method(**slots, name="mine"), rounds=1)), "round 1: ", *words)


def _adding(model: Any, uploads: Any) -> Any:
    for name, leaf in model.leaves.items():
        leaf.add_(uploads.mean["delta"].leaves[name])
    return model


def _adding_to_data(model: Any, uploads: Any) -> Any:
    for name, leaf in model.leaves.items():
        leaf.data.add_(uploads.mean["delta"].leaves[name])
    return model


def _adding_in_numpy(model: Any, uploads: Any) -> Any:
    for name, leaf in model.leaves.items():
        leaf.numpy()[...] += uploads.mean["delta"].leaves[name].numpy()
    return model


@pytest.mark.parametrize("way", [_adding, _adding_to_data, _adding_in_numpy])
def test_a_server_that_changes_the_model_in_place_is_refused(way: Any) -> None:
    """The round's update would be measured as 0."""
    refused(
        lambda: played(world(Method(server=way, name="mine"), rounds=1)),
        f"round 1: server slot {way.__name__} of method 'mine' changed the model",
        "model + delta",
    )


def test_a_server_that_changes_it_later_is_refused_then() -> None:
    calls = iter(range(10))

    def later(model: Any, uploads: Any) -> Any:
        return _adding(model, uploads) if next(calls) == 2 else model + uploads.mean["delta"]

    refused(lambda: played(world(Method(server=later, name="mine"))), "round 3: server slot later")


def test_a_broadcast_that_changes_the_model_in_place_is_refused() -> None:
    def scaled(model: Any, server: Any) -> Any:
        for leaf in model.leaves.values():
            leaf.mul_(0.5)
        return {"model": model}

    refused(lambda: played(world(Method(broadcast=scaled), rounds=1)), "round 1: broadcast slot scaled", "changed")


@pytest.mark.parametrize("executor", ["serial", "pool"])
def test_a_client_that_changes_what_all_receive_is_refused(executor: str) -> None:
    """At its first step w is the model that the next client begins with."""

    def drifting(w: Any, gradient: Any, step: Any) -> Any:
        for leaf in w.leaves.values():
            leaf.mul_(0.9)
        return gradient

    refused(lambda: played(world(Method(local=drifting), rounds=1), executor), "round 1, client", "in place")


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────

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


@pytest.mark.parametrize(("place", "members", "meant"), MISSPELT, ids=lambda one: str(one) if one else "")
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

    assert played(world(Method(server=Own()), rounds=1))[0][0]["update_norm"] > 0


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
    assert played(world(Method(local=both, server=both), rounds=1))[0][0]["update_norm"] > 0
    refused(lambda: Method(local=both), "asked of the server slot only; give it there too")


WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a class": ({"server": Heavy}, ("server slot: Heavy is a class; give an instance: Heavy()",)),
    "a class with arguments": (
        {"objective": hw.proximal},
        ("objective slot: proximal is a class; give an instance: proximal(beta=…)",),
    ),
    "a class of codes": ({"wire": hw.Wire(up=hw.plain)}, ("wire slot: plain is a class", "plain()")),
    "a code without hooks": (
        {"wire": hw.Wire(up=slot("Half", encode=print))},
        ("Half() has no decode(payload, like)",),
    ),
    "no hook": ({"local": 3}, ("local slot: 3 has no direction(w, gradient, memory, step) and is no function",)),
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


# ── what can stand for a function ────────────────────────────────────────────────────────────────────────────────────


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
    found = played(world(mine))[1].model.theta
    expected = played(world(Method(server=lambda model, uploads: scaled(model, uploads, 0.25))))[1].model.theta
    assert torch.equal(found.flat(), expected.flat())


def test_a_value_that_is_a_tuple_is_one_value() -> None:
    from typing import NamedTuple

    class Rate(NamedTuple):
        by: float

        def update(self, model: Any, uploads: Any, state: Any) -> Any:
            return scaled(model, uploads, self.by), state

    assert Method(server=Rate(0.5)).server == (Rate(0.5),)


# ── states of one name ───────────────────────────────────────────────────────────────────────────────────────────────


def holder(name: str, number: float, **members: Any) -> Any:
    def server_state(self: Any, model: Any, population: int) -> Any:
        return {"m": model.zeros() + number * model.map(torch.ones_like)}

    return slot(
        name, server_state=server_state, **{"update": lambda self, model, uploads, state: (model, state), **members}
    )


def reading(model: Any, server: Any) -> Any:
    return {"model": model + 0.0 * server["m"], "m": server["m"]}


def test_two_states_of_one_name_are_refused_where_a_broadcast_may_read_them() -> None:
    pair = (holder("First", 1.0), holder("Second", 2.0, adds=True))
    refused(
        lambda: played(world(Method(broadcast=reading, server=pair, name="mine"), rounds=1)),
        *("server slot First and server slot Second of method 'mine' both keep 'm'", "provides = ('server:m',)"),
    )
    played(world(Method(server=pair), rounds=1))  # nobody reads them


@pytest.mark.parametrize("which", [0, 1])
def test_the_one_that_provides_it_is_sent(which: int) -> None:
    gift = {"provides": ("server:m",)}
    pair = [
        holder(name, number, **(gift if at == which else {}))
        for at, (name, number) in enumerate((("A", 1.0), ("B", 2.0)))
    ]
    type(pair[1]).adds = True
    mine = Method(broadcast=reading, server=tuple(pair))
    chosen = world(mine)
    model = rounds.start(chosen)
    assert float(mine.message(model.theta, model.server)["m"].flat()[0]) == which + 1


def test_two_uploads_of_one_name_are_refused() -> None:
    members = {"finish": lambda self, end, memory, kept: ({"x": end.delta}, kept)}
    mine = Method(
        objective=slot("Term", adds=True, value=value, **members), local=slot("Rule", direction=direction, **members)
    )
    refused(lambda: played(world(mine, rounds=1)), "round 1, client", "local slot Rule", "'x', which another value")


# ── measures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Counting:
    direction_of_last_step = None

    def begin(self, received: Any, kept: Any, client: Any) -> Any:
        return {"steps": torch.zeros((), dtype=torch.float64), "path": torch.zeros((), dtype=torch.float64)}

    def direction(self, w: Any, gradient: Any, memory: Any, step: Any) -> Any:
        return gradient, {"steps": memory["steps"] + 1, "path": memory["path"] + gradient.norm() * step.rate}

    def measures(self, memory: Any, end: Any) -> Any:
        return {"counted": memory["steps"], "path": memory["path"], "moved": end.delta.norm()}


@pytest.mark.parametrize("executor", ["serial", "batched", "pool"])
def test_measures_of_a_local_rule_see_the_end_of_the_round(executor: str) -> None:
    """The memory after the last step of every client, however few it has, and what the round came to."""
    own = {"objective": (), "local": Counting()}
    chosen = world(Method(**own), rounds=1, weight_decay=0.0)
    record, _ = played(chosen, executor)[0][0], None
    sizes = {client: len(chosen.federation.clients[client]) for client in record["clients"]}
    total = sum(sizes.values())
    steps = {client: chosen.scenario.epochs * -(-size // 4) for client, size in sizes.items()}
    assert len(set(steps.values())) > 1
    assert record["counted"] == pytest.approx(sum(sizes[one] * steps[one] for one in sizes) / total)
    assert 0 < record["update_norm"] <= record["moved"] <= record["path"]


def test_measures_of_the_memory_alone_stay_as_they_are() -> None:
    """GradMA's have one argument."""
    assert played(world("gradma-w", rounds=1))[0][0]["local_correction"] >= 0


# ── hooks that fail ──────────────────────────────────────────────────────────────────────────────────────────────────


def failing(*given: Any) -> Any:
    raise KeyError("not today")


FAILING: dict[str, tuple[dict[str, Any], str]] = {
    "server function": ({"server": failing}, "round 1: server slot failing of method 'mine': KeyError: 'not today'"),
    "broadcast function": (
        {"broadcast": failing},
        "round 1: broadcast slot failing of method 'mine': KeyError: 'not today'",
    ),
    "server measures": (
        {"server": slot("Telling", update=update, measures=failing)},
        "round 1: server slot Telling of method 'mine': KeyError: 'not today'",
    ),
    "server state": (
        {"server": slot("Starting", update=update, server_state=failing)},
        "before the first round: server slot Starting of method 'mine': KeyError: 'not today'",
    ),
    "client state": (
        {"local": slot("Starting", direction=direction, client_state=failing)},
        "before the first round: local slot Starting of method 'mine': KeyError: 'not today'",
    ),
}


@pytest.mark.parametrize("case", FAILING)
def test_a_failing_hook_of_the_server_names_slot_method_and_round(case: str) -> None:
    slots, words = FAILING[case]
    with pytest.raises(RuntimeError) as caught:
        played(world(Method(**slots, name="mine"), rounds=1))
    assert str(caught.value) == words
    assert isinstance(caught.value, hw.errors.SlotError)


@pytest.mark.parametrize("executor", ["serial", "batched", "pool"])
def test_a_failing_hook_of_a_client_names_slot_and_method_too(executor: str) -> None:
    mine = Method(local=failing, name="mine")
    with pytest.raises(
        hw.errors.ClientError, match=r"round 1, client [\d, ]+, step 0: local slot failing of method 'mine': KeyError"
    ):
        played(world(mine, rounds=1), executor)


def test_it_ends_with_one_line_at_the_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failure, not a mistake in the request."""
    from headway.cli import main as shell

    def fails(**_: Any) -> Any:
        played(world(Method(server=failing, name="mine"), rounds=1))

    monkeypatch.setattr(shell, "app", fails)
    with pytest.raises(SystemExit) as ended:
        shell.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "headway: round 1: server slot failing of method 'mine': KeyError: 'not today'\n"


# ── needs ────────────────────────────────────────────────────────────────────────────────────────────────────────────

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
        ("add hw.local.controlled() or hw.objective.drift(alpha=…) or a value of your own", "('upload:control',)"),
    ),
    "an upload that nothing of the catalogue makes": (
        {"server": slot("Lists", update=update, needs=("upload:rows",))},
        ("add a value of your own whose finish uploads it and that has provides = ('upload:rows',)",),
    ),
    "the update itself": (
        {"local": hw.local.changes(), "server": hw.server.dual_mean(0.1)},
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


# ── the catalogue ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("place", ["broadcast", "objective", "local", "server"])
def test_every_slot_of_the_catalogue_is_as_its_protocol_says(place: str) -> None:
    """Its hooks have the arguments of the protocol, in that order, and it has no public method that is none."""
    from headway.methods.hooks import ATTRIBUTES, HOOKS, arguments, required

    assert required(place) == NAME[place]
    home = getattr(hw, place)
    for kind in (getattr(home, name) for name in home.__all__):
        fields = set(kind.__dataclass_fields__)
        own = {name for name in vars(kind) if not name.startswith("_")} - fields - set(ATTRIBUTES[place]) - {"factor"}
        assert required(place) in own
        assert own <= set(HOOKS[place])
        for hook in own:
            names = list(vars(kind)[hook].__code__.co_varnames[1 : vars(kind)[hook].__code__.co_argcount])
            assert names == arguments(place, hook)[: len(names)]


# ── models of several inputs ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_model_of_several_inputs_has_a_sentence_of_its_own() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor, mask: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            return scale * self.inner(x * mask)  # type: ignore[no-any-return]

    ask = lambda: hw.simulate("fedavg", SMALL, model=Masked(), **unequal_clients())  # noqa: E731
    refused(ask, "the model takes several inputs (x, mask)", "join them into one")
