"""What papers say of an item's methods, and what its runs show of it; the order of a table that nobody printed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import printed
from headway.errors import UserError
from headway.papers import table
from headway.papers.figures.draw import draw_figure
from headway.papers.items import every_preset, preset
from headway.papers.plan import Cell, Plan, plan
from headway.papers.preset import Statement
from headway.papers.preset_checks import check_preset
from headway.papers.reproduce import Outcome, Outcomes
from headway.papers.table.statements import findings, orders
from source_files import speech

OUTER = plan(preset("diloco/outer"))
LENGTHS = {"H=10": 0.0, "H=50": 0.01, "H=250": 0.02}
BITS = {"mean": 2.3, "heavy-ball": 2.2, "nesterov": 2.0, "lookahead": 2.1, "fedacg": 2.15, "fedadam": 2.4}
"""Bits of θ by row; φ has 0.1 less where clients start elsewhere."""
AHEAD = ("nesterov", "lookahead", "fedacg")


def records(cell: Cell, bits: float) -> list[dict[str, Any]]:
    """Two evaluations of a run, the last with these bits."""
    rounds = cell.runs[0].scenario.rounds
    received = bits - (0.1 if cell.row.name in AHEAD else 0.0)
    made = []
    for at, worse in ((rounds // 2, 1.0), (rounds, 0.0)):
        scores = {"bits_per_character": bits + worse, "received_bits_per_character": received + worse}
        sent = {"bytes_down_total": 2_000_000 * at, "bytes_up_total": 1_000_000 * at}
        made.append({"round": at, "steps": 36 * cell.runs[0].scenario.steps, **scores, **sent})
    return made


def outcomes(wanted: Plan = OUTER, without: tuple[str, ...] = (), **changed: float) -> Outcomes:
    bits = {**BITS, **changed}
    return {
        run: Outcome(records=records(cell, bits[cell.row.name] + LENGTHS[cell.column.label]), precision="fp32")
        for cell in wanted.cells
        for run in cell.runs
        if cell.row.name not in without
    }


def words(found: Outcomes, wanted: Plan = OUTER) -> list[str]:
    return [one.word for one in findings(wanted, found)]


def test_each_statement_is_seen_or_not() -> None:
    """Nesterov best, flat in H, a rate of 1 no better, no gain by the pull, and φ better than θ."""
    assert words(outcomes()) == ["seen", "seen", "not seen", "not seen", "seen"]
    lines = [one.line for one in findings(OUTER, outcomes())]
    assert lines[0].startswith(
        "seen: Nesterov's momentum is the best outer optimiser (Douillard et al. 2023): nesterov"
    )
    assert "nesterov 1.900, mean 2.300 in H=10; nesterov 1.900, heavy-ball 2.200 in H=10" in lines[0]
    assert "up to 2 % worse allowed" in lines[1]
    assert "nesterov bits of φ@200 1.900, bits@200 2.000 in H=10" in lines[4]


def test_one_cell_that_is_otherwise_is_enough() -> None:
    assert words(outcomes(mean=1.89))[0] == "not seen"
    assert words(outcomes(lookahead=1.99))[2] == "seen"
    assert words(outcomes(fedacg=2.05))[3] == "seen"


def test_what_lies_within_the_room_is_as_good() -> None:
    """φ at H = 250 is 1.92 against 1.9, one per cent worse."""
    assert words(outcomes())[1] == "seen"
    narrow = dataclasses.replace(OUTER.preset.statements[1], slack=0.005)
    strict = dataclasses.replace(OUTER, preset=dataclasses.replace(OUTER.preset, statements=(narrow,)))
    assert words(outcomes(), strict) == ["not seen"]


def test_what_was_not_run_is_not_judged() -> None:
    found = words(outcomes(without=("fedadam", "lookahead")))
    assert found == ["not run", "seen", "not run", "not run", "seen"]
    assert words(outcomes(without=("fedadam",), mean=1.0))[0] == "not seen"  # one that fails is enough
    assert words({}) == ["not run"] * 5
    part = plan(preset("diloco/outer"), rows=["nesterov", "mean"], data=["H=50"])
    assert words(outcomes(part), part) == ["not run"] * 4 + ["not run"]


def test_accuracies_are_better_when_higher() -> None:
    wanted = plan(preset("compositions/cifar10"), rows=["feddyn", "feddyn+acg", "scaffold"])
    told = Statement("more is better", "us", "accuracy", "feddyn+acg", than=("feddyn",))
    wanted = dataclasses.replace(wanted, preset=dataclasses.replace(wanted.preset, statements=(told,)))

    def found(with_acg: float) -> Outcomes:
        ends = {"feddyn": 0.85, "feddyn+acg": with_acg, "scaffold": 0.7}
        return {
            run: Outcome(records=[{"round": 500, "accuracy_smoothed": ends[cell.row.name]}], precision="bf16")  # type: ignore[list-item]
            for cell in wanted.cells
            for run in cell.runs
        }

    assert [words(found(value), wanted) for value in (0.86, 0.84)] == [["seen"], ["not seen"]]
    column = "cifar10/dir0.3/100x5%"
    assert orders(wanted, found(0.86)) == [
        f"order in {column}, by acc@500: 1 feddyn+acg 86.00, 2 feddyn 85.00, 3 scaffold 70.00"
    ]
    below = table.below(wanted, found(0.86))
    assert below[0].startswith("order in")
    assert below[1].startswith("seen: more is better (us)")


def test_a_printed_table_has_no_order_of_ours() -> None:
    wanted = plan(preset("fedacg/table-1a"), data=["cifar10"])
    found = {
        run: Outcome(records=[{"round": 1000, "accuracy_smoothed": 0.5}], precision="bf16")  # type: ignore[list-item]
        for run in wanted.runs
    }
    assert orders(wanted, found) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row": "nestrov"}, "a statement names 'nestrov'"),
        ({"than": ("medium",)}, "a statement names 'medium'"),
        ({"columns": ("H=7",)}, "a statement names 'H=7'"),
        ({"measure": "accuracy"}, "a statement reads 'accuracy'"),
        ({"than": ()}, "compares 'nesterov' with nothing"),
    ],
)
def test_a_statement_of_nothing_is_refused(change: dict[str, Any], message: str) -> None:
    told = dataclasses.replace(OUTER.preset.statements[0], **change)
    with pytest.raises(UserError, match=message):
        check_preset(dataclasses.replace(OUTER.preset, statements=(told,)))


def test_every_statement_of_the_items_compares_cells_that_are_run() -> None:
    told = [(one, statement) for one in every_preset() for statement in one.statements]
    assert len(told) == 10
    for one, _ in told:
        assert not any(finding.pairs for finding in findings(plan(one), {}))


def test_bits_are_drawn_over_characters_and_over_bytes() -> None:
    """36 workers, H steps of 16 blocks of 128 characters: after all rounds 147.5 million, whatever H."""
    figure = draw_figure(OUTER, outcomes(), "tokens")
    axes = figure.axes
    assert len(axes) == 6
    for column, (characters, traffic) in zip(OUTER.columns, zip(axes[:3], axes[3:], strict=True), strict=True):
        theta = next(line for line in characters.lines if line.get_label() == "nesterov")
        x, y = (np.asarray(part, dtype=float) for part in theta.get_data())
        assert x[-1] == pytest.approx(36 * 2000 * 16 * 128 / 1e6)
        assert y[-1] == pytest.approx(2.0 + LENGTHS[column.label])
        sent = next(line for line in traffic.lines if line.get_label() == "nesterov")
        rounds = next(cell.runs[0].scenario.rounds for cell in OUTER.cells if cell.column == column)
        assert float(np.asarray(sent.get_xdata())[-1]) == pytest.approx(3.0 * rounds)
        dotted = [line for line in characters.lines if line.get_linestyle() == ":"]
        assert len(dotted) == len(AHEAD)


def test_a_scaled_gpt_has_about_five_steps_in_all_whatever_the_rounds() -> None:
    small = plan(preset("diloco/outer"), scale="tiny")
    found = {cell.column.label: cell.runs[0].scenario for cell in small.cells}
    assert {name: (one.rounds, one.steps) for name, one in found.items()} == {
        "H=10": (5, 1),
        "H=50": (2, 2),
        "H=250": (1, 5),
    }
    for whole, little in zip(plan(preset("diloco/outer")).runs, small.runs, strict=True):
        assert whole.method == little.method
        for name in ("data", "partition", "clients", "participation", "rate", "weights", "weight_decay", "clip"):
            assert getattr(whole.scenario, name) == getattr(little.scenario, name)
    assert small.read_as(small.cells[0], "received_bits@200") == "received_bits@5"


def test_an_item_of_a_small_gpt_is_run_drawn_and_read(tmp_path: Path) -> None:
    """Two plays of two roles: a table with θ, φ and bytes, the order, the statements and the picture."""
    texts = {f"role {at}": speech(900, at) for at in range(4)}
    content = {"users": list(texts), "text": texts, "hierarchies": [f"play {at % 2}" for at in range(4)]}
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare/users.json").write_text(json.dumps(content))
    told = printed(
        *("reproduce", "diloco/outer", "--scale", "tiny", "--rows", "mean,nesterov", "--data", "H=50", "--quiet"),
        *("--device", "cpu", "--executor", "serial", "--data-dir", str(tmp_path), "--out", str(tmp_path / "runs")),
    )
    flat = " ".join(told.split())
    assert "SCALED DOWN" in flat
    assert "seen (scaled down): the lookahead φ is a better model than θ" in flat
    assert "order in H=50, by bits@40: 1 " in flat
    rows = json.loads(printed("reproduce", "diloco/outer", "--from", str(tmp_path / "runs"), "--json"))
    found = {(one["row"], one["measure"].partition("@")[0]): one["measured"] for one in rows}
    assert found["mean", "bits"] == found["mean", "received_bits"] > 1
    assert found["nesterov", "bits"] != found["nesterov", "received_bits"]
    # 2 rounds, 2 workers, down and up, 420,480 weights with an embedding of 128 places, of 4 bytes
    assert found["mean", "megabytes"] == found["nesterov", "megabytes"]
    assert found["mean", "megabytes"] == pytest.approx(2 * 2 * 2 * 4 * 0.42048)
    assert (tmp_path / "runs/figure.png").is_file()


def test_an_item_of_which_nothing_was_run_or_sent_is_drawn() -> None:
    assert len(draw_figure(OUTER, {}, "tokens").axes) == 6
    alone = plan(preset("diloco/one-worker"))
    scores = {"bits_per_character": 2.0, "received_bits_per_character": 2.0}
    record = {"round": 40, "steps": 50, "bytes_down_total": 0, "bytes_up_total": 0, **scores}
    found = {run: Outcome(records=[record], precision="fp32") for run in alone.runs}  # type: ignore[list-item]
    characters, traffic = draw_figure(alone, found, "tokens").axes
    assert [float(np.asarray(axes.lines[0].get_xdata())[0]) for axes in (characters, traffic)] == [4.096, 0]
