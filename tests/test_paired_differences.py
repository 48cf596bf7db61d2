"""Each method against the best over paired seeds: numbers with a known answer, and where a comparison shows them."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from torch import nn

from headway.measure.against_best import Against, against_best
from headway.measure.curves import Smoothed
from headway.measure.headline import ACCURACY, LAST, SMOOTHED, common_headline, headline_of, is_settled
from headway.measure.intervals import Difference
from headway.report import tables
from headway.report.figures import _draw, a_round, blank
from headway.runs.result import Result
from headway.runs.study import Study
from headway.scenario import Scenario

quick = settings(deadline=None, max_examples=60)

T2 = math.sqrt(2 * 0.95**2 / (1 - 0.95**2))
"""The 97.5 % quantile of t with two degrees of freedom, 4.3027; tests/test_intervals.py derives it."""


def seeds(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


# ── the rule ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_known_answer() -> None:
    """FedAvg − FedACG is −3, −2.5, −3.5: −3 ± 4.3027 · 0.5/√3 = [−4.24, −1.76], p = 0.0091.

    FedAvgM − FedACG is −1, −2, 0: s = 1, −1 ± 4.3027/√3 = [−3.48, 1.48], p = 1 − √3/√(2 + 3) = 0.2254. By Holm's rule
    for two methods the smaller p is doubled, to 0.018.
    """
    methods = {"fedavg": seeds(82, 81, 83), "fedavgm": seeds(84, 81.5, 86.5), "fedacg": seeds(85, 83.5, 86.5)}
    found = against_best(methods, higher_is_better=True)
    assert list(found) == ["fedavg", "fedavgm", "fedacg"]
    assert found["fedacg"] == Against("fedacg", "best")
    first, second = found["fedavg"], found["fedavgm"]
    p = 1 - 6 * math.sqrt(3) / math.sqrt(110)
    half = T2 * 0.5 / math.sqrt(3)
    assert first.difference == Difference(3, -3, *map(pytest.approx, (-3 - half, -3 + half, p)))
    assert (first.word, first.adjusted) == ("distinguishable", pytest.approx(2 * p))
    wide = T2 / math.sqrt(3)
    p = 1 - math.sqrt(3 / 5)
    assert second.difference == Difference(3, -1, *map(pytest.approx, (-1 - wide, -1 + wide, p)))
    assert (second.word, second.adjusted) == ("not distinguishable", pytest.approx(p))
    assert first.plain() == {
        "best": "fedacg",
        "verdict": "distinguishable",
        "pairs": 3,
        "difference": -3,
        "low": pytest.approx(-3 - half),
        "high": pytest.approx(-3 + half),
        "p": pytest.approx(1 - 6 * math.sqrt(3) / math.sqrt(110)),
        "p_adjusted": pytest.approx(2 - 12 * math.sqrt(3) / math.sqrt(110)),
    }


def test_one_interval_without_zero_among_many_methods_is_not_enough() -> None:
    """p = 0.0091 is below 0.05 for one method beside the best, and not where it is the least of six."""
    best, worse = seeds(85, 83.5, 86.5), seeds(82, 81, 83)
    noisy = {f"m{number}": seeds(80 + number / 7, 86 - number / 9, 81) for number in range(5)}
    alone = against_best({"fedacg": best, "fedavg": worse}, True)["fedavg"]
    among = against_best({"fedacg": best, "fedavg": worse, **noisy}, True)["fedavg"]
    assert alone.word == "distinguishable"
    assert among.word == "not distinguishable"
    assert among.difference == alone.difference
    assert among.difference is not None
    assert among.difference.high is not None
    assert among.difference.high < 0


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_seeds_tell_nothing(count: int) -> None:
    one, other = seeds(*[10.0, 10.1][:count]), seeds(*[90.0, 90.1][:count])
    found = against_best({"one": one, "other": other}, higher_is_better=True)["one"]
    assert found.word == "needs 3 seeds"
    assert found.difference == Difference(count, pytest.approx(-80))
    assert found.plain()["low"] is None


def test_only_seeds_that_both_have_are_pairs() -> None:
    best, other = {0: 85.0, 1: 83.5, 2: 86.5, 7: 85.0}, {2: 83.0, 0: 82.0, 1: 81.0, 9: 0.0}
    found = against_best({"other": other, "best": best}, True)["other"]
    assert found.difference is not None
    assert (found.difference.pairs, found.difference.mean) == (3, pytest.approx(-3))
    apart = against_best({"other": {5: 1.0, 6: 1.0, 7: 1.0}, "best": seeds(2, 2, 2)}, True)["other"]
    assert (apart.word, apart.difference) == ("needs 3 seeds", None)
    assert apart.plain() == {"best": "best", "verdict": "needs 3 seeds", "pairs": 0}


def test_a_difference_without_spread_is_reported_and_not_judged() -> None:
    found = against_best({"slow": seeds(20, 25, 28), "fast": seeds(10, 15, 18)}, higher_is_better=False)
    assert found["fast"].word == "best"
    assert (found["slow"].word, found["slow"].difference) == ("same in every seed", Difference(3, 10))


MANY = st.lists(st.lists(st.integers(0, 1000), min_size=4, max_size=4), min_size=2, max_size=5)


def words(methods: list[list[float]], order: list[int] | None = None) -> dict[str, Any]:
    places = order or list(range(4))
    named = {f"m{at}": {seed: values[seed] for seed in places} for at, values in enumerate(methods)}
    return {name: one.plain() for name, one in against_best(named, True).items()}


@quick
@given(MANY, st.randoms(use_true_random=False))
def test_the_order_of_seeds_does_not_matter(methods: list[list[float]], draw: random.Random) -> None:
    assert words(methods, draw.sample(range(4), 4)) == words(methods)


@quick
@given(MANY, st.lists(st.integers(0, 1000), min_size=4, max_size=4))
def test_what_all_methods_share_in_a_seed_changes_nothing(methods: list[list[float]], shared: list[int]) -> None:
    """The promise of pairing; whole numbers, so that sums are exact."""
    moved = [[value + shift for value, shift in zip(values, shared, strict=True)] for values in methods]
    assert words(moved) == words(methods)


# ── what a comparison leads with ─────────────────────────────────────────────────────────────────────────────────────


def run_of(name: str, seed: int, curve: list[float], every: int = 1, **settings: Any) -> Result:
    scenario = Scenario(method=name, rounds=len(curve), seed=seed, participation=0.1, **settings)
    records, state = [], Smoothed()
    for number, level in enumerate(curve, 1):
        record = {"round": number, "steps": 1, "seconds_training": 0.1, "seconds_evaluation": 0.0}
        record |= {"bytes_down_total": 1000 * number, "bytes_up_total": 500 * number, "loss": 1 - level}
        if number % every == 0:
            state = state.then(level, scenario.smoothing)
            record |= {"accuracy": level, "accuracy_smoothed": state.level}
        records.append(record)
    return Result(name, scenario, records, nn.Identity, "serial", None)


def study_of(levels: dict[str, list[float]], rounds: int = 60, **given: Any) -> Study:
    """Curves that rise to a level for each seed within some rounds."""
    return Study(
        {
            name: [
                run_of(name, seed, [level * min(1, number / 20) for number in range(1, rounds + 1)], **given)
                for seed, level in enumerate(each)
            ]
            for name, each in levels.items()
        },
        None,
    )


def test_six_rounds_are_led_by_the_last_accuracy() -> None:
    """10, 30, 45, 55, 62, 67 %: the smoothed curve, without any pull of its start, stands at 48 %."""
    study = Study({"fedavg": [run_of("fedavg", 0, [0.10, 0.30, 0.45, 0.55, 0.62, 0.67])]}, None)
    (row,) = study.summary()
    weights = [0.9**age for age in range(6)]
    smoothed = sum(w * a for w, a in zip(weights, (0.67, 0.62, 0.55, 0.45, 0.30, 0.10), strict=True)) / sum(weights)
    assert row["headline"] == "last_accuracy"
    assert (row["best_accuracy"], row["last_accuracy"], row["smoothed_accuracy"]) == (
        0.67,
        0.67,
        pytest.approx(smoothed),
    )
    heads, (texts,) = tables.cells([row])
    assert dict(zip(heads, texts, strict=True))["last accuracy %"] == "67.00"
    assert dict(zip(heads, texts, strict=True))["smoothed %"] == f"{100 * smoothed:.2f}"
    text = tables.caption([row], study.runs["fedavg"][0].scenario)
    assert "accuracy is that of the last evaluation" in text
    assert "the target is one of EMA(0.9), which is behind it in few rounds" in text
    assert study.runs["fedavg"][0].summary["headline"] == "last_accuracy"


def test_a_long_run_is_led_by_the_smoothed_accuracy() -> None:
    rows = study_of({"fedavg": [0.6], "fedacg": [0.7]}).summary()
    heads, _ = tables.cells(rows)
    assert heads[1] == "smoothed accuracy %"
    assert "last %" in heads
    assert "accuracy is EMA(0.9)" in tables.caption(rows, Scenario())


def test_evaluations_count_and_not_rounds() -> None:
    assert study_of({"fedavg": [0.6]}, rounds=60, every=2).summary()[0]["headline"] == "last_accuracy"
    assert headline_of(ACCURACY, 50, 0.9) == SMOOTHED
    assert headline_of(ACCURACY, 49, 0.9) == LAST
    assert headline_of(ACCURACY, 10, 0.5) == SMOOTHED
    assert headline_of(ACCURACY, 1000, 0.0) == LAST, "nothing is smoothed"
    assert is_settled(5, 0.0)


def test_a_curve_that_is_not_smoothed_has_one_column() -> None:
    heads, _ = tables.cells(study_of({"fedavg": [0.6], "fedacg": [0.7]}, smoothing=0.0).summary())
    assert heads[1] == "last accuracy %"
    assert "smoothed %" not in heads


def test_a_method_that_ended_early_does_not_choose_the_headline() -> None:
    assert common_headline([{"headline": "last_accuracy"}, {"headline": "smoothed_accuracy"}]) == SMOOTHED
    long, short = study_of({"fedavg": [0.6]}), study_of({"fedacg": [0.6]}, rounds=3)
    rows = Study({**short.runs, **long.runs}, None).summary()
    assert {row["headline"] for row in rows} == {"smoothed_accuracy"}


def test_a_lucky_first_round_meets_no_target_earlier() -> None:
    """The curve that counts to the target is the smoothed one, in short runs too."""
    study = Study({"fedavg": [run_of("fedavg", 0, [0.5, 0.1, 0.1, 0.3, 0.61, 0.62], target=0.6)]}, None)
    (row,) = study.summary()
    assert row["headline"] == "last_accuracy"
    assert row["rounds_to_target"] is None
    assert row["rounds_to_target_raw"] == 5


# ── in the tables ────────────────────────────────────────────────────────────────────────────────────────────────────

LEVELS = {"fedavg": [0.82, 0.81, 0.83], "fedacg": [0.85, 0.835, 0.865], "fedavgm": [0.84, 0.815, 0.865]}
SCENARIO = Scenario(participation=0.1)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return study_of(LEVELS, rounds=200, target=0.5).summary()


def test_the_summary_has_the_interval_of_the_headline_and_of_the_rounds(rows: list[dict[str, Any]]) -> None:
    """After 200 rounds, 180 of them level, the smoothed accuracy is the level within 10⁻⁸."""
    first = rows[0]["against_best"]
    assert first["difference"] == pytest.approx(-0.03, abs=1e-6)
    assert first["low"] == pytest.approx(-0.03 - T2 * 0.005 / math.sqrt(3), abs=1e-6)
    assert first["verdict"] == "distinguishable"
    assert rows[1]["against_best"] == {"best": "fedacg", "verdict": "best", "pairs": 0}
    assert rows[0]["rounds_against_best"]["difference"] > 0
    assert rows[0]["rounds_against_best"]["best"] == "fedacg"


def test_markdown_and_latex_say_what_is_distinguishable(rows: list[dict[str, Any]]) -> None:
    text = tables.markdown(rows, SCENARIO)
    assert "| −3.00 [−4.24, −1.76] distinguishable |" in text
    assert "| −1.00 [−3.48, 1.48] not distinguishable |" in text
    assert text.splitlines()[0].startswith(
        "| method | smoothed accuracy % | last % | against best | rounds to 50.0 % | rounds ag"
    )
    assert "95 % interval (paired t); distinguishable: p below 0.05 after Holm's rule" in text
    assert "$-$3.00 [$-$4.24, $-$1.76] distinguishable" in tables.latex(rows, SCENARIO)


@pytest.mark.parametrize("width", [80, 100, 140, 250])
def test_the_terminal_has_the_interval_at_every_width(rows: list[dict[str, Any]], width: int) -> None:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(tables.terminal(rows, SCENARIO, width))
    lines = captured.get().splitlines()
    at = next(number for number, line in enumerate(lines) if "fedavg " in line)
    assert "−3.00 [−4.24, −1.76]" in lines[at]
    assert "distinguishable" in (lines[at] if width == 250 else lines[at + 1])
    assert max(map(len, lines)) <= width
    assert "…" not in captured.get()
    assert any("rounds to" in line for line in lines[:4])


def test_two_seeds_need_a_third() -> None:
    rows = study_of({name: levels[:2] for name, levels in LEVELS.items()}, target=0.5).summary()
    text = tables.markdown(rows, SCENARIO)
    assert text.count("needs 3 seeds") == 4  # two methods, accuracy and rounds
    assert "[" not in text


def test_pairs_that_are_fewer_than_the_seeds_are_reported() -> None:
    study = study_of({**LEVELS, "fedavg": [*LEVELS["fedavg"], 0.82]}, rounds=200, target=0.5)
    assert "distinguishable (3 pairs)" in tables.markdown(study.summary(), SCENARIO)


def test_rounds_are_compared_where_all_seeds_reached_the_target() -> None:
    """FedAvg's second seed ends below 81.5 %."""
    rows = study_of(LEVELS, rounds=200, target=0.812).summary()
    assert rows[0]["rounds_to_target"] is None
    assert rows[0]["rounds_against_best"] is None
    assert rows[2]["rounds_against_best"]["verdict"] in ("distinguishable", "not distinguishable")
    assert rows[0]["against_best"]["verdict"] == "distinguishable"


def test_a_method_alone_is_against_nobody() -> None:
    alone = study_of({"fedavg": LEVELS["fedavg"]}).summary()
    assert tables.AGAINST not in tables.cells(alone)[0]
    assert "paired" not in tables.markdown(alone, SCENARIO)


def test_losses_are_compared_by_the_least() -> None:
    study = study_of({"fedavg": [0.2, 0.1, 0.3], "fedacg": [0.5, 0.45, 0.55]})
    numeric = {
        name: [
            dataclasses.replace(
                one,
                records=[
                    {key: value for key, value in record.items() if "accuracy" not in key} | {"rmse": 1.0, "r2": 0.0}
                    for record in one.records
                ],
            )
            for one in results
        ]
        for name, results in study.runs.items()
    }
    rows = Study(numeric, None).summary()
    assert [row["against_best"]["verdict"] for row in rows] == ["distinguishable", "best"]
    assert "| +0.3000 [0.1758, 0.4242] distinguishable |" in tables.markdown(rows, SCENARIO)


@pytest.mark.parametrize(("rounds", "level"), [(6, 18.0), (60, 59.76)])
def test_the_picture_of_a_short_run_is_of_the_raw_accuracy(rounds: int, level: float) -> None:
    """0.6 · 6/20 is 18 %, smoothed it is less; after 60 rounds the thick line is the smoothed one."""
    axes = blank(4, 3).subplots()
    _draw(axes, study_of({"fedavg": [0.6]}, rounds=rounds), a_round)
    thick = next(one for one in axes.lines if one.get_label() == "fedavg")
    assert float(np.asarray(thick.get_ydata())[-1]) == pytest.approx(level, abs=0.01)
