"""The numbers the papers report, from records made by hand, and the table they are printed in."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from headway.measure.curves import Crossing, Smoothed, crossing, level_at, top
from headway.measure.summary import common_target, over_seeds, summarise
from headway.report import tables
from headway.report.units import UNITS, unit_of_axis, unit_of_column
from headway.scenario import Scenario

quick = settings(deadline=None, max_examples=60)

LEVELS = st.floats(0, 1)
KEEPS = st.floats(0, 0.99)


def smoothed(values: list[float], keep: float) -> list[float]:
    state, levels = Smoothed(), []
    for value in values:
        state = state.then(value, keep)
        levels.append(state.level)
    return levels


class TestSmoothed:
    @quick
    @given(LEVELS, KEEPS)
    def test_after_one_value_it_is_that_value(self, value: float, keep: float) -> None:
        assert smoothed([value], keep)[0] == pytest.approx(value, rel=1e-12)

    @quick
    @given(LEVELS, KEEPS, st.integers(1, 50))
    def test_a_constant_curve_stays(self, value: float, keep: float, count: int) -> None:
        assert smoothed([value] * count, keep) == pytest.approx([value] * count, rel=1e-9)

    @quick
    @given(st.lists(LEVELS, min_size=1, max_size=30), KEEPS)
    def test_it_stays_between_the_lowest_and_the_highest_value(self, values: list[float], keep: float) -> None:
        assert min(values) - 1e-9 <= smoothed(values, keep)[-1] <= max(values) + 1e-9

    @quick
    @given(st.lists(LEVELS, min_size=1, max_size=30), KEEPS)
    def test_it_is_the_mean_with_weights_keep_to_the_age(self, values: list[float], keep: float) -> None:
        weights = [keep ** (len(values) - 1 - place) for place in range(len(values))]
        mean = sum(w * value for w, value in zip(weights, values, strict=True)) / sum(weights)
        assert smoothed(values, keep)[-1] == pytest.approx(mean, abs=1e-9)

    def test_after_many_values_it_is_the_plain_moving_average(self) -> None:
        """s ← 0.9 s + 0.1 a from s = 0; what the start weighs is 0.9³⁰⁰ = 2e-14."""
        values = [0.5 + 0.4 * math.sin(place) for place in range(300)]
        plain = 0.0
        for value in values:
            plain = 0.9 * plain + 0.1 * value
        assert smoothed(values, 0.9)[-1] == pytest.approx(plain, rel=1e-12)
        assert smoothed(values[:3], 0.9)[-1] != pytest.approx(0.1 * (0.81 * values[0] + 0.9 * values[1] + values[2]))

    def test_keeping_nothing_is_the_raw_curve(self) -> None:
        assert smoothed([0.3, 0.1, 0.7], 0.0) == [0.3, 0.1, 0.7]

    def test_a_known_curve(self) -> None:
        assert smoothed([0.0, 1.0, 1.0], 0.5) == pytest.approx([0, 2 / 3, 6 / 7])


def record(round: int, **numbers: float) -> dict[str, float]:
    """A round in which 10 bytes went down and 3 up, 4 steps were made and 1.5 + 0.5 seconds passed."""
    given = {"bytes_down_total": 10 * round, "bytes_up_total": 3 * round, "steps": 4}
    return {"round": round, **given, "seconds_training": 1.5, "seconds_evaluation": 0.5, **numbers}


RECORDS = [
    record(1, accuracy=0.2, accuracy_smoothed=0.2, loss=2.0, client_accuracy_std=0.1, client_accuracy_low=0.05),
    record(2),
    record(3, accuracy=0.8, accuracy_smoothed=0.5, loss=1.5, client_accuracy_std=0.2, client_accuracy_low=0.15),
    record(4, accuracy=0.4, accuracy_smoothed=0.45, loss=1.4, client_accuracy_std=0.3, client_accuracy_low=0.25),
    record(5),
    record(6, accuracy=0.7, accuracy_smoothed=0.6, loss=1.1, client_accuracy_std=0.4, client_accuracy_low=0.35),
    record(7),
]


class TestCrossing:
    @pytest.mark.parametrize(
        ("curve", "target", "round"),
        [
            ("accuracy", 0.8, 3),
            ("accuracy", 0.5, 3),
            ("accuracy", 0.2, 1),
            ("accuracy_smoothed", 0.5, 3),
            ("accuracy_smoothed", 0.51, 6),
            ("accuracy_smoothed", 0.6, 6),
        ],
    )
    def test_the_first_evaluated_round_that_is_at_least_the_target(self, curve: str, target: float, round: int) -> None:
        found = crossing(RECORDS, curve, target)
        assert found == Crossing(round, 10 * round, 3 * round)
        assert found.bytes == 13 * round

    @pytest.mark.parametrize(("curve", "target"), [("accuracy", 0.81), ("accuracy_smoothed", 0.8), ("accuracy", None)])
    def test_never(self, curve: str, target: float | None) -> None:
        assert crossing(RECORDS, curve, target) is None

    def test_no_record_and_no_evaluation(self) -> None:
        assert crossing([], "accuracy", 0.1) is None
        assert crossing([record(1), record(2)], "accuracy", 0.0) is None

    @quick
    @given(st.lists(LEVELS, min_size=1, max_size=20), LEVELS, LEVELS)
    def test_a_higher_target_is_not_reached_earlier(self, values: list[float], one: float, other: float) -> None:
        records = [record(number + 1, accuracy=value) for number, value in enumerate(values)]
        low, high = (crossing(records, "accuracy", target) for target in sorted((one, other)))
        assert high is None or (low is not None and low.round <= high.round)


class TestLevels:
    @pytest.mark.parametrize(
        ("round", "level"), [(1, 0.2), (2, 0.2), (3, 0.8), (5, 0.4), (6, 0.7), (99, 0.7), (0, None)]
    )
    def test_the_last_value_at_or_before_a_round(self, round: int, level: float | None) -> None:
        assert level_at(RECORDS, "accuracy", round) == level

    def test_a_curve_that_was_not_measured_has_no_level(self) -> None:
        assert level_at(RECORDS, "drift", 7) is None

    def test_top_is_the_largest_raw_accuracy(self) -> None:
        assert top(RECORDS) == 0.8
        assert top([record(1)]) is None


class TestSummary:
    def test_a_run_by_hand(self) -> None:
        assert summarise(RECORDS, 0.55) == {
            "rounds": 7,
            "measured_on": "test",
            "headline": "last_accuracy",
            "smoothed_accuracy": 0.6,
            "last_accuracy": 0.7,
            "best_accuracy": 0.8,
            "accuracy": 0.6,
            "accuracy_raw": 0.7,
            "accuracy_top": 0.8,
            "loss": 1.1,
            "rmse": None,
            "r2": None,
            "client_scores": "proxy",
            "client_metric": "accuracy",
            "clients_judged": None,
            "client_mean": None,
            "client_std": None,
            "client_worst": None,
            "client_quantiles": None,
            "client_accuracy_std": 0.4,
            "client_accuracy_low": 0.35,
            "target": 0.55,
            "rounds_to_target": 6,
            "rounds_to_target_raw": 3,
            "bytes_to_target": 78,
            "bytes_down": 70,
            "bytes_up": 21,
            "bytes_per_round": 13.0,
            "steps": 28,
            "padding": None,
            "seconds": 14.0,
        }

    def test_padding_is_a_share_of_all_that_was_computed(self) -> None:
        """30 of 40 samples in one round and 60 of 60 in another: 10 of 100 only filled a shape."""
        rounds = [
            record(1, samples=30, padding=0.25),
            record(2, samples=60, padding=0.0),
            record(3, samples=0, padding=0.0),
        ]
        assert summarise(rounds, None)["padding"] == pytest.approx(0.1)

    def test_a_target_that_is_out_of_reach_or_not_given(self) -> None:
        for target in (0.99, None):
            found = summarise(RECORDS, target)
            assert found["target"] == target
            assert found["rounds_to_target"] is found["rounds_to_target_raw"] is found["bytes_to_target"] is None

    def test_a_run_without_records(self) -> None:
        found = summarise([], 0.5)
        assert (found["rounds"], found["accuracy"], found["bytes_per_round"], found["steps"]) == (0, None, 0, 0)

    def test_numbers_as_targets_have_a_loss_and_no_accuracy(self) -> None:
        found = summarise([record(1, loss=3.0)], 0.5)
        assert found["loss"] == 3.0
        assert found["accuracy"] is found["accuracy_top"] is found["rounds_to_target"] is None


def summary(**changed: Any) -> dict[str, Any]:
    """Of a run that is long enough for its smoothed accuracy."""
    return {**summarise(RECORDS, 0.55), "headline": "smoothed_accuracy", **changed}


class TestOverSeeds:
    def test_mean_and_deviation_with_one_less_than_n(self) -> None:
        found = over_seeds("fedavg", [summary(accuracy=value) for value in (0.5, 0.6, 0.7)])
        assert (found["name"], found["seeds"], found["target"], found["rounds"]) == ("fedavg", 3, 0.55, 7)
        assert found["accuracy"] == pytest.approx(0.6)
        assert found["accuracy_std"] == pytest.approx(0.1)
        assert found["steps"] == 28
        assert found["steps_std"] == 0

    def test_one_seed_has_no_deviation(self) -> None:
        found = over_seeds("fedavg", [summary()])
        assert found["accuracy"] == 0.6
        assert found["accuracy_std"] is None
        assert found["rounds_to_target_each"] == [6]

    def test_a_target_that_some_seed_did_not_reach_has_no_mean(self) -> None:
        given = [summary(), summary(rounds_to_target=None, bytes_to_target=None), summary(rounds_to_target=4)]
        found = over_seeds("fedavg", given)
        assert found["rounds_to_target"] is found["rounds_to_target_std"] is None
        assert found["rounds_to_target_each"] == [6, None, 4]
        assert found["seeds_reaching_target"] == 2
        assert found["rounds_to_target_raw"] == 3

    def test_rounds_are_those_of_the_longest_seed(self) -> None:
        assert over_seeds("fedavg", [summary(rounds=3), summary(rounds=9)])["rounds"] == 9


class TestCommonTarget:
    def test_the_median_methods_least_seed(self) -> None:
        """Of methods ending at .5/.6, .7/.8 and .9/.9 the median one surely reaches .7."""
        finals = [[{"smoothed_accuracy": value} for value in seeds] for seeds in ((0.5, 0.6), (0.7, 0.8), (0.9, 0.9))]
        assert common_target(finals) == 0.7


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────────

ACCURACY, ROUNDS, TRAFFIC = "smoothed accuracy %", "rounds to", "kB to"


def line(name: str, *summaries: dict[str, Any]) -> dict[str, Any]:
    return over_seeds(name, summaries or [summary()])


def place(heads: list[str], heading: str) -> int:
    """The column whose heading begins so."""
    (found,) = [number for number, head in enumerate(heads) if head.startswith(heading)]
    return found


def cell(row: dict[str, Any], heading: str) -> str:
    heads, (texts,) = tables.cells([row])
    return texts[place(heads, heading)]


class TestCells:
    def test_headings_name_the_target(self) -> None:
        assert {"rounds to 55.0 %", "kB to 55.0 %"} <= set(tables.cells([line("a")])[0])
        assert {"rounds to target", "kB to target"} <= set(tables.cells([line("a", summary(target=None))])[0])

    def test_one_seed_is_a_number_and_several_have_a_deviation(self) -> None:
        several = line(
            "a", summary(smoothed_accuracy=0.5, rounds_to_target=4), summary(smoothed_accuracy=0.6, rounds_to_target=5)
        )
        assert cell(line("a"), ACCURACY) == "60.00"
        assert cell(line("a"), ROUNDS) == "6"
        assert cell(several, ACCURACY) == "55.00 ± 7.07"
        assert cell(several, ROUNDS) == "4.5 ± 0.7"

    def test_what_was_not_measured_is_a_dash(self) -> None:
        assert cell(line("a", summary(smoothed_accuracy=None)), ACCURACY) == "–"
        assert cell(line("a", summary(target=None, rounds_to_target=None)), ROUNDS) == "–"

    def test_a_target_that_nobody_reached_is_more_than_the_rounds_there_were(self) -> None:
        never = summary(rounds_to_target=None, bytes_to_target=None, bytes_down=2e6, bytes_up=1e6, rounds=80)
        assert cell(line("a", never), ROUNDS) == "80+"
        assert cell(line("a", never, never), ROUNDS) == "80.0+"
        assert cell(line("a", never), "MB to") == "3.0+"

    def test_a_target_that_some_seeds_reached_is_a_lower_bound_and_says_how_many(self) -> None:
        never = summary(rounds_to_target=None, bytes_to_target=None, rounds=80)
        assert cell(line("a", summary(rounds_to_target=40, rounds=80), never), ROUNDS) == "60.0+ (1/2 reached)"


BEST = line("fedacg", summary(smoothed_accuracy=0.9, rounds_to_target=5, bytes_to_target=5000))
WORSE = line("fedavg", summary(smoothed_accuracy=0.7, rounds_to_target=9, bytes_to_target=9000))
NEVER = line("fedprox", summary(smoothed_accuracy=0.4, rounds_to_target=None, bytes_to_target=None))
SCENARIO = Scenario()


class TestUnits:
    @given(st.lists(st.floats(1, 1e15), min_size=1), st.integers(1, 2))
    def test_every_number_of_a_column_has_two_digits(self, bytes: list[float], digits: int) -> None:
        """And a larger unit would leave some number without."""
        unit = unit_of_column(bytes, digits)
        least, place = min(bytes), 10.0 ** (1 - digits)
        assert unit.name == "kB" or least / unit.bytes >= place * (1 - 1e-12)
        larger = [one for one in UNITS if one.bytes > unit.bytes]
        assert not larger or least / larger[-1].bytes < place * (1 + 1e-12)

    def test_what_was_sent_is_written_in_the_unit_of_its_heading(self) -> None:
        for bytes, heading, text in (
            (31_400, "kB to", "31.4"),
            (83_500_000, "MB to", "83.5"),
            (7e9, "GB to", "7.0"),
            (2.5e12, "TB to", "2.5"),
        ):
            assert cell(line("a", summary(bytes_to_target=bytes)), heading) == text

    def test_nothing_sent_has_a_unit(self) -> None:
        assert unit_of_column([0, 0], 1).name == unit_of_axis(0).name == "MB"
        assert [unit_of_axis(most).name for most in (5e4, 5e6, 5e9, 5e12)] == ["kB", "MB", "GB", "TB"]


class TestBest:
    def test_markdown_has_the_best_in_bold_and_nothing_else(self) -> None:
        text = tables.markdown([WORSE, BEST, NEVER], SCENARIO)
        head, _, *rows = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("|")]
        assert [row[place(head, ACCURACY)] for row in rows] == ["70.00", "**90.00**", "40.00"]
        assert [row[place(head, ROUNDS)] for row in rows] == ["9", "**5**", "7+"]
        assert [row[place(head, TRAFFIC)] for row in rows] == ["9.0", "**5.0**", "0.1+"]
        assert text.count("**") == 6

    def test_latex_has_the_best_in_bold_and_nothing_else(self) -> None:
        text = tables.latex([WORSE, BEST, NEVER], SCENARIO)
        assert re.findall(r"\\textbf\{(.*?)\}", text) == ["90.00", "5", "5.0"]
        assert next(row for row in text.splitlines() if "textbf" in row).startswith("fedacg & ")

    def test_latex_has_the_rules_of_booktabs_and_names_the_package(self) -> None:
        lines = tables.latex([WORSE, BEST, NEVER], SCENARIO).splitlines()
        assert lines[0] == r"% needs \usepackage{booktabs}"
        assert [line for line in lines if line.endswith("rule")] == [r"\toprule", r"\midrule", r"\bottomrule"]
        assert r"\hline" not in "".join(lines)
        [head] = (line for line in lines if line.startswith("method & "))
        columns = re.match(r"\\begin\{tabular\}\{(l+r+)\}$", lines[1])
        assert columns is not None
        assert head.count(" & ") == len(columns[1]) - 1

    def test_accuracy_and_rounds_may_have_different_winners(self) -> None:
        fast = line("fast", summary(smoothed_accuracy=0.6, rounds_to_target=2))
        assert tables.markdown([BEST, fast], SCENARIO).count("**90.00**") == 1
        assert "**2**" in tables.markdown([BEST, fast], SCENARIO)

    def test_one_method_alone_is_not_the_best(self) -> None:
        assert "**" not in tables.markdown([BEST], SCENARIO)
        assert "textbf" not in tables.latex([BEST], SCENARIO)

    def test_nobody_wins_a_race_that_nobody_finished(self) -> None:
        assert tables.best([NEVER, {**NEVER, "smoothed_accuracy": 0.1}]) == {(0, 1)}
        assert tables.best([NEVER, NEVER]) == {(0, 1), (1, 1)}  # equal accuracies are both the highest


def shown(rows: list[dict[str, Any]], width: int) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(tables.terminal(rows, SCENARIO, width))
    return captured.get()


class TestLayout:
    @pytest.mark.parametrize("width", [30, 40, 60, 80])
    def test_a_narrow_screen_keeps_the_names_and_the_headline(self, width: int) -> None:
        names = ("fedacg", "fedprox:mu=0.001+acg:lam=0.85,beta=0.01")
        text = shown([line(name) for name in names], width)
        rows = [row.split("  ") for row in text.splitlines()]
        whole = "".join(row[1].strip() if len(row) > 1 else "" for row in rows)
        assert all(name in whole for name in names)
        assert text.count("60.00") >= 2
        assert max(map(len, text.splitlines())) <= width

    def test_every_row_of_markdown_has_as_many_cells_as_the_head(self) -> None:
        rows = [row for row in tables.markdown([BEST, WORSE], SCENARIO).splitlines() if row.startswith("|")]
        assert len(rows) == 4
        assert {row.count("|") for row in rows} == {10}

    def test_a_bar_in_a_name_makes_no_new_cell_in_markdown(self) -> None:
        rows = [row for row in tables.markdown([line("a|b"), BEST], SCENARIO).splitlines() if row.startswith("|")]
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {10}

    def test_no_html_of_a_name_comes_into_markdown(self) -> None:
        """Nor does a name in two lines end the table."""
        name = "<img src=x onerror=alert(1)>\n& co"
        text = tables.markdown([line(name), BEST], SCENARIO.changed(data="npz:<b>.npz"))
        assert "<" not in text
        assert "| &lt;img src=x onerror=alert(1)&gt; &amp; co |" in text
        assert "\nnpz:&lt;b&gt;.npz, " in text

    def test_latex_is_a_whole_table(self) -> None:
        text = tables.latex([BEST, WORSE], SCENARIO)
        assert text.splitlines()[1] == r"\begin{tabular}{lrrrrrrrr}"
        assert text.count(r" \\") == 3
        assert all(row.count(" & ") == 8 for row in text.splitlines() if row.endswith(r"\\"))
        assert text.rstrip().splitlines()[-2] == r"\end{tabular}"

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("server_rate", r"server\_rate"),
            ("50%", r"50\%"),
            ("a&b", r"a\&b"),
            ("a#b", r"a\#b"),
            ("fedprox+acg:lam=0.9", "fedprox+acg:lam=0.9"),
        ],
    )
    def test_latex_escapes_what_a_method_is_called(self, name: str, expected: str) -> None:
        assert f"\n{expected} & " in tables.latex([line(name)], SCENARIO)

    @pytest.mark.parametrize("character", list("$~^\\{}"))
    def test_latex_escapes_its_other_special_characters(self, character: str) -> None:
        """A bare one would be read as a command, a group or mathematics."""
        lines = tables.latex([line(f"a{character}b")], SCENARIO).splitlines()
        row = lines[lines.index(r"\midrule") + 1]
        assert not row.startswith(f"a{character}b")

    def test_latex_escapes_the_signs_of_the_table_itself(self) -> None:
        text = tables.latex(
            [line("a", summary(smoothed_accuracy=0.5), summary()), line("b", summary(loss=None))], SCENARIO
        )
        body = "\n".join(row for row in text.splitlines() if not row.startswith("% "))
        assert r"$\pm$" in body
        assert "±" not in body
        assert not re.search(r"(?<!\\)%", body)

    def test_the_terminal_shows_every_name_as_it_is(self) -> None:
        text = shown([BEST, line("mine[a]"), line("[bold]")], 200)
        assert {"fedacg", "mine[a]", "[bold]"} <= set(text.split())

    @pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
    def test_the_terminal_leaves_out_columns_that_do_not_fit(self, width: int) -> None:
        """The first three are always there; a heading may take several lines, a number does not."""
        heads, texts = tables.cells([BEST, WORSE])
        rows = shown([BEST, WORSE], width).splitlines()
        top = " ".join(" ".join(rows[: next(at for at, row in enumerate(rows) if "───" in row)]).split())
        kept = [at for at, heading in enumerate(heads) if all(word in top for word in heading.split())]
        assert kept[:3] == [0, 1, 2]
        assert "…" not in "".join(rows)
        assert max(map(len, rows)) <= width
        for name in ("fedacg", "fedavg"):
            row = next(row for row in rows if name in row)
            expected = next(text for text in texts if text[0] == name)
            assert row.split() == " ".join(expected[at] for at in kept).split()
        assert len(kept) == len(heads) or width < 140
