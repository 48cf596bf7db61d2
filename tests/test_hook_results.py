"""What hooks return, change and raise: nothing is lost without a word, and every failure has its place."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from torch import nn

import headway as hw
from conftest import SMALL, experiment, played, refused, unequal_clients
from headway.engine.round import run_round
from headway.engine.selection import make_executor
from headway.engine.server import initial_state
from headway.engine.states import ClientStates
from headway.errors import ClientError, SlotError
from headway.methods.method import Method
from headway.vectors import Vector
from slot_parts import direction, message, slot, update, value

COMPILING = pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs a C++ compiler")


# ── what hooks return ─────────────────────────────────────────────────────────────────────────────────────────────────


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
    chosen = experiment(Method(**slots, name="mine"), rounds=1)
    refused(lambda: played(chosen, executor), "round 1, client", *words)


@COMPILING
@pytest.mark.parametrize("executor", ["serial:compiled", "batched:compiled"])
@pytest.mark.parametrize("case", ["memory without begin", "stages without needs", "a direction of other shapes"])
def test_in_a_traced_program_it_is_refused_too(case: str, executor: str) -> None:
    """And is not taken for something that cannot be compiled."""
    slots, words = LOST[case]
    chosen = experiment(Method(**slots, name="mine"), rounds=1)
    hand = make_executor(executor, chosen)
    with chosen.arithmetic():
        model = initial_state(chosen)

        def ask() -> Any:
            return run_round(chosen, model, ClientStates(), hand, chosen.client_rounds.cohort(1), 1)

        refused(ask, "round 1, client", *words)


@pytest.mark.parametrize("executor", ["auto", "batched"])
def test_the_choice_of_an_executor_says_it_as_it_is(executor: str) -> None:
    """A mistake in a slot is none of the executor's."""
    mine = Method(local=Remembering(), name="mine")

    def ask() -> Any:
        return hw.simulate(mine, SMALL, model=nn.Linear(6, 3), executor=executor, **unequal_clients())

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
    refused(lambda: played(experiment(Method(**slots, name="mine"), rounds=1)), "round 1: ", *words)


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
        lambda: played(experiment(Method(server=way, name="mine"), rounds=1)),
        f"round 1: server slot {way.__name__} of method 'mine' changed the model",
        "model + delta",
    )


def test_a_server_that_changes_it_later_is_refused_then() -> None:
    calls = iter(range(10))

    def later(model: Any, uploads: Any) -> Any:
        return _adding(model, uploads) if next(calls) == 2 else model + uploads.mean["delta"]

    refused(lambda: played(experiment(Method(server=later, name="mine"))), "round 3: server slot later")


def test_a_broadcast_that_changes_the_model_in_place_is_refused() -> None:
    def scaled(model: Any, server: Any) -> Any:
        for leaf in model.leaves.values():
            leaf.mul_(0.5)
        return {"model": model}

    refused(lambda: played(experiment(Method(broadcast=scaled), rounds=1)), "round 1: broadcast slot scaled", "changed")


@pytest.mark.parametrize("executor", ["serial", "pool"])
def test_a_client_that_changes_what_all_receive_is_refused(executor: str) -> None:
    """At its first step w is the model that the next client begins with."""

    def drifting(w: Any, gradient: Any, step: Any) -> Any:
        for leaf in w.leaves.values():
            leaf.mul_(0.9)
        return gradient

    refused(lambda: played(experiment(Method(local=drifting), rounds=1), executor), "round 1, client", "in place")


# ── states of one name ────────────────────────────────────────────────────────────────────────────────────────────────


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
        lambda: played(experiment(Method(broadcast=reading, server=pair, name="mine"), rounds=1)),
        *("server slot First and server slot Second of method 'mine' both keep 'm'", "provides = ('server:m',)"),
    )
    played(experiment(Method(server=pair), rounds=1))  # nobody reads them


@pytest.mark.parametrize("which", [0, 1])
def test_the_one_that_provides_it_is_sent(which: int) -> None:
    gift = {"provides": ("server:m",)}
    pair = [
        holder(name, number, **(gift if at == which else {}))
        for at, (name, number) in enumerate((("A", 1.0), ("B", 2.0)))
    ]
    type(pair[1]).adds = True
    mine = Method(broadcast=reading, server=tuple(pair))
    chosen = experiment(mine)
    model = initial_state(chosen)
    assert float(mine.message(model.theta, model.server)["m"].flat()[0]) == which + 1


def test_two_uploads_of_one_name_are_refused() -> None:
    members = {"finish": lambda self, end, memory, kept: ({"x": end.delta}, kept)}
    mine = Method(
        objective=slot("Term", adds=True, value=value, **members), local=slot("Rule", direction=direction, **members)
    )
    refused(
        lambda: played(experiment(mine, rounds=1)), "round 1, client", "local slot Rule", "'x', which another value"
    )


# ── measures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Counting:
    def begin(self, received: Any, kept: Any, client: Any) -> Any:
        return {"steps": torch.zeros((), dtype=torch.float64), "path": torch.zeros((), dtype=torch.float64)}

    def direction(self, w: Any, gradient: Any, memory: Any, step: Any) -> Any:
        return gradient, {"steps": memory["steps"] + 1, "path": memory["path"] + gradient.norm() * step.rate}

    def measures(self, memory: Any, end: Any) -> Any:
        return {"counted": memory["steps"], "path": memory["path"], "moved": end.delta.norm()}


@pytest.mark.parametrize("executor", ["serial", "batched", "pool"])
def test_measures_of_a_local_rule_see_the_end_of_the_round(executor: str) -> None:
    """The memory after the last step of every client, however few it has, and what the round came to."""
    chosen = experiment(Method(local=Counting()), rounds=1, weight_decay=0.0)
    (record,), _ = played(chosen, executor)
    sizes = {client: len(chosen.federation.clients[client]) for client in record["clients"]}
    total = sum(sizes.values())
    steps = {client: chosen.scenario.epochs * -(-size // 4) for client, size in sizes.items()}
    assert len(set(steps.values())) > 1
    assert record["counted"] == pytest.approx(sum(sizes[one] * steps[one] for one in sizes) / total)
    assert 0 < record["update_norm"] <= record["moved"] <= record["path"]


def test_measures_of_the_memory_alone_stay_as_they_are() -> None:
    """GradMA's have one argument."""
    assert played(experiment("gradma-w", rounds=1))[0][0]["local_correction"] >= 0


# ── hooks that fail ───────────────────────────────────────────────────────────────────────────────────────────────────


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
        played(experiment(Method(**slots, name="mine"), rounds=1))
    assert str(caught.value) == words
    assert isinstance(caught.value, SlotError)


@pytest.mark.parametrize("executor", ["serial", "batched", "pool"])
def test_a_failing_hook_of_a_client_names_slot_and_method_too(executor: str) -> None:
    mine = Method(local=failing, name="mine")
    with pytest.raises(
        ClientError, match=r"round 1, client [\d, ]+, step 0: local slot failing of method 'mine': KeyError"
    ):
        played(experiment(mine, rounds=1), executor)


def test_it_ends_with_one_line_at_the_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failure, not a mistake in the request."""
    from headway.cli import main as shell

    def fails(**_: Any) -> Any:
        played(experiment(Method(server=failing, name="mine"), rounds=1))

    monkeypatch.setattr(shell, "app", fails)
    with pytest.raises(SystemExit) as ended:
        shell.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "headway: round 1: server slot failing of method 'mine': KeyError: 'not today'\n"
