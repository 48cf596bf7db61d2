"""Schedules of the rate: PyTorch's own, over rounds and over steps, and what a run makes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

import headway as hw
from conftest import SMALL, distance, experiment, played, unequal_clients
from headway.engine.client_rounds import Turn
from headway.errors import UserError
from headway.runs.resume import lengthen
from headway.schedules import KINDS, schedule

ROUNDS, STEPS, RATE = 12, 6, 0.4

Course = Callable[[torch.optim.Optimizer, int], Any]


def pytorch(course: Course, total: int, unit: int) -> np.ndarray:
    """The rates of a scheduler of PyTorch's; a round has `unit` of its steps."""
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], RATE)
    scheduler = course(optimiser, unit)
    rates = []
    for _ in range(total):
        rates.append(scheduler.get_last_lr()[0])
        optimiser.step()
        scheduler.step()
    return np.array(rates)


def warmed(rounds: int, start: float, course: Course) -> Course:
    def both(optimiser: torch.optim.Optimizer, unit: int) -> Any:
        rising = lr_scheduler.LinearLR(optimiser, start, total_iters=rounds * unit)
        return lr_scheduler.SequentialLR(optimiser, [rising, course(optimiser, unit)], [rounds * unit])

    return both


PYTORCH: dict[str, Course] = {
    "exponential": lambda o, unit: lr_scheduler.ExponentialLR(o, 0.998 ** (1 / unit)),
    "constant": lambda o, unit: lr_scheduler.ConstantLR(o, 1.0),
    "cosine": lambda o, unit: lr_scheduler.CosineAnnealingLR(o, ROUNDS * unit),
    "cosine:end=0.1": lambda o, unit: lr_scheduler.CosineAnnealingLR(o, ROUNDS * unit, 0.1 * RATE),
    "cosine:rounds=20": lambda o, unit: lr_scheduler.CosineAnnealingLR(o, 20 * unit),
    "linear:end=0.2": lambda o, unit: lr_scheduler.LinearLR(o, 1.0, 0.2, ROUNDS * unit),
    "linear:end=0.2,rounds=8": lambda o, unit: lr_scheduler.LinearLR(o, 1.0, 0.2, 8 * unit),
    "step:every=3": lambda o, unit: lr_scheduler.StepLR(o, 3 * unit, 0.1),
    "step:every=5,factor=0.5": lambda o, unit: lr_scheduler.StepLR(o, 5 * unit, 0.5),
    "constant:warmup=4,start=0.25": lambda o, unit: lr_scheduler.LinearLR(o, 0.25, total_iters=4 * unit),
    "cosine:warmup=2,start=0.5": warmed(2, 0.5, lambda o, unit: lr_scheduler.CosineAnnealingLR(o, (ROUNDS - 2) * unit)),
    "exponential:warmup=3,start=0.1": warmed(
        3, 0.1, lambda o, unit: lr_scheduler.ExponentialLR(o, 0.998 ** (1 / unit))
    ),
    "step:every=3,warmup=3": warmed(3, 0.01, lambda o, unit: lr_scheduler.StepLR(o, 3 * unit, 0.1)),
}
"""Each over rounds (a unit is a round) and over steps (a round has K units)."""


def rates(text: str, **settings: Any) -> list[np.ndarray]:
    """The rates of a client's steps in every round, as they reach it."""
    chosen = experiment("fedavg", rounds=ROUNDS, steps=STEPS, rate=RATE, rate_decay=0.998, schedule=text, **settings)
    turns = (Turn(round, (0,), np.ones(1)) for round in range(1, ROUNDS + 1))
    return [chosen.client_rounds.client_round(turn, 0, None).arrays.rates for turn in turns]


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize("text", PYTORCH)
def test_a_schedule_is_pytorch_s(text: str) -> None:
    """Over rounds one rate for a round; over steps a rate for each."""
    by_round = rates(text)
    assert all((one == one[0]).all() for one in by_round)
    found = np.array([one[0] for one in by_round])
    assert np.abs(found - pytorch(PYTORCH[text], ROUNDS, 1)).max() < 1e-12
    by_step = np.concatenate(rates(f"{text}{',' if ':' in text else ':'}over=steps"))
    assert np.abs(by_step - pytorch(PYTORCH[text], ROUNDS * STEPS, STEPS)).max() < 1e-12
    assert (np.concatenate([found, by_step]) > 0).all()


def test_every_kind_is_compared() -> None:
    assert {text.partition(":")[0] for text in PYTORCH} == set(KINDS)


def test_the_default_is_what_it_was_before_there_were_schedules() -> None:
    """η · d^(t−1) · d_e^e, to the bit."""
    chosen = experiment("fedavg", rounds=ROUNDS, epochs=3, rate=RATE, rate_decay=0.9, rate_decay_epoch=0.7)
    assert chosen.scenario.schedule == "exponential"
    for round in (1, 5, 12):
        client = chosen.client_rounds.client_round(Turn(round, (1,), np.ones(1)), 0, None)
        assert chosen.rate(round) == RATE * 0.9 ** (round - 1)
        epochs = np.arange(client.steps) // (client.steps // 3)
        assert client.arrays.rates.tolist() == (RATE * 0.9 ** (round - 1) * 0.7**epochs).tolist()


@pytest.mark.parametrize("text", ["cosine:over=steps,end=0.1,warmup=1", "linear:end=0.5", "step:every=2,over=steps"])
def test_executors_agree_on_schedules_and_unequal_clients_end_together(text: str) -> None:
    """A client of fewer steps goes through the same course; formulas with Ση hold, as SCAFFOLD's."""
    chosen = experiment("scaffold", schedule=text)
    (records, end), (_, other), (_, pooled) = (played(chosen, executor) for executor in ("serial", "batched", "pool"))
    for reached in (other, pooled):
        assert distance([end.model.theta, end.model.server], [reached.model.theta, reached.model.server]) < 1e-10
    assert [record["rate"] for record in records] == [chosen.rate(round) for round in range(1, 5)]
    course = schedule(text)
    small, large = (course.shares(3, steps, 4, 0.998) for steps in (2, 12))
    assert small[0] == large[0]
    assert small[1] == pytest.approx(large[6])


def test_a_cut_round_keeps_the_rates_of_a_whole_one() -> None:
    """Clients that drop out stop in the middle of the course of their round."""
    chosen = experiment("fedavg", schedule="cosine:over=steps", steps=6)
    whole, cut = (
        chosen.client_rounds.client_round(Turn(2, (1,), np.ones(1), truncated), 0, None).arrays.rates
        for truncated in ({}, {0: 4})
    )
    assert cut.tolist() == whole[:4].tolist()


REFUSED = {
    "cosin": "did you mean 'cosine'",
    "cosine:warmup=4": "warmup is 4; it must be below the 4 rounds of cosine",
    "cosine:rounds=3": "is at rate 0 after 3 of 4 rounds; give it an end above 0",
    "linear:end=2": "end is 2; it must be at least 0 and at most 1",
    "linear:ends=0": "has no option 'ends'; did you mean 'end'",
    "step": "needs its length: step:every=30",
    "step:every=0": "every is 0; it must be above 0",
    "step:every=two": "every is 'two'; it must be a number",
    "constant:every=2": "schedule 'constant' has no option 'every'",
    "constant:start=nan,warmup=1": "start is nan",
    "exponential:over=epochs": "over is 'epochs'; allowed: rounds, steps",
    "cosine:end=0.1,end=0.2": "option 'end' is given twice",
    "cosine:": "has no option ''",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_schedule_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UserError) as refusal:
        SMALL.changed(schedule=text)
    assert REFUSED[text] in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_decay_that_nothing_reads_is_refused() -> None:
    with pytest.raises(UserError, match=r"rate_decay is 0\.9, which schedule 'cosine' does not use"):
        SMALL.changed(schedule="cosine", rate_decay=0.9)
    SMALL.changed(schedule="cosine", rate_decay=1.0)


def test_a_course_over_the_run_ties_it_to_its_rounds(tmp_path: Path) -> None:
    """More rounds would change the rates of the first ones: refused, unless the schedule says when it ends."""
    for text, name in (("cosine", "tied"), ("cosine:rounds=9,end=0.1", "free")):
        given = SMALL.changed(rounds=3, schedule=text, executor="serial")
        hw.simulate("fedavg", given, model="mlp", out=tmp_path / name, **unequal_clients())
    with pytest.raises(UserError, match="one of more rounds is another run; say when it ends: cosine:rounds=N"):
        lengthen(tmp_path / "tied", 5)
    settings = tmp_path / "tied" / "scenario.toml"
    settings.write_text(settings.read_text().replace("rounds = 3", "rounds = 5"))
    (tmp_path / "tied" / "summary.json").unlink()
    with pytest.raises(UserError, match="rounds is 5"):
        hw.resume(tmp_path / "tied", model=None, **unequal_clients())
    lengthen(tmp_path / "free", 5)
    longer = hw.resume(tmp_path / "free", **unequal_clients())
    scenario = SMALL.changed(rounds=5, schedule="cosine:rounds=9,end=0.1", executor="serial")
    whole = hw.simulate("fedavg", scenario, model="mlp", **unequal_clients())
    assert [one["train_loss"] for one in longer.records] == [one["train_loss"] for one in whole.records]


def test_a_sweep_with_a_budget_needs_a_schedule_that_says_when_it_ends() -> None:
    given: dict[str, Any] = {"model": "mlp", "executor": "serial", "validation": 0.3, **unequal_clients()}
    with pytest.raises(UserError, match="one of more rounds is another run"):
        hw.sweep("fedavg", {"rate": [0.1, 0.2, 0.3]}, SMALL.changed(schedule="cosine"), budget=6, **given)
