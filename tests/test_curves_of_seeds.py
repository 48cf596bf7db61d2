"""Curves of several seeds: values of one round belong together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headway.report.figures import a_round, blank, curve, mean_line


def evaluated(*rounds: int, scale: float = 1.0, missing: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Records whose loss and bytes tell their round; some have no loss."""
    return [
        {"round": number, "bytes": scale * number, **({} if number in missing else {"loss": scale * number})}
        for number in rounds
    ]


def test_an_evaluation_without_the_value_shifts_no_other() -> None:
    places, values = curve([evaluated(1, 2, 3, 4), evaluated(1, 2, 3, 4, missing=(2,))], "loss", a_round)
    assert places.tolist() == [1, 3, 4]
    assert values.tolist() == [[1, 3, 4], [1, 3, 4]]


@pytest.mark.parametrize("turned", [False, True])
def test_seeds_evaluated_at_other_rounds_meet_where_both_were(turned: bool) -> None:
    seeds = [evaluated(1, 2, 3, 4, 5, 6, 7), evaluated(2, 4, 6, 8, scale=10)]
    places, values = curve(seeds[::-1] if turned else seeds, "loss", a_round)
    assert places.tolist() == [2, 4, 6]
    assert sorted(values.tolist()) == [[2, 4, 6], [20, 40, 60]]


def test_a_place_that_differs_between_seeds_is_their_mean() -> None:
    places, _ = curve([evaluated(1, 2), evaluated(1, 2, scale=3)], "loss", lambda record: float(record["bytes"]))
    assert places.tolist() == [2, 4]


def test_accuracies_are_percentages() -> None:
    _, values = curve([[{"round": 1, "accuracy": 0.5}]], "accuracy", a_round)
    assert values.tolist() == [[50]]


def test_seeds_without_a_common_round_have_an_empty_curve() -> None:
    places, values = curve([evaluated(1, 3), evaluated(2, 4)], "loss", a_round)
    assert places.shape == (0,)
    assert values.shape == (2, 0)
    axes = blank(2, 2).subplots()
    mean_line(axes, places, values, color="black")
    assert np.asarray(axes.lines[0].get_xdata()).size == 0
