"""Methods × scenarios: the runs of a grid are those of its comparisons, and its page, pictures and tables have them."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway as hw
from command_line import called, one_line
from conftest import round_lines
from headway.errors import UserError
from headway.measure.headline import LAST
from headway.report.grid.cells import heat
from headway.report.grid.folder import table
from headway.report.grid.page import page
from headway.runs.grid import Cell, Grid, axes_of, compare_grid, load_grid, unfinished_of_grid

LITTLE = "--model linear --rounds 2 --clients 10 --steps 1 --device cpu --executor serial --eval-samples 50 --quiet"
VARIED = "--vary partition=iid,dirichlet:0.3 --vary participation=0.2,0.5"
SETTINGS: dict[str, Any] = {
    "model": "linear",
    "rounds": 2,
    "clients": 10,
    "steps": 1,
    "device": "cpu",
    "executor": "serial",
    "eval_samples": 50,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid, finished; `begun` is one that was killed in its third scenario."""
    folder = tmp_path_factory.mktemp("grid")
    answer = called(folder, f"compare fedavg fedacg {VARIED} {LITTLE} --out whole")
    assert answer.returncode == 0, answer.stderr
    shutil.copytree(folder / "whole", folder / "begun")
    third, fourth = sorted((folder / "begun").glob("0[34]-*"))
    shutil.rmtree(fourth)
    shutil.rmtree(third / "fedacg")
    for file in ("report.html", "grid.md"):
        (folder / "begun" / file).unlink()
    return folder


# ── what varies ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_texts_and_mappings_are_the_same_axes() -> None:
    texts = axes_of(["partition=iid,dirichlet:0.3", "batch-size=10,20", "rate=0.1"])
    assert texts == axes_of({"partition": ["iid", "dirichlet:0.3"], "batch_size": [10, 20], "rate": [0.1]})
    assert axes_of(["data=synthetic:0,0;synthetic:1,1"]) == {"data": ("synthetic:0,0", "synthetic:1,1")}


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        (["seed=0,1"], "'seed' cannot be varied"),
        (["device=cpu"], "'device' cannot be varied"),
        (["rates=1"], "'rates' cannot be varied; did you mean 'rate'"),
        (["rate"], "write NAME=VALUE,VALUE"),
        (["rate=0.1,0.1"], "give each once"),
        (["rate=0.1", "rate=0.2"], "'rate' is varied twice"),
        (["rate=fast"], "rate is 'fast'; it must be a number"),
        (["rate=-1"], "rate is -1.0; it must be above 0"),
        ([], "nothing varies"),
        ("rate=0.1", "it must be a mapping"),
    ],
)
def test_what_cannot_vary_is_refused(vary: Any, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        axes_of(vary)


def test_a_bad_scenario_is_refused_before_any_run(tmp_path: Path) -> None:
    line = one_line(called(tmp_path, f"compare fedavg {LITTLE} --vary partition=iid,dirichlet:-1 --out bad"))
    assert line.startswith("partition=dirichlet:-1: ")
    assert not (tmp_path / "bad").exists()
    with pytest.raises(UserError, match="'model' is varied, but model is your own object"):
        compare_grid(["fedavg"], vary={"model": ["mlp"]}, **SETTINGS | {"model": _own_model()})


def _own_model() -> Any:
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


# ── the runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_scenario_is_the_comparison_of_its_settings(place: Path) -> None:
    grid = load_grid(place / "whole")
    assert [cell.settings for cell in grid.cells] == [
        {"partition": partition, "participation": share}
        for partition in ("iid", "dirichlet:0.3")
        for share in (0.2, 0.5)
    ]
    for cell in (grid.cells[0], grid.cells[3]):
        alone = hw.compare(["fedavg", "fedacg"], **SETTINGS, **cell.settings)
        assert cell.study is not None
        for name, seeds in alone.runs.items():
            assert [one["accuracy"] for one in seeds[0].records] == [
                one["accuracy"] for one in cell.study.runs[name][0].records
            ]


def test_python_has_the_same_grid(place: Path) -> None:
    made = compare_grid(
        ["fedavg", "fedacg"], vary={"partition": ["iid", "dirichlet:0.3"], "participation": [0.2, 0.5]}, **SETTINGS
    )
    assert heat(made) == heat(load_grid(place / "whole"))


def test_a_grid_that_was_begun_goes_on(place: Path) -> None:
    begun, whole = place / "begun", place / "whole"
    assert unfinished_of_grid(begun) == 3
    assert len(load_grid(begun).failed) == 1
    answer = called(place, "resume begun --quiet --json")
    assert answer.returncode == 0, answer.stderr
    assert unfinished_of_grid(begun) == 0
    for path in sorted(whole.glob("*/*/seed-0/rounds.jsonl")):
        there = begun / path.relative_to(whole)
        assert [line["accuracy"] for line in round_lines(there.parent)] == [
            line["accuracy"] for line in round_lines(path.parent)
        ]
    assert "nothing is left to do" in called(place, "resume begun --quiet").stderr
    assert "compare" not in one_line(called(place, "resume begun --rounds 9 --quiet"))


def test_a_scenario_in_which_all_diverge_does_not_end_the_others(tmp_path: Path) -> None:
    answer = called(tmp_path, f"compare fedavg fedacg {LITTLE} --clip 0 --vary rate=1e30,0.05 --out grid")
    assert answer.returncode == 1
    assert "failed" in answer.stderr
    grid = load_grid(tmp_path / "grid")
    assert [line.partition(":")[0] for line in grid.failed] == ["rate=1e+30"] * 2
    assert "no run" in (tmp_path / "grid" / "report.html").read_text(encoding="utf-8")


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_has_a_panel_and_a_table_for_each_scenario(place: Path) -> None:
    text = (place / "whole" / "report.html").read_text(encoding="utf-8")
    assert text.count("<figure ") == text.count('class="sortable"') == 4
    assert text.count("<polyline") == 8
    links = re.findall(r'href="([^"]+)"', text)
    assert len(links) == 4
    assert all((place / "whole" / link).is_file() for link in links)
    for name in ("grid.png", "heat.png"):
        assert (place / "whole" / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_report_elsewhere_links_to_pages_beside_it(place: Path) -> None:
    answer = called(place, "report whole --out told --json")
    assert answer.returncode == 0, answer.stderr
    content = json.loads(answer.stdout)
    assert content["axes"] == {"partition": ["iid", "dirichlet:0.3"], "participation": [0.2, 0.5]}
    assert [len(cell["methods"]) for cell in content["cells"]] == [2, 2, 2, 2]
    links = re.findall(r'href="([^"]+)"', (place / "told" / "report.html").read_text(encoding="utf-8"))
    assert all((place / "told" / link).is_file() and not link.startswith("..") for link in links)
    assert "leave --by and --tuned out" in one_line(called(place, "report whole --by rate --out no"))


def test_the_table_has_the_numbers_of_the_comparisons(place: Path) -> None:
    grid = load_grid(place / "whole")
    head, body, bold = table(grid)
    assert head == ["partition", "participation", "fedavg", "fedacg"]
    for number, (cell, line) in enumerate(zip(grid.cells, body, strict=True)):
        assert cell.study is not None
        rows = cell.study.summary()
        assert line == [*map(str, cell.settings.values()), *(f"{100 * row['last_accuracy']:.2f}" for row in rows)]
        best = max(row["last_accuracy"] for row in rows)
        assert {column for row, column in bold if row == number} == {
            2 + at for at, row in enumerate(rows) if row["last_accuracy"] == best
        }
    latex = (place / "whole" / "grid.tex").read_text(encoding="utf-8")
    assert len({line.count("&") for line in latex.splitlines() if line.endswith(r"\\")}) == 1


def test_every_curve_is_inside_its_panel(place: Path) -> None:
    text = page(load_grid(place / "whole"), {})
    width, height = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', text).groups())  # type: ignore[union-attr]
    for points in re.findall(r'points="([^"]+)"', text):
        for x, y in (map(float, point.split(",")) for point in points.split()):
            assert 0 <= x <= width
            assert 0 <= y <= height


@given(st.lists(st.floats(0.01, 0.99), min_size=2, max_size=4))
def test_shades_follow_the_order_within_a_scenario(levels: list[float]) -> None:
    found = heat(Grid({"rate": (0.1,)}, (Cell({"rate": 0.1}, _Study(levels)),), None))  # type: ignore[arg-type]
    shares = [row[0][1] for row in found]
    assert max(shares) == 1  # type: ignore[type-var]
    for one, level in zip(shares, levels, strict=True):
        expected = 1.0 if max(levels) == min(levels) else (level - min(levels)) / (max(levels) - min(levels))
        assert one is not None
        assert math.isclose(one, expected, abs_tol=1e-9)


class _Study:
    """A comparison of which only the summary is read."""

    def __init__(self, levels: list[float]) -> None:
        self.runs = {f"method-{number}": [] for number in range(len(levels))}
        self.headline = LAST
        self.levels = levels

    def summary(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "last_accuracy": level, "last_accuracy_std": None}
            for name, level in zip(self.runs, self.levels, strict=True)
        ]
