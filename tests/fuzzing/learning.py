"""Misuse of what is learnt and watched: tasks, metrics, callbacks, clients' test sets, padding, optimisers, schedules.

A call that is taken is checked: the numbers that its last round records are those of an independent pass of its model.
"""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import headway as hw
from fuzzing.attempts import Attempt, Finding
from fuzzing.datafiles import one_line
from fuzzing.misuse import LITTLE, shown
from fuzzing.objects import ANSWERS, VALUES, Boom, X, Y, _raises, data_sets
from fuzzing.shell import inside
from fuzzing.words import METHODS, METRICS, SCHEDULES, SPELLINGS, TASKS
from headway.errors import CallbackError, ClientError, RunsFailed, SlotError, UserError

TOKENS = (X * 4).long().remainder(5)
NUMBERS = X[:, :2] * 3
BITS = (X[:, :3] > 0).float()


def _two_layers(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, outputs))


def _embedded() -> nn.Module:
    return nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5))


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 3), nn.Linear(2, 3)

    def forward(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
        return {"logits": self.left(left) + self.right(right), "hidden": left}


@dataclass(frozen=True)
class Problem:
    """Samples that a model of its kind can learn, and the loss as PyTorch has it."""

    x: Any
    y: Tensor
    model: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    settings: dict[str, Any]


PROBLEMS: dict[str, Problem] = {
    "classes": Problem(X, Y, lambda: _two_layers(3), F.cross_entropy, {}),
    "numbers": Problem(X, NUMBERS, lambda: _two_layers(2), F.mse_loss, {}),
    "labels": Problem(X, BITS, lambda: _two_layers(3), F.binary_cross_entropy_with_logits, {"task": "multilabel"}),
    "one label": Problem(
        X,
        BITS[:, 0],
        lambda: _two_layers(1),
        lambda out, y: F.binary_cross_entropy_with_logits(out[:, 0], y),
        {"task": "binary"},
    ),
    "tokens": Problem(
        TOKENS,
        TOKENS.roll(1, 1),
        _embedded,
        lambda out, y: F.cross_entropy(out.transpose(1, 2), y),
        {"task": "tokens"},
    ),
    "two inputs": Problem({"left": X, "right": X[:, :2]}, Y, TwoInputs, F.cross_entropy, {}),
}


# ── what is given ────────────────────────────────────────────────────────────────────────────────────────────────────


def _absolute(output: Any, target: Any) -> Tensor:
    return (output.reshape(len(target), -1) - target.reshape(len(target), -1)).abs().double().mean(1)


def _first(output: Any, target: Any) -> Tensor:
    return output.reshape(len(output), -1)[:, 0]


def _lower(output: Any, target: Any) -> Tensor:
    return _first(output, target)


_lower.lower_is_better = True  # type: ignore[attr-defined]


def loss(output: Any, target: Any) -> Tensor:
    return _first(output, target)


def accuracy(output: Any, target: Any) -> Tensor:
    return _first(output, target)


FUNCTIONS: tuple[Any, ...] = (
    *(
        _absolute,
        _first,
        _lower,
        loss,
        accuracy,
        _raises,
        len,
        nn.HuberLoss(),
        nn.MSELoss(reduction="none"),
        F.mse_loss,
    ),
    *(lambda output, target: output, lambda output, target: target, lambda output: output, lambda *given: None),
    *(lambda output, target: output.sum(), lambda output, target: _first(output, target) * math.nan),
    *(lambda output, target: _first(output, target) > 0, lambda output, target: _first(output, target)[:1]),
    *(lambda output, target: _first(output, target).long(), lambda output, target: _first(output, target).sqrt()),
    *(lambda output, target: [1.0] * len(target), lambda output, target: _first(output, target).item()),
    *(lambda output, target: _first(output, target).detach(), lambda output, target: _first(output.mul_(0), target)),
    *(lambda output, target: _first(output, target) + 1e300, lambda output, target: output["logits"].square().mean(1)),
    *(lambda output, target: _first(output, target) - _first(output, target).mean(), nn.CrossEntropyLoss),
)


def _metrics(draw: random.Random) -> Any:
    """A metric, several, or what is none."""
    made = draw.choice(
        (
            lambda: draw.choice(FUNCTIONS),
            lambda: draw.choice(METRICS),
            lambda: draw.choice(VALUES),
            lambda: hw.Metric("mine", draw.choice(FUNCTIONS), draw.choice((*FUNCTIONS, torch.mean, float))),
            lambda: hw.Metric(draw.choice(("mine", *VALUES)), lambda judged: judged.losses, torch.mean, *_flags(draw)),  # type: ignore[arg-type]
        )
    )
    return made() if draw.random() < 0.3 else [made() for _ in range(draw.choice((1, 1, 2)))]


def _flags(draw: random.Random) -> list[Any]:
    return [draw.choice((True, False, *VALUES)) for _ in range(draw.choice((0, 1, 2)))]


def _task(draw: random.Random) -> Any:
    if draw.random() < 0.5:
        return draw.choice((*FUNCTIONS, *FUNCTIONS, *TASKS, *VALUES))
    parts = [draw.choice((*FUNCTIONS, *VALUES)) for _ in range(draw.choice((2, 3, 4)))]
    good: list[Any] = ["mine", _absolute, "my loss", (hw.Metric("mine", lambda judged: judged.losses, torch.mean),)]  # type: ignore[arg-type]
    at = draw.randrange(4)
    return hw.Task(*[*good[:at], parts[0], *good[at + 1 :]], *parts[2:])


class Called:
    """A callback one of whose hooks or attributes is spoilt."""

    def __init__(self, name: str, spoilt: Any) -> None:
        setattr(self, name, spoilt)


def _asks(what: str, value: Any) -> Callable[[Any], object]:
    """A callback that asks its run for something."""

    def asks(run: Any) -> object:
        return {
            "evaluate": lambda: run.evaluate(value),
            "metrics": lambda: run.evaluate((X, Y), value),
            "padding": lambda: run.evaluate((X, Y), padding=value),
            "stop": lambda: run.stop(value),
            "tell": lambda: run.tell(str(type(value))),
            "record": lambda: run.record.update({"loss": value}),
            "updates": lambda: run.updates,
        }[what]()

    return asks


def _callback(draw: random.Random) -> Any:
    value = draw.choice((*VALUES, *data_sets()))
    kinds = (
        lambda: _asks(draw.choice(("evaluate", "evaluate", "metrics", "padding", "stop", "record", "updates")), value),
        lambda: Called(draw.choice(("on_start", "on_round", "on_end", "on_rounds", "needs", "may_fail")), value),
        lambda: Called(draw.choice(("on_start", "on_round", "on_end")), draw.choice(ANSWERS)),
        lambda: hw.EarlyStopping(
            *[draw.choice((*VALUES, "loss", "accuracy_smoothed")) for _ in range(draw.choice((1, 2)))]
        ),
        lambda: hw.EarlyStopping("loss", draw.choice(VALUES), draw.choice(VALUES)),
        lambda: hw.KeepBest(draw.choice((*VALUES, "loss", "rate")), draw.choice((None, True, *VALUES))),
        lambda: value,
    )
    return draw.choice(kinds)()


def _tests(draw: random.Random, problem: Problem) -> Any:
    """Test sets of clients."""
    good = (problem.x, problem.y)
    pool = (good, good, None, *data_sets())
    chosen = [draw.choice(pool) for _ in range(draw.choice((1, 2, 2, 2, 3)))]
    return draw.choice((chosen, tuple(chosen), dict(enumerate(chosen)), {"a": chosen[0]}, draw.choice(VALUES)))


PADDINGS = (
    0,
    -1,
    0.5,
    1e300,
    300,
    math.nan,
    True,
    "0",
    None,
    {"input": 0},
    {"inputs": 0},
    {"target": 1},
    {1: 2},
    {},
    [0],
)


def _ragged(draw: random.Random) -> list[Any]:
    """Samples of several lengths."""
    kinds = (torch.int64, torch.float32, torch.uint8, torch.bool)
    kind, labels = draw.choice(kinds), draw.choice(kinds)
    lengths = [draw.choice((1, 2, 3, 6)) for _ in range(8)]
    return [(torch.ones(length, dtype=kind), torch.ones(length, dtype=labels)) for length in lengths]


# ── a case ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Learning:
    """A run with something of no sense in what is learnt, judged or called."""

    def __init__(self, place: Path) -> None:
        self.box = place / "box"

    def attempt(self, draw: random.Random) -> Attempt:
        name = draw.choice(list(PROBLEMS))
        problem = PROBLEMS[name]
        what = draw.choice(("task", "metrics", "metrics", "callbacks", "callbacks", "test", "padding", "words"))
        try:
            given = self.given(problem, what, draw)
        except UserError as fault:  # made of no sense before any run
            line = str(fault)
            return Attempt(f"{name}: {what}: {line}", lambda: one_line(UserError(line)))
        told = {key: value for key, value in given.items() if key not in LITTLE and key != "clients"}
        words = f"{name}, {what}: {', '.join(f'{key}={_in_words(value)}' for key, value in told.items())}"
        return Attempt(words[:1500], lambda: self.play(problem, given))

    def given(self, problem: Problem, what: str, draw: random.Random) -> dict[str, Any]:
        sound = (problem.x, problem.y)
        given: dict[str, Any] = {"clients": [sound, sound], "test": sound, **LITTLE, **problem.settings}
        given |= {"method": draw.choice(METHODS[:4]), "executor": draw.choice(("serial", "serial", "batched"))}
        if what == "task":
            given["task"] = _task(draw)
            given |= {"metrics": _metrics(draw)} if draw.random() < 0.4 else {}
        elif what == "metrics":
            given["metrics"] = _metrics(draw)
        elif what == "callbacks":
            given["callbacks"] = [_callback(draw) for _ in range(draw.choice((1, 1, 2)))]
        elif what == "test":
            given["test"] = _tests(draw, problem)
        elif what == "padding":
            given |= {"padding": draw.choice(PADDINGS)}
            given |= {"clients": [_ragged(draw)], "test": _ragged(draw)} if draw.random() < 0.7 else {}
        else:
            given["method"] = draw.choice((*METHODS, *SPELLINGS))
            given["schedule"] = draw.choice(SCHEDULES)
            given |= {"rounds": 2, "keep_best": draw.random() < 0.3}
        return given

    def play(self, problem: Problem, given: dict[str, Any]) -> str:
        shutil.rmtree(self.box, ignore_errors=True)
        self.box.mkdir(parents=True)
        with inside(self.box):
            try:
                result = hw.simulate(model=problem.model(), **given)
            except (UserError, ClientError, SlotError, RunsFailed, CallbackError) as fault:
                return one_line(fault)
            except Boom:
                raise Finding("an error of the user's own code has no place") from None
        return checked(problem, given, result)


def checked(problem: Problem, given: dict[str, Any], result: hw.Result) -> str:
    """What was taken is right: the loss, and metrics of the user's own, are those of a pass by hand."""
    record = result.records[-1]
    for name, value in record.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Finding(f"the record has {name} = {value}")
    test = given["test"]
    if isinstance(test, tuple) and len(test) == 2 and test[1] is problem.y:
        with torch.no_grad():
            model = result.model.eval()
            answer = model(**problem.x) if isinstance(problem.x, dict) else model(problem.x)
            output = answer["logits"] if isinstance(answer, dict) else answer
            _check_numbers(problem, given, record, output)
    return "taken"


def _check_numbers(problem: Problem, given: dict[str, Any], record: Any, output: Tensor) -> None:
    named = problem.settings.get("task")
    if given.get("task", named) is named:
        _check(record, "loss", float(problem.loss(output, problem.y)))
    metrics = given.get("metrics")
    metrics = metrics if isinstance(metrics, list) else [metrics]
    for one in metrics:
        if one is _absolute or one is _first:
            _check(record, one.__name__, float(one(output, problem.y).double().mean()))
    if "rmse" in record:
        _check(record, "rmse", float((output.reshape(8, -1) - problem.y.reshape(8, -1)).square().mean().sqrt()))
    own = any(one is accuracy for one in metrics)
    if "accuracy" in record and problem.loss is F.cross_entropy and not own:
        _check(record, "accuracy", float((output.argmax(1) == problem.y).double().mean()))


def _check(record: Any, name: str, by_hand: float) -> None:
    if not math.isclose(record[name], by_hand, rel_tol=1e-4, abs_tol=1e-5):
        raise Finding(f"{name} is recorded as {record[name]}, and is {by_hand}")


def _in_words(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_in_words, value))}]"
    if hasattr(value, "__code__"):
        return f"<{value.__name__} of line {value.__code__.co_firstlineno}>"
    return " ".join(shown(value).split())
