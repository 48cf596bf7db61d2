"""The board: every item of every paper, what was measured beside what is printed, as data, a page and a picture."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from command_line import printed
from headway.errors import UserError
from headway.papers.board.cells import board, plain
from headway.papers.board.page import page
from headway.papers.board.picture import drawable, drawn
from headway.papers.items import every_preset, preset
from headway.papers.plan import plan
from headway.runs.files import write_json
from test_comparison_page import NASTY, Parsed, found

ROOT = Path(__file__).parents[1]
FRACTIONS = {"fedavg": (0.74, 0.75, 0.76), "fedacg": (0.852,), "feddyn": (0.8, 0.81)}
"""Accuracies at the end, for each seed."""


def claim(folder: Path, item: str, data: str, runs: dict[str, tuple[float, ...]], **changes: Any) -> Path:
    """A claim with runs of made-up accuracies; those of FedDyn are on another split, FedACG's ended early."""
    seeds = max(map(len, runs.values()))
    scale = changes.pop("scale", "full")
    wanted = plan(preset(item), rows=list(runs), data=[data], seeds=seeds, scale=scale)
    for cell in wanted.cells:
        for one, accuracy in zip(cell.runs, runs[cell.row.name], strict=False):
            own = {"partition": "dirichlet:0.3"} if cell.row.name == "feddyn" else {}
            last = 500 if cell.row.name == "fedacg" else one.scenario.rounds
            place = folder / cell.row.name / f"seed-{one.scenario.seed}"
            place.mkdir(parents=True)
            (place / "scenario.toml").write_text(one.scenario.changed(**own).as_toml(), encoding="utf-8")
            lines = [
                {"round": n, "accuracy": level, "accuracy_smoothed": level, "bytes_down_total": n, "bytes_up_total": n}
                for n, level in sorted({last // 2: 0.5, min(last, 500): accuracy, last: accuracy}.items())
            ]
            (place / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    made = {"command": f"headway reproduce {item}", "commit": "abc", "environment": {"hardware": "A machine"}}
    places = [path.parent.relative_to(folder).as_posix() for path in folder.rglob("scenario.toml")]
    write_json(
        folder / "reproduce.json", {"item": item, "scale": scale, "seeds": seeds, "made": dict.fromkeys(places, made)}
    )
    (folder / "table.md").write_text("# a table\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board") / "results"
    claim(folder / "fedacg" / "table-1a", "fedacg/table-1a", "cifar10", FRACTIONS)
    return folder


@pytest.fixture(scope="module")
def told(results: Path) -> dict[str, Any]:
    out = results.parent / "page"
    answer = printed("reproduce", "--board", "--from", str(results), "--out", str(out), "--json")
    return json.loads(answer)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def written(results: Path) -> Path:
    out = results.parent / "page"
    printed("reproduce", "--board", "--from", str(results), "--out", str(out))
    return out / "board.html"


def numbers(told: dict[str, Any], measure: str) -> dict[str, dict[str, Any]]:
    return {cell["row"]: cell for cell in told["cells"] if cell["measure"] == measure}


# ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_item_is_there_with_how_much_of_it_was_run(told: dict[str, Any]) -> None:
    items = {item["item"]: item for item in told["items"]}
    assert list(items) == [one.item for one in every_preset()]
    begun = items["fedacg/table-1a"]
    assert (begun["trainings_run"], begun["trainings"], begun["runs"]) == (3, 39, 6)
    assert begun["published"] == 156
    assert [name for name, item in items.items() if item["runs"]] == ["fedacg/table-1a"]
    assert begun["links"]["table.md"] == "../results/fedacg/table-1a/table.md"
    [made] = begun["made"]
    assert (made["command"], made["commit"], len(made["runs"])) == ("headway reproduce fedacg/table-1a", "abc", 6)


def test_a_cell_has_what_was_measured_beside_what_is_printed(told: dict[str, Any]) -> None:
    found = numbers(told, "accuracy@500")
    printed = preset("fedacg/table-1a").numbers
    fedavg = found["fedavg"]
    assert fedavg["measured"] == pytest.approx(75)
    assert fedavg["std"] == pytest.approx(1)
    assert fedavg["published"] == printed["fedavg", fedavg["column"], "accuracy@500"].value == 74.36
    assert fedavg["gap"] == pytest.approx(0.64)
    assert (fedavg["seeds"], fedavg["marks"], fedavg["verdict"]) == (3, "", "within")
    assert fedavg["tolerance"] == pytest.approx(4.303 * math.sqrt(4 / 3) + 0.005, abs=0.01)
    assert found["fedacg"]["verdict"] == "one seed"
    assert found["fedacg"]["ended_early"] == "500 of 1000 rounds"
    assert found["feddyn"]["draw"].startswith("dirichlet:0.3, split_seed 0")
    assert "fedacg" not in numbers(told, "accuracy@1000"), "what a run did not come to was not measured"
    assert numbers(told, "rounds_to_85")["fedavg"]["more_than"] == 1000


def test_runs_that_are_scaled_down_are_marked_and_have_no_gap(tmp_path: Path) -> None:
    claim(tmp_path / "tiny", "fedacg/table-1a", "cifar10", {"fedavg": (0.5,)}, scale="tiny")
    told = plain(board(tmp_path), tmp_path)
    assert {cell["scale"] for cell in told["cells"]} == {"tiny"}
    assert {cell["gap"] for cell in told["cells"]} == {None}
    assert {cell["verdict"] for cell in told["cells"]} == {""}
    assert drawable(told["cells"]) == {}
    assert "scaled down" in Parsed(page(told)).text


def test_an_item_that_shares_runs_has_them_but_no_numbers_twice(tmp_path: Path) -> None:
    claim(tmp_path / "a", "gradma/table-1", "mnist/gradma1.0/100x10", {"fedavg": (0.97,)})
    told = plain(board(tmp_path), tmp_path)
    begun = {item["item"] for item in told["items"] if item["runs"]}
    assert begun == {"gradma/table-1", "gradma/figure-9"}
    assert {cell["item"] for cell in told["cells"]} == {"gradma/table-1"}


def test_a_folder_without_claims_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no runs that `headway reproduce` made"):
        board(tmp_path)
    with pytest.raises(UserError, match="there is no folder"):
        board(tmp_path / "nowhere")
    with pytest.raises(UserError, match="--board is of all items, from one folder"):
        printed("reproduce", "fedacg/table-1a", "--board")


def test_the_board_in_docs_is_that_of_the_results() -> None:
    """`headway reproduce --board --out docs` makes it again."""
    kept = Parsed((ROOT / "docs" / "board.html").read_text(encoding="utf-8"))
    now = json.loads(json.dumps(plain(board(ROOT / "results"), ROOT / "docs")))
    assert kept.data["cells"] == now["cells"]
    for tag, attributes in kept.elements:
        if tag == "a":
            assert (ROOT / "docs" / str(attributes["href"])).is_file()


# ── page and picture ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_writes_page_and_pictures_and_the_same_again(
    results: Path, written: Path, told: dict[str, Any]
) -> None:
    first, second = written.parent, results.parent / "again"
    text = printed("reproduce", "--board", "--from", str(results), "--out", str(second))
    assert text.startswith(f"1 item with runs, {len(told['cells'])} numbers\n")
    names = ["board.html", "board.png", "board.svg"]
    assert [path.name for path in sorted(first.iterdir())] == names
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_the_page_has_every_number_in_its_table_and_fetches_nothing(told: dict[str, Any]) -> None:
    text = page(told)
    parsed = Parsed(text)
    head, *lines = parsed.tables[0]
    assert head == ["method", "what", "measured", "printed", "gap", "seeds", "verdict", "on", "of"]
    assert len(lines) == len(told["cells"])
    [line] = [one for one in lines if one[:2] == ["fedavg", "acc@500"]]
    assert line[2:7] == ["75.00 ± 1.00", "74.36", "+0.64", "3", "within ±4.97"]
    assert [one[0] for one in lines if one[1] == "acc@500"] == ["fedavg", "feddyn†", "fedacg‡"]
    assert sum(len(table) - 1 for table in parsed.tables[1:]) == len(told["items"])
    assert re.findall(r"https?://|url\(|@import|\bfetch\(|XMLHttpRequest|innerHTML", text) == []
    for tag, attributes in parsed.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert not {"src", "srcset", "action"} & attributes.keys()
        assert not re.match(r"\w+:", attributes.get("href") or "")


def test_a_text_of_a_claim_cannot_break_the_page(told: dict[str, Any]) -> None:
    cells = [{**cell, "row": NASTY, "draw": NASTY, "marks": "†"} for cell in told["cells"]]
    made = [{"command": f"headway {NASTY}", "commit": NASTY, "hardware": NASTY, "runs": [NASTY]}]
    items = [{**item, "title": NASTY, "made": made, "links": {"table.md": NASTY}} for item in told["items"][:1]]
    parsed = Parsed(page({"items": items, "cells": cells}))
    assert len(parsed.scripts) == 2
    assert "img" not in [tag for tag, _ in parsed.elements]
    assert parsed.data["cells"][0]["row"] == NASTY


def test_the_picture_has_a_point_for_each_number_in_its_place(told: dict[str, Any]) -> None:
    figure = drawn(told["cells"])
    assert figure is not None
    accuracy, rounds = figure.axes
    placed = [
        (float(line.get_xdata()[0]), round(float(line.get_ydata()[0]), 6))
        for line in accuracy.lines
        if len(line.get_xdata()) == 1
    ]
    wanted = [(cell["published"], round(cell["measured"], 6)) for cell in drawable(told["cells"])["accuracy"]]
    assert sorted(placed) == sorted(wanted)
    hollow = [line for line in accuracy.lines if line.get_markerfacecolor() == "white"]
    assert len(hollow) == 2, "FedDyn at two rounds"
    assert rounds.get_xscale() == "log"
    assert drawn([cell for cell in told["cells"] if cell["published"] is None]) is None


def test_the_small_picture_for_the_readme_is_small() -> None:
    path = ROOT / "docs" / "board.png"
    assert path.stat().st_size < 100_000
    with Image.open(path) as picture:
        assert picture.width > 800


# ── in a browser ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def shown(browser: Any, written: Path) -> Any:
    browser.get(written.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def rows(browser: Any) -> list[str]:
    return [row.text for row in found(browser, "#numbers tbody tr") if row.is_displayed()]


def choose(browser: Any, field: str, value: str) -> None:
    from selenium.webdriver.support.select import Select

    Select(found(browser, f"#filters [name={field}]")[0]).select_by_value(value)


def points(browser: Any) -> list[int]:
    return sorted(int(point.get_attribute("data-number")) for point in found(browser, "#chart .point"))


def test_filters_leave_the_same_numbers_in_table_and_picture(shown: Any, told: dict[str, Any]) -> None:
    every = [cell["number"] for cell in drawable(told["cells"])["accuracy"]]
    assert points(shown) == sorted(every)
    assert len(rows(shown)) == len(told["cells"])
    choose(shown, "method", "fedavg")
    assert rows(shown)
    assert all(text.startswith("fedavg ") for text in rows(shown))
    assert points(shown) == [
        cell["number"] for cell in told["cells"] if cell["row"] == "fedavg" and cell["family"] == "accuracy"
    ]
    assert found(shown, "#count")[0].text == f"{len(rows(shown))} of {len(told['cells'])} numbers"
    found(shown, "#filters [type=reset]")[0].click()
    found(shown, "#filters [name=plain]")[0].send_keys(" ")
    assert not [text for text in rows(shown) if text.startswith("feddyn")]
    choose(shown, "verdict", "one seed")
    assert {text.split()[0] for text in rows(shown)} == {"fedacg‡"}


def test_points_are_read_by_pointer_and_by_keys_and_lead_to_their_line(shown: Any, told: dict[str, Any]) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    [chart], [tip] = found(shown, "#chart"), found(shown, "#tip")
    point = found(shown, "#chart .point")[0]
    cell = told["cells"][int(point.get_attribute("data-number"))]
    ActionChains(shown).move_to_element(point).perform()
    assert tip.text.startswith(f"{cell['row']} · {cell['heading']}\nof {cell['item']}")
    chart.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()
    least = min(drawable(told["cells"])["accuracy"], key=lambda one: one["published"])
    chart.send_keys(Keys.HOME)
    assert f"printed {least['published']:g}" in tip.text
    chart.send_keys(Keys.ENTER)
    [row] = found(shown, "tr.chosen")
    assert int(row.get_attribute("data-number")) == least["number"]
    assert shown.switch_to.active_element == row


def test_switches_change_the_picture_and_every_point_stays_inside(shown: Any) -> None:
    def places() -> list[str]:
        return [point.get_attribute("transform") for point in found(shown, "#chart .point")]

    pictures = [places()]
    for css in ("#view [value=gap]", "#family [value=rounds]", "#view [value=beside]"):
        found(shown, css)[0].send_keys(" ")
        pictures.append(places())
        box = found(shown, "#chart")[0].rect
        for point in found(shown, "#chart .point"):
            assert box["x"] + 50 < point.rect["x"] < box["x"] + box["width"]
            assert box["y"] < point.rect["y"] < box["y"] + box["height"] - 40
        ticks = [text.text for text in found(shown, "#chart text")]
        assert 5 < len(ticks) < 40
    assert all(pictures)
    assert len({str(one) for one in pictures}) == 4
    found(shown, "#colour [value=method]")[0].send_keys(" ")
    assert [label.text for label in found(shown, "#legend span")] == ["fedacg"]


def test_headings_sort_words_and_numbers(shown: Any) -> None:
    def column(at: int) -> list[str]:
        return [cell.text for cell in found(shown, f"#numbers tbody td:nth-child({at})")]

    heads = found(shown, "#numbers th button")
    heads[1].click()
    assert column(2) == sorted(column(2), key=lambda text: (text.split("@")[0], int(re.findall(r"\d+", text)[0])))
    heads[4].click()
    gaps = [float(text.replace("−", "-")) for text in column(5) if text != "–"]
    assert gaps == sorted(gaps, reverse=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_both_schemes(browser: Any, written: Path, scheme: str) -> None:
    size = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        browser.get(written.as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        for control in found(browser, "#filters select, #scatter fieldset"):
            assert control.rect["x"] + control.rect["width"] <= 390 - 15
        ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (int(re.findall(r"\d+", ground)[0]) > 128) == (scheme == "light")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert browser.get_log("browser") == []
