"""The pictures of the papers' items: what is drawn is what the runs gave, and what the paper prints."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from command_line import printed
from headway.cli import main as cli
from headway.errors import UserError
from headway.papers import items
from headway.papers.figures.draw import KINDS, draw_figure, write_figures
from headway.papers.items import every_preset, preset
from headway.papers.measurements import target_crossings
from headway.papers.plan import Cell, Plan, plan
from headway.papers.preset_checks import FIGURES
from headway.papers.reproduce import Outcome, Outcomes
from headway.runs import planned
from headway.runs.environment import commit
from headway.scenario import Scenario

Curve = Sequence[float]


def records(curve: Curve, losses: Curve | None = None) -> list[dict[str, Any]]:
    """Rounds with these accuracies, the smoothed ones half as high, so that the two cannot be mixed up."""
    made: list[dict[str, Any]] = []
    for at, accuracy in enumerate(curve):
        sent = {"bytes_down_total": 10 * (at + 1), "bytes_up_total": 10 * (at + 1)}
        made.append({"round": at + 1, "accuracy": accuracy, "accuracy_smoothed": accuracy / 2, **sent})
        if losses is not None:
            made[-1]["global_loss"] = losses[at]
    return made


def filled(wanted: Plan, made: Callable[[Cell, int], list[dict[str, Any]] | None]) -> Outcomes:
    """Outcomes by cell and seed; None is a run that is missing."""
    found = {run: made(cell, number) for cell in wanted.cells for number, run in enumerate(cell.runs)}
    return {run: Outcome(records=rounds, precision="fp32") for run, rounds in found.items() if rounds is not None}


def rising(rounds: int, top: float) -> list[float]:
    return [top * (at + 1) / rounds for at in range(rounds)]


def lines(axes: Axes) -> dict[str, np.ndarray]:
    """The named lines: x and y in rows."""
    return {
        str(one.get_label()): np.array(one.get_data(), dtype=float) for one in axes.lines if one.get_label()[0] != "_"
    }


def marks(axes: Axes, shape: str) -> list[tuple[float, float]]:
    return [
        (round(float(one.get_xdata()[0]), 6), float(one.get_ydata()[0]))
        for one in axes.lines
        if one.get_marker() == shape
    ]


def note(figure: Figure) -> str:
    return " ".join(figure.get_supxlabel().split())


def test_every_item_is_drawn_in_a_way_that_fits_it() -> None:
    assert KINDS.keys() == FIGURES.keys()
    kinds = {one.item: one.figures for one in every_preset() if one.kind in ("table", "figure")}
    assert all(kinds.values())
    assert {kind for many in kinds.values() for kind in many} == FIGURES.keys()
    assert kinds["fedacg/table-1a"] == ("curves",)
    assert kinds["fedacg-iclr/figure-3"] == ("deviation",)
    assert kinds["fednag/figure-4b"] == ("iterations",)
    assert kinds["fednag/figure-5b"] == kinds["fednag/figure-5c"] == ("crossings",)
    assert kinds["gradma/figure-21"] == ("heat",)
    assert kinds["gradma/figure-6"] == ("bars",)
    assert all(not one.figures for one in every_preset() if one.kind in ("no-data", "split"))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("heet", "did you mean 'heat'"),
        ("heat", "figure 'heat' needs rows whose settings differ in two numbers"),
        ("sweep", "differ in one number"),
        ("deviation", "needs sma_variance@W"),
        ("crossings", "needs a fixed number of steps, and iterations_to_"),
        ("iterations", "needs a fixed number of steps, and global_loss@R"),
    ],
)
def test_a_kind_that_does_not_fit_is_refused(kind: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = items._content("gradma")
    content["items"] = {"table-1": {**content["items"]["table-1"], "figures": [kind]}}
    monkeypatch.setattr(items, "_content", lambda paper: content)
    with pytest.raises(UserError, match=words):
        items.presets.__wrapped__("gradma")  # type: ignore[attr-defined]


def test_curves_are_smoothed_and_raw_with_the_published_points() -> None:
    wanted = plan(preset("fedacg/table-1a"), rows=["fedavg", "fedacg"], data=["cifar10"])
    outcomes = filled(wanted, lambda cell, _: records(rising(1000, 0.9 if cell.row.name == "fedacg" else 0.8)))
    (axes,) = draw_figure(wanted, outcomes, "curves").axes
    thick = lines(axes)
    assert list(thick) == ["fedavg", "fedacg"]
    np.testing.assert_allclose(thick["fedacg"], [range(1, 1001), np.linspace(0.045, 45, 1000)])
    raw = [one for one in axes.lines if len(one.get_xdata()) == 1000 and one.get_linewidth() < 1]
    assert [one.get_ydata()[-1] for one in raw] == pytest.approx([80, 90])
    rings = marks(axes, "o")
    # the paper's curves: accuracy at rounds 500 and 1000, and the rounds of 81 and 85 %; FedAvg's 1000+ is no point
    assert {(500, 74.36), (500, 85.13), (1000, 89.10), (319, 81)} <= set(rings)
    assert (1000, 85) not in rings
    assert len(rings) == 7
    assert "○ published" in note(axes.figure)


def test_published_points_beyond_the_rounds_that_were_run_are_left_out() -> None:
    wanted = plan(preset("fedacg/table-1a"), rows=["fedacg"], data=["cifar10"])
    figure = draw_figure(wanted, filled(wanted, lambda *_: records(rising(600, 0.9))), "curves")
    assert sorted(at for at, _ in marks(figure.axes[0], "o")) == [319, 450, 500]
    assert "not finished: fedacg" in note(figure)


def test_shared_figures_have_the_numbers_of_the_tables_whose_runs_they_are() -> None:
    changing = plan(preset("fedacg-iclr/figure-8"), rows=["fedacg"])
    (axes,) = draw_figure(changing, filled(changing, lambda *_: records([0.1] * 1000)), "curves").axes
    table = preset("fedacg-iclr/table-3").numbers
    value = {name: one.value for (row, _, name), one in table.items() if row == "fedacg"}
    assert set(marks(axes, "o")) == {(1000, value["accuracy@1000"]), (value["rounds_to_38"], 38)}
    # FedAGM prints 800R over what is round 1000
    tiny_imagenet = plan(preset("fedagm/figure-3"), rows=["fedavg"], data=["tiny-imagenet/authors0.3/100x5%"])
    (axes,) = draw_figure(tiny_imagenet, filled(tiny_imagenet, lambda *_: records([0.1] * 1000)), "curves").axes
    printed = preset("fedagm/table-2").numbers["fedavg", "tiny-imagenet/authors0.3/100x5%", "accuracy@800"]
    assert (1000, printed.value) in marks(axes, "o")
    # a highest accuracy is of no round: it stands at the right edge
    best = plan(preset("gradma/figure-1"), rows=["fedavg"], data=["mnist"])
    (axes,) = draw_figure(best, filled(best, lambda *_: records([0.1] * 500)), "curves").axes
    highest = preset("gradma/table-1").numbers["fedavg", "mnist/gradma0.01/100x10", "top_accuracy"].value
    assert marks(axes, "<") == [(510, highest)]
    assert not marks(axes, "o")


def test_seeds_are_a_mean_with_its_deviation() -> None:
    wanted = plan(preset("gradma/figure-1"), rows=["fedavg"], data=["mnist"])
    outcomes = filled(wanted, lambda _, seed: records([0.2 * (seed + 1)] * 500))
    (axes,) = draw_figure(wanted, outcomes, "curves").axes
    assert lines(axes)["fedavg"][1] == pytest.approx(20)  # smoothed: half of 20, 40 and 60
    (band,) = axes.collections
    assert {round(float(y), 6) for _, y in band.get_paths()[0].vertices} == {10, 30}  # ± 10
    assert "mean of 3 seeds" in note(axes.figure)


def test_tiny_is_marked_and_has_no_published_points() -> None:
    wanted = plan(preset("fedacg/table-1a"), scale="tiny", rows=["fedacg"], data=["cifar10", "cifar100"])
    figure = draw_figure(wanted, filled(wanted, lambda *_: records(rising(60, 0.5))), "curves")
    assert "SCALED DOWN (tiny)" in " ".join(figure.get_suptitle().split())
    assert "not comparable with the published numbers" in note(figure)
    assert [axes.get_title() for axes in figure.axes] == ["cifar10/authors0.3/100x5%", "cifar100/authors0.3/100x5%"]
    assert not any(marks(axes, "o") for axes in figure.axes)


def test_what_is_there_is_drawn_and_what_is_missing_is_said(tmp_path: Path) -> None:
    wanted = plan(preset("fedacg/table-1a"), rows=["fedavg", "fedprox", "fedacg"], data=["cifar10", "cifar100"])

    def made(cell: Cell, _: int) -> list[dict[str, Any]] | None:
        return None if (cell.row.name, cell.column.data) == ("fedavg", "cifar100") else records(rising(1000, 0.8))

    outcomes = filled(wanted, made)
    for cell in wanted.cells:
        if cell.row.name == "fedprox":
            outcomes[cell.runs[0]] = Outcome(records=records([0.1, 0.3]), failure="the loss is not finite")
    figure = draw_figure(wanted, outcomes, "curves")
    left, right = figure.axes
    assert list(lines(left)) == ["fedavg", "fedprox (failed)", "fedacg"]
    assert list(lines(right)) == ["fedprox (failed)", "fedacg"]
    assert marks(left, "x") == [(2, 15)]
    assert "failed: fedprox missing: fedavg (cifar100/authors0.3/100x5%)" in note(figure)
    nothing: Outcomes = {run: Outcome(failure="no data") for run in wanted.runs}
    for kind in ("curves", "bars"):
        assert "failed: fedavg, fedprox, fedacg" in note(draw_figure(wanted, nothing, kind))
    for one in every_preset():  # nothing to draw stops no kind of picture
        if one.kind == "figure" and one.figures != ("curves",):
            whole = plan(one)
            draw_figure(whole, {}, one.figures[0])
    (path,) = write_figures(wanted, outcomes, tmp_path)
    assert path == tmp_path / "figure.png"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_loss_and_accuracy_over_iterations() -> None:
    wanted = plan(preset("fednag/figure-4b"), rows=["fednag", "csgd"])
    outcomes = filled(wanted, lambda *_: records(rising(250, 0.9), [2 - at / 250 for at in range(250)]))
    loss, accuracy = draw_figure(wanted, outcomes, "iterations").axes
    assert list(lines(loss)) == ["fednag", "csgd"]
    assert lines(loss)["csgd"][:, [0, -1]].T.tolist() == [[4, 2], [1000, pytest.approx(2 - 249 / 250)]]
    assert lines(accuracy)["fednag"][:, -1] == pytest.approx([1000, 45])
    assert (loss.get_ylabel(), accuracy.get_ylabel()) == ("global loss", "test accuracy, %")
    assert loss.get_yscale() == "linear"


def test_columns_that_vary_share_the_panels() -> None:
    wanted = plan(preset("fednag/figure-5a"))
    outcomes = filled(wanted, lambda cell, _: records(*[[0.5] * cell.runs[0].scenario.rounds] * 2))
    loss, accuracy = draw_figure(wanted, outcomes, "iterations").axes
    assert list(lines(loss)) == list(lines(accuracy)) == [f"τ = {tau}" for tau in (5, 10, 20, 50, 100, 200)]
    assert lines(loss)["τ = 200"][0].tolist() == [200, 400, 600, 800, 1000]


def test_a_loss_that_diverges_is_drawn_as_far_as_it_came() -> None:
    wanted = plan(preset("fednag/figure-5f"))
    outcomes = filled(wanted, lambda *_: records([0.5] * 250, [0.5] * 250))
    growing = [math.exp(at) for at in range(10)]
    outcomes[wanted.cells[-1].runs[0]] = Outcome(records=records([0.1] * 10, growing), failure="not finite")
    (loss,) = draw_figure(wanted, outcomes, "iterations").axes
    assert marks(loss, "x") == [(40, pytest.approx(math.exp(9)))]
    assert "gamma=1 (failed)" in lines(loss)
    assert loss.get_yscale() == "log"


def test_crossings_have_the_first_the_mean_and_the_last() -> None:
    one = Scenario(steps=5)
    losses = [0.9, 0.4, 0.6, 0.7, 0.5, 0.3]
    assert target_crossings("iterations_to_loss_0.5", records([0] * 6, losses), one) == [10, 15, 25]
    assert target_crossings("iterations_to_40", records([0.1, 0.8, 0.9, 0.7]), one) == [
        10,
        20,
    ]  # the smoothed one is half
    assert target_crossings("iterations_to_40", records([0.1, 0.2]), one) == []
    wanted = plan(preset("fednag/figure-5b"), data=["τ = 5", "τ = 10"])
    outcomes = filled(wanted, lambda cell, _: records([0] * 6, losses if cell.column.label == "τ = 5" else [1.0] * 6))
    (axes,) = draw_figure(wanted, outcomes, "crossings").axes
    (bar,) = axes.patches
    assert bar.get_height() == pytest.approx((10 + 15 + 25) / 3)
    (red,) = axes.collections
    assert [segment[0][1] for segment in red.get_segments()] == [10, 25]
    assert to_hex(red.get_color()[0]) == "#cc3311"
    assert [text.get_text() for text in axes.texts] == ["not in 60"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["τ = 5", "τ = 10"]


def test_squared_deviation_from_the_moving_average() -> None:
    wanted = plan(preset("fedacg-iclr/figure-3"))
    jagged = [0.2, 0.4] * 10
    outcomes = filled(wanted, lambda cell, _: records(jagged if cell.row.name == "fedavgm" else [0.3] * 20))
    above, below = draw_figure(wanted, outcomes, "deviation").axes
    assert [list(one.get_ydata()[:3]) for one in above.lines if one.get_label()[0] == "_"] == [
        pytest.approx([30, 30, 30]),
        pytest.approx([20, 40, 20]),  # as it is, not the smoothed one
    ]
    assert lines(above)["fedavgm"][1][:3] == pytest.approx([20, 30, 80 / 3])
    names = list(lines(below))
    assert names[0] == "fedacg: mean 0.00 (published 2.26)"
    assert names[1].endswith("(published 10.30)")
    squares = lines(below)[names[1]][1]
    assert squares[:3] == pytest.approx([0, 100, 400 / 9])
    assert float(names[1].split()[2]) == pytest.approx(squares.mean(), abs=0.005)


def test_a_sweep_has_its_levels_and_published_values() -> None:
    wanted = plan(preset("fednag/figure-5e"))
    losses = {cell.row.name: 1.0 - cell.row.numbers.get("gamma", 0) for cell in wanted.cells}
    outcomes = filled(
        wanted, lambda cell, _: records([0.5] * 250, [losses[cell.row.name] + 1] * 125 + [losses[cell.row.name]] * 125)
    )
    (axes,) = draw_figure(wanted, outcomes, "sweep").axes
    found = {container.get_label(): container.lines[0].get_data() for container in axes.containers}
    assert list(found) == ["after 500 iterations", "after 1000 iterations"]
    gammas, values = found["after 1000 iterations"]
    assert list(gammas) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99]
    assert list(values) == pytest.approx([1 - gamma for gamma in gammas])
    assert lines(axes)["fedavg, after 500 iterations"][1] == pytest.approx(2)
    swept = plan(preset("fedacg/table-5b"), data=["cifar10/iid/500x2%"])
    (axes,) = draw_figure(swept, filled(swept, lambda *_: records([0.5] * 1000)), "sweep").axes
    numbers = {one.row.numbers["beta"]: one.row.name for one in swept.cells}
    published = [
        (beta, swept.preset.numbers[name, "cifar10/iid/500x2%", "accuracy@1000"].value)
        for beta, name in numbers.items()
    ]
    assert [point for point in marks(axes, "o") if point[1] > 50] == published
    assert axes.get_xscale() == "log"


def test_a_map_of_two_numbers() -> None:
    wanted = plan(preset("gradma/figure-5"), data=["mnist"])

    def made(cell: Cell, seed: int) -> list[dict[str, Any]] | None:
        first, second = cell.row.numbers.values()
        return None if first == second == 0.9 else records([0.0, first / 2 + second / 20 + seed / 100, 0.0])

    figure = draw_figure(wanted, filled(wanted, made), "heat")
    axes = figure.axes[0]
    values = axes.images[0].get_array()
    grid = (0, 0.1, 0.3, 0.5, 0.7, 0.9)
    assert values.shape == (6, 6)
    assert values[2, 4] == pytest.approx(100 * (0.3 / 2 + 0.7 / 20 + 0.01))  # β1 upwards, β2 to the right
    assert np.isnan(np.ma.filled(values, np.nan)[5, 5])
    assert [text.get_text() for text in axes.get_yticklabels()] == [f"{value:g}" for value in grid]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("β1", "β2")
    bold = [text.get_text() for text in axes.texts if text.get_weight() == "bold"]
    assert bold == [f"{100 * (0.45 + 0.035 + 0.01):.1f}"]
    assert "missing: β1=0.9 β2=0.9" in note(figure)


def test_bars_over_the_size_of_the_memory() -> None:
    wanted = plan(preset("gradma/figure-6"), data=["mnist/gradma0.1/100x10"])
    outcomes = filled(wanted, lambda cell, seed: records([cell.row.numbers["m"] / 200 + 0.1 * seed]))
    (axes,) = draw_figure(wanted, outcomes, "bars").axes
    sizes = [0, 10, 20, 40, 60, 80, 100]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([size / 2 + 10 for size in sizes])
    assert [label.get_text() for label in axes.get_xticklabels()] == [f"m={size}" for size in sizes]
    (spread,) = axes.collections[0].get_segments()
    assert [height for _, height in spread] == pytest.approx([0, 20])  # 10 ± 10
    ablation = plan(preset("fedacg/table-4"), data=["cifar10"])
    (axes,) = draw_figure(ablation, filled(ablation, lambda *_: records([0.5] * 1000)), "bars").axes
    printed = [number.value for (_, column, _), number in ablation.preset.numbers.items() if "cifar10/" in column]
    assert [value for _, value in marks(axes, "o")] == printed


def test_a_picture_from_the_shell(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    """Run, draw, and draw again from the folder: there only where a folder is given."""
    out, again = tmp_path / "out", tmp_path / "again"
    which = ["fednag/figure-4b", "--rows", "fednag,fedavg", "--rounds", "3", "--scale", "tiny", "--device", "cpu"]
    told = printed(
        "reproduce", *which, "--executor", "serial", "--data-dir", str(real_data("mnist")), "--out", str(out), "--quiet"
    )
    assert f"picture: {out / 'figure.png'}" in told.replace("\n", "")
    picture = (out / "figure.png").read_bytes()
    before = sorted(out.rglob("*"))
    (out / "figure.png").unlink()
    assert "picture" not in printed("reproduce", "fednag/figure-4b", "--from", str(out))
    assert not (out / "figure.png").exists()
    assert f"picture: {again / 'figure.png'}" in printed(
        "reproduce", "fednag/figure-4b", "--from", str(out), "--out", str(again)
    )
    assert sorted(path.name for path in again.iterdir()) == ["figure.png", "table.csv", "table.md", "table.tex"]
    printed("reproduce", "fednag/figure-4b", "--from", str(out), "--out", str(out), "--rounds", "3", "--format", "csv")
    assert sorted(out.rglob("*")) == before
    assert (out / "figure.png").read_bytes() == picture
    about = json.loads((out / "reproduce.json").read_text(encoding="utf-8"))
    assert about["commit"] == commit()
    assert about["environment"]["versions"]["headway"]


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["headway", "reproduce", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


def test_failed_runs_are_the_users_mistake_only_where_all_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    item = ["gradma/figure-4", "--data", "cifar10", "--scale", "tiny", "--device", "cpu", "--quiet"]
    nowhere = ["--data-dir", str(tmp_path)]
    assert exit_code(monkeypatch, *item, *nowhere, "--out", str(tmp_path / "one")) == 2
    assert "3 of 3 runs failed" in capsys.readouterr().err

    def broken(method: str, *_: Any, **__: Any) -> Any:
        raise UserError("not so") if method.startswith("gradma-w") else RuntimeError("boom")

    monkeypatch.setattr(planned, "simulate", broken)
    assert exit_code(monkeypatch, *item, "--out", str(tmp_path / "two")) == 1
    told = capsys.readouterr().err
    assert "3 of 3 runs failed: boom; not so" in told
    assert (tmp_path / "two" / "figure.png").is_file()


def test_the_commit_is_that_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    if asked.returncode == 0:
        assert commit().removesuffix("+dirty") == asked.stdout.strip()

    def refused(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", refused)
    assert commit() == ""


def test_what_a_folder_was_made_by_stays_when_nothing_is_left_to_run(
    tmp_path: Path, real_data: Callable[[str], Path]
) -> None:
    which = ["fednag/figure-4b", "--rows", "fedavg", "--rounds", "1", "--scale", "tiny", "--device", "cpu"]
    both = [*which, "--executor", "serial", "--data-dir", str(real_data("mnist")), "--out", str(tmp_path), "--quiet"]
    printed("reproduce", *both)
    (tmp_path / "reproduce.json").write_text('{"scale": "tiny", "commit": "earlier"}', encoding="utf-8")
    printed("reproduce", *both)
    assert json.loads((tmp_path / "reproduce.json").read_text(encoding="utf-8"))["commit"] == "earlier"


def test_tiny_lstms_are_small_in_rounds_and_batches_and_seeds_are_one() -> None:
    (one,) = plan(preset("fedacg/table-8"), rows=["fedavg"], scale="tiny").runs
    assert (one.scenario.rounds, one.scenario.batch_size, one.scenario.eval_samples) == (20, 4, 200)
    assert len(plan(preset("gradma/table-1"), scale="tiny").runs) == 16 * 14
    assert len(plan(preset("gradma/table-1"), scale="tiny", seeds=2).runs) == 2 * 16 * 14
