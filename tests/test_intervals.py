"""What seeds say of a difference, against numbers worked out by hand and against scipy.stats."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headway.measure.intervals import Difference, holm, next_mean, next_value, paired, spread

quick = settings(deadline=None, max_examples=60)

LEVELS = st.floats(0, 100, allow_subnormal=False).map(lambda value: round(value, 4))
PAIRS = st.lists(st.tuples(LEVELS, LEVELS), min_size=3, max_size=8)

T2 = math.sqrt(2 * 0.95**2 / (1 - 0.95**2))
"""With two degrees of freedom P(|T| < t) = t / √(2 + t²), which is 0.95 at t² = 2 · 0.95² / (1 − 0.95²), t = 4.3027."""
T1 = math.tan(0.475 * math.pi)
"""With one degree of freedom P(T < t) = 1/2 + arctan(t) / π. That is 0.975 at t = tan(0.475 π) = 12.706."""


def same(one: Difference, other: Difference) -> bool:
    def near(left: float | None, right: float | None) -> bool:
        return left == right if left is None or right is None else math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-7)

    pairs = zip((one.mean, one.low, one.high, one.p), (other.mean, other.low, other.high, other.p), strict=True)
    return one.pairs == other.pairs and all(near(left, right) for left, right in pairs)


class TestPaired:
    def test_three_pairs_by_hand(self) -> None:
        """Differences −3, −2.5, −3.5: mean −3, s = 0.5, standard error s/√3, half width t · s/√3 = 1.2421.

        |T| = 3 √3 / 0.5 = 6 √3, so p = 1 − 6 √3 / √(2 + 108) = 0.0091.
        """
        found = paired([(82.0, 85.0), (81.0, 83.5), (83.0, 86.5)])
        assert (found.pairs, found.mean) == (3, pytest.approx(-3.0))
        assert found.low == pytest.approx(-3 - T2 * 0.5 / math.sqrt(3)) == pytest.approx(-4.2421, abs=1e-4)
        assert found.high == pytest.approx(-3 + T2 * 0.5 / math.sqrt(3)) == pytest.approx(-1.7579, abs=1e-4)
        assert found.p == pytest.approx(1 - 6 * math.sqrt(3) / math.sqrt(110)) == pytest.approx(0.00913, abs=1e-5)

    def test_what_the_seeds_share_would_have_hidden_it(self) -> None:
        """Seeds that differ by 20 points, methods by one: unpaired nobody could tell."""
        one, other = [40.0, 50.0, 60.0], [41.1, 51.0, 60.9]
        found = paired(list(zip(one, other, strict=True)))
        assert found.p is not None
        assert found.p < 0.01
        assert stats.ttest_ind(one, other).pvalue > 0.8

    @pytest.mark.parametrize("count", [1, 2])
    def test_fewer_than_three_pairs_have_a_mean_and_no_interval(self, count: int) -> None:
        assert paired([(1.0, 2.0), (1.0, 4.0)][:count]) == Difference(count, -1.0 if count == 1 else -2.0)

    def test_equal_differences_have_no_interval(self) -> None:
        assert paired([(10, 20), (15, 25), (18, 28)]) == Difference(3, -10)
        assert paired([(0.1 + 0.2, 0.3)] * 3) == Difference(3, pytest.approx(0, abs=1e-15)), "rounding is not a spread"

    @quick
    @given(PAIRS)
    def test_it_is_the_paired_t_of_scipy(self, values: list[tuple[float, float]]) -> None:
        found = paired(values)
        if found.low is None:
            assert len({round(one - other, 6) for one, other in values}) == 1
            return
        expected = stats.ttest_rel(*zip(*values, strict=True))
        low, high = expected.confidence_interval(0.95)
        assert (found.low, found.high) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))
        assert found.p == pytest.approx(expected.pvalue, rel=1e-5, abs=1e-12)

    @quick
    @given(PAIRS)
    def test_the_other_way_round_it_has_the_other_sign(self, values: list[tuple[float, float]]) -> None:
        one, other = paired(values), paired([(second, first) for first, second in values])
        back = None if other.low is None or other.high is None else (-other.high, -other.low)
        assert same(one, Difference(other.pairs, -other.mean, *(back or (None, None)), other.p))

    @quick
    @given(PAIRS, st.randoms(use_true_random=False))
    def test_the_order_of_the_seeds_does_not_matter(
        self, values: list[tuple[float, float]], draw: random.Random
    ) -> None:
        assert same(paired(values), paired(draw.sample(values, len(values))))

    @quick
    @given(PAIRS, st.lists(LEVELS, min_size=8, max_size=8))
    def test_what_both_values_of_a_pair_share_changes_nothing(
        self, values: list[tuple[float, float]], shared: list[float]
    ) -> None:
        moved = [(one + shift, other + shift) for (one, other), shift in zip(values, shared, strict=False)]
        assert same(paired(values), paired(moved))


class TestNext:
    def test_one_more_value_by_hand(self) -> None:
        """84, 85, 86: s = 1, so t · √(1 + 1/3) = 4.968; of two values, s = √2/2, t · √2/2 · √1.5 = 11.004."""
        assert next_value([84, 85, 86]) == pytest.approx(T2 * math.sqrt(4 / 3)) == pytest.approx(4.968, abs=1e-3)
        assert next_value([84, 85]) == pytest.approx(T1 * math.sqrt(0.5 * 1.5)) == pytest.approx(11.004, abs=1e-3)

    def test_a_prediction_interval_holds_the_next_value_in_19_of_20_cases(self) -> None:
        draw = random.Random(4)
        inside = 0
        for _ in range(4000):
            *values, further = (draw.gauss(80, 2) for _ in range(4))
            inside += abs(further - sum(values) / 3) <= next_value(values)
        assert inside / 4000 == pytest.approx(0.95, abs=0.012)  # 3.5 standard errors of a share

    def test_another_mean_by_hand(self) -> None:
        """s = d = 1 over 3 and 3 seeds: s²/n + d²/m = 2/3; Welch's are (2/3)² / (2 · (1/3)²/2) = 4 degrees."""
        assert next_mean([84, 85, 86], 1.0, 3) == pytest.approx(float(stats.t(4).ppf(0.975)) * math.sqrt(2 / 3))
        assert next_mean([84, 85, 86], 0.0, 3) == pytest.approx(T2 / math.sqrt(3)), "only ours vary"
        assert next_mean([85, 85], 1.0, 3) == pytest.approx(T2 / math.sqrt(3)), "only theirs vary"
        assert next_mean([85, 85], 0.0, 3) == 0

    def test_values_that_differ_by_rounding_have_no_spread(self) -> None:
        assert spread([0.3, 0.1 + 0.2, 0.3]) == 0
        assert spread([1.0, 2.0, 3.0]) == 1
        assert next_value([20, 20, 20]) == 0


class TestHolm:
    def test_by_hand(self) -> None:
        """0.01 · 4, 0.02 · 3, 0.03 · 2 (raised to the 0.06 before it), 0.9 · 1."""
        assert holm([0.9, 0.01, 0.03, 0.02]) == pytest.approx([0.9, 0.04, 0.06, 0.06])
        assert holm([0.5, 0.6]) == [1.0, 1.0]
        assert holm([0.04]) == [0.04]
        assert holm([]) == []

    @quick
    @given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
    def test_it_only_raises_and_keeps_the_order(self, given: list[float]) -> None:
        adjusted = holm(given)
        assert all(before <= after <= 1 for before, after in zip(given, adjusted, strict=True))
        ranked = [after for _, after in sorted(zip(given, adjusted, strict=True))]
        assert ranked == sorted(ranked)
