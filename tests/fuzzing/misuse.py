"""Misuse from Python: calls of every public function with one or two arguments of no sense."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import headway as hw
from fuzzing.attempts import Attempt, Finding
from fuzzing.datafiles import one_line
from fuzzing.objects import ANSWERS, HOOKS, VALUES, Boom, Slot, Watcher, X, Y, data_sets, networks
from fuzzing.shell import inside
from headway.errors import ClientError, MachineError, RunsFailed, SlotError, UserError

LITTLE: dict[str, Any] = {
    **{"rounds": 1, "steps": 1, "participation": 1.0, "batch_size": 4, "device": "cpu", "executor": "serial"},
}
SLOW = {"device": ("auto",), "executor": ("auto",), "model": (), "seeds": (2**63,), "rounds": (2**63,)}
SETTINGS = [field.name for field in dataclasses.fields(hw.Scenario) if field.name != "method"]
FACTORIES = ("lookahead", "vector", "sgd", "proximal", "task", "average", "interpolation", "momentum", "plain")
SLOTS = ("broadcast", "objective", "local", "server", "wire", "name")


def given() -> dict[str, Any]:
    return {"model": nn.Linear(6, 3), "clients": [(X, Y), (X.flip(0), Y)], "test": (X, Y), **LITTLE}


def shown(value: Any) -> str:
    try:
        return f"{type(value).__name__} {value!r:.80}"
    except Boom:
        return f"{type(value).__name__} without a representation"


@dataclasses.dataclass(frozen=True)
class Call:
    """A call, and what of it is of no sense."""

    words: str
    make: Callable[[], Any]


class Misuse:
    """A call ends with a result, or with one of Headway's errors in one line."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.whole = place / "whole"
        hw.simulate("scaffold", out=self.whole / "run", **given())
        hw.compare(["fedavg", "fedacg"], out=self.whole / "study", **given())

    def attempt(self, draw: random.Random) -> Attempt:
        kinds = (self.argument, self.argument, self.setting, self.client, self.client, self.network, self.network)
        other = (self.again, self.slot, self.slot, self.factory, self.watcher, self.sweep, self.scenario)
        call = draw.choice((*kinds, *other))(draw)
        return Attempt(call.words, lambda: self.play(call))

    def play(self, call: Call) -> str:
        box = self.place / "box"
        shutil.rmtree(box, ignore_errors=True)
        shutil.copytree(self.whole, box)
        with inside(box):
            try:
                call.make()
            except (UserError, ClientError, SlotError, RunsFailed) as fault:
                return one_line(fault)
            except MachineError as fault:
                raise Finding(f"a failure of the machine: {fault}") from fault
            except Boom:
                if "of the user" not in call.words:
                    raise
                return "their own error"
        return "taken"

    def _run(self, draw: random.Random, words: str, **changed: Any) -> Call:
        """One method or several, with something else in place of what is right."""
        method = draw.choice(("fedavg", "fedacg", "scaffold", "mifa"))
        arguments = {**given(), **changed}
        if draw.random() < 0.15:
            return Call(f"compare: {words}", lambda: hw.compare([method], **arguments))
        return Call(f"simulate({method}): {words}", lambda: hw.simulate(method, **arguments))

    def argument(self, draw: random.Random) -> Call:
        """An argument of simulate or compare."""
        name, value = (
            draw.choice(("method", "scenario", "model", "clients", "test", "out", "observer", "track")),
            draw.choice(VALUES),
        )
        words = f"{name}={shown(value)}"
        arguments = {"method": "fedavg", **given(), name: value}
        if draw.random() < 0.3:
            methods = value if name == "method" and draw.random() < 0.5 else [arguments["method"]]
            rest = {key: one for key, one in arguments.items() if key != "method"}
            return Call(f"compare: {words}", lambda: hw.compare(methods, **rest))
        return Call(f"simulate: {words}", lambda: hw.simulate(**arguments))

    def setting(self, draw: random.Random) -> Call:
        name = draw.choice(SETTINGS)
        pool = [value for value in VALUES if not any(value is slow for slow in SLOW.get(name, ()))]
        value = draw.choice(pool)
        changed = {name: value}
        if name in ("model", "data"):
            return Call(f"scenario: {name}={shown(value)}", lambda: hw.scenario(**changed))
        return self._run(draw, f"{name}={shown(value)}", **changed)

    def client(self, draw: random.Random) -> Call:
        every = data_sets()
        at = draw.randrange(len(every))
        name = draw.choice(("clients", "clients", "test"))
        value = [(X, Y), every[at]] if name == "clients" else every[at]
        if name == "clients" and draw.random() < 0.3:
            value = [every[at]] * draw.choice((1, 2))
        kept = {} if draw.random() < 0.7 else {"model": "linear"}
        return self._run(draw, f"{name} with data set {at}: {shown(every[at])}", **{name: value}, **kept)

    def network(self, draw: random.Random) -> Call:
        every = networks()
        at = draw.randrange(len(every))
        executor = draw.choice(("serial", "serial", "batched"))
        words = f"network {at}: {shown(every[at])}, {executor}".replace("\n", " ")
        return self._run(draw, words, model=every[at], executor=executor)

    def again(self, draw: random.Random) -> Call:
        """resume and load_run, given something else."""
        door = draw.choice((hw.resume, hw.load_run))
        arguments = {key: value for key, value in given().items() if key in ("model", "clients", "test")}
        names = ["model", "clients", "test", "method", "folder"]
        names += ["observer", "track", "accept_changes"] if door is hw.resume else []
        name = draw.choice(names)
        pool = {"model": networks(), "test": data_sets(), "clients": tuple([one] for one in data_sets())}.get(
            name, VALUES
        )
        value = draw.choice((*pool, *VALUES))
        folder: Any = value if name == "folder" else draw.choice(("run", Path("run"), "study", "nowhere"))
        if name != "folder":
            arguments[name] = value
        return Call(f"{door.__name__}({shown(folder)}): {name}={shown(value)}", lambda: door(folder, **arguments))

    def slot(self, draw: random.Random) -> Call:
        """A method with a slot of no sense, made and run."""
        slot, answer = draw.choice(SLOTS), draw.choice(ANSWERS)
        hooks = draw.sample(HOOKS, draw.choice((1, 2, 3)))
        first = {"broadcast": "message", "objective": "value", "local": "direction", "server": "update"}.get(
            slot, "encode"
        )
        value = draw.choice(
            (Slot(answer, first, *hooks), Slot(answer, first), answer, draw.choice(VALUES), (answer, answer))
        )
        number = next((at for at, one in enumerate(ANSWERS) if one is answer), -1)
        words = f"Method({slot}={shown(value)}), hooks {first}, {hooks}, answer {number}: of the user"
        arguments = {**given(), "executor": draw.choice(("serial", "serial", "batched"))}
        spelled = {slot: value} if slot == "name" else {slot: value, "name": "mine"}
        return Call(words, lambda: hw.simulate(hw.Method(**spelled), **arguments))

    def factory(self, draw: random.Random) -> Call:
        """A slot of ours with arguments of no sense, in a method that is run."""
        name, values = draw.choice(FACTORIES), [draw.choice(VALUES) for _ in range(draw.choice((1, 1, 2)))]
        slot = {
            "lookahead": "broadcast",
            "vector": "broadcast",
            "sgd": "local",
            "proximal": "objective",
            "task": "objective",
            "plain": "wire",
        }.get(name, "server")

        def made() -> Any:
            build = getattr(hw, name)
            try:
                value = build(*values) if callable(build) else build
            except TypeError as fault:
                if "argument" in str(fault):  # Python's own: a wrong number of them
                    raise UserError(str(fault)) from None
                raise
            return hw.simulate(hw.Method(name="mine", **{slot: value}), **given())

        return Call(f"{name}({', '.join(map(shown, values))}) as {slot}", made)

    def watcher(self, draw: random.Random) -> Call:
        name, spoilt = draw.choice(("begins", "round", "tell")), draw.choice((ANSWERS[13], None, 3, "x", lambda: None))
        return self._run(draw, f"observer.{name} = {shown(spoilt)} of the user", observer=Watcher(name, spoilt))

    def sweep(self, draw: random.Random) -> Call:
        name, value = draw.choice(("method", "grid", "scenario", "budget", "out", "observer")), draw.choice(VALUES)
        if name == "grid" and draw.random() < 0.5:
            value = draw.choice(
                (
                    {"rate": value},
                    {"rate": [value]},
                    {value if isinstance(value, str) else "x": [1]},
                    [value],
                    f"rate={value!s:.50}"
                    if not isinstance(value, (torch.Tensor,)) and type(value).__name__ != "Strange"
                    else "rate",
                )
            )
        arguments = {"method": "fedavg", "grid": {"rate": [0.1]}, **given(), name: value}
        return Call(f"sweep: {name}={shown(value)}", lambda: hw.sweep(**arguments))

    def scenario(self, draw: random.Random) -> Call:
        value, name, other = draw.choice(VALUES), draw.choice(SETTINGS), draw.choice(VALUES)
        door = draw.choice(
            (
                hw.scenario,
                hw.method,
                lambda one: hw.Scenario().changed(**{name: one}),
                lambda one: hw.scenario(one, **{name: other}),
            )
        )
        return Call(f"scenario or method: {shown(value)}, {name}={shown(other)}", lambda: door(value))
