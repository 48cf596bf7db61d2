"""What the page of a comparison shows beside its tables: time, seeds, classes, the split; and what it saves."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import headway as hw
from conftest import SMALL, experiment, norm_free, played, refused, unequal_clients
from headway.engine.evaluation import CLASSES_RECORDED, evaluate
from headway.report.page import classes, split
from headway.report.page.curves import curves
from headway.report.page.write import page, write_page
from headway.runs.result import Result
from headway.runs.splits import SHOWN, SplitTable
from headway.runs.study import Study, load_study, study_of
from test_comparison_page import NASTY, Parsed, found, runs_of
from test_comparison_page import study_of as study_named

ROOT = Path(__file__).resolve().parents[1]
QUICK: dict[str, Any] = {"rounds": 2, "clients": 8, "model": "linear", "device": "cpu", "executor": "serial"}
LONG = [f"fedprox+acg:lam=0.{number:02d}5,beta=0.00{number},server_rate=1.{number}" for number in range(16)]
"""Names of methods that are longer than a column should be."""


def told(study: Study) -> Study:
    """A study whose rounds record training too, as those of the engine do."""
    runs = {
        name: [
            dataclasses.replace(
                one,
                records=[
                    {**record, "train_loss": 3 / record["round"] + 0.1 * one.scenario.seed, "update_norm": 0.25}
                    for record in one.records
                ],
            )
            for one in seeds
        ]
        for name, seeds in study.runs.items()
    }
    return dataclasses.replace(study, runs=runs)


def known(study: Study, clients: int = 12, labels: int = 4) -> Study:
    """A study that knows its split and the accuracies of its classes."""
    counts = np.random.default_rng(1).integers(0, 30, (clients, labels))
    counts[0, 0] = 7
    table = SplitTable(np.arange(clients), counts, ("a", "bee", "sea gull", "d"), counts.sum(1))
    runs: dict[str, list[Result]] = {}
    for at, (name, seeds) in enumerate(study.runs.items()):
        runs[name] = [
            dataclasses.replace(
                one,
                make_split=lambda: table,
                records=[
                    *one.records[:-1],
                    {
                        **one.records[-1],
                        "accuracy_by_class": {str(label): 0.2 * label + 0.05 * at for label in range(labels)},
                    },
                ],
            )
            for one in seeds
        ]
    return dataclasses.replace(study, runs=runs)


# ── curves ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_time_is_the_sum_of_what_the_rounds_took() -> None:
    study = study_named("fedavg", "fedacg")
    slow = [
        dataclasses.replace(one, records=[{**record, "seconds_training": 120.0} for record in one.records])
        for one in study.runs["fedacg"]
    ]
    data = curves(dataclasses.replace(study, runs={**study.runs, "fedacg": slow}), {})
    assert data["clock"] == "min"
    quick, long = (method["time"][str(method["curves"]["accuracy"]["grid"])] for method in data["methods"])
    assert quick == pytest.approx([0.3 * number / 60 for number in range(1, 13)], rel=1e-3)
    assert long == pytest.approx([120.05 * number / 60 for number in range(1, 13)], rel=1e-3)


@pytest.mark.parametrize(("seconds", "unit"), [(1.0, "s"), (60.0, "min"), (1500.0, "h")])
def test_the_unit_of_time_grows_with_the_runs(seconds: float, unit: str) -> None:
    study = study_named("fedavg", seeds=1)
    for record in study.runs["fedavg"][0].records:
        record["seconds_training"] = seconds
    assert curves(study, {})["clock"] == unit


def test_time_counts_the_rounds_that_were_not_evaluated() -> None:
    study = study_named("fedavg", seeds=1)
    for record in study.runs["fedavg"][0].records:
        if record["round"] % 4:
            del record["accuracy"], record["accuracy_smoothed"], record["loss"]
    [method] = curves(study, {})["methods"]
    assert method["time"][str(method["curves"]["accuracy"]["grid"])] == pytest.approx([1.2, 2.4, 3.6])


def test_every_seed_is_there_beside_the_mean() -> None:
    study = told(study_named("fedavg", "fedacg", seeds=3))
    data = curves(study, {})
    for method, seeds in zip(data["methods"], study.runs.values(), strict=True):
        assert method["seeds"] == [0, 1, 2]
        for key, scale in (("accuracy", 100), ("train_loss", 1)):
            curve = method["curves"][key]
            assert curve["seeds"] is not None
            for values, one in zip(curve["seeds"], seeds, strict=True):
                assert values == pytest.approx([scale * record[key] for record in one.records], abs=0.006)
            assert curve["mean"] == pytest.approx(np.mean(curve["seeds"], axis=0), abs=0.006)
    assert {"train_loss", "update_norm"} <= {measure["key"] for measure in data["measures"]}
    assert curves(study_named("fedavg", seeds=1), {})["methods"][0]["curves"]["loss"]["seeds"] is None


# ── notes and settings ───────────────────────────────────────────────────────────────────────────────────────────────


def paragraphs(text: str, kind: str) -> list[str]:
    return re.findall(rf'<p class="{kind}">(.*?)</p>', text.split("</header>")[0])


def test_a_remark_is_a_note_and_a_failure_a_warning() -> None:
    study = study_named("fedavg", "fedacg")
    failures = ("fedprox, seed 0, failed: round 2; it was late", "fedprox, seed 1, failed: round 3")
    note = f"Table 1; scaled down; {'; '.join(failures)}; fedacg, seed 0: the first 12 of 20 rounds"
    mixed = page(dataclasses.replace(study, note=note, failed=failures))
    assert paragraphs(mixed, "note") == ["Table 1; scaled down; fedacg, seed 0: the first 12 of 20 rounds"]
    assert paragraphs(mixed, "warning") == list(failures)
    remark = page(dataclasses.replace(study, note="Table 1"))
    assert (paragraphs(remark, "note"), paragraphs(remark, "warning")) == (["Table 1"], [])
    failed = page(dataclasses.replace(study, note="; ".join(failures), failed=failures))
    assert (paragraphs(failed, "note"), paragraphs(failed, "warning")) == ([], list(failures))


def test_settings_that_differ_stand_right_after_the_comparison() -> None:
    study = Study(
        {"fedavg": runs_of("fedavg", 0.6, rate=0.5), "fedacg": runs_of("fedacg", 0.7, rate_decay=0.995)}, None
    )
    text = page(study)
    assert Parsed(text).tables[1] == [
        ["method", "rate", "rate_decay"],
        ["fedavg", "0.5", "0.998"],
        ["fedacg", "0.05", "0.995"],
    ]
    assert text.index('id="h-table"') < text.index('id="h-differing"') < text.index('id="h-curves"')
    assert "h-differing" not in page(study_named("fedavg", "fedacg"))


# ── classes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("executor", ["serial", "batched"])
def test_rounds_record_the_accuracy_of_every_class(executor: str) -> None:
    chosen = experiment("fedacg")
    records, progress = played(chosen, executor)
    x, y = unequal_clients()["test"]
    model = chosen.network.module(progress.model.theta, progress.model.buffers).double().eval()
    with torch.no_grad():
        right = (model(torch.as_tensor(x)).argmax(1) == torch.as_tensor(y)).numpy()
    last = records[-1]
    wanted = {str(label): right[y == label].mean() for label in range(3)}
    assert last["accuracy_by_class"] == pytest.approx(wanted, abs=1e-12)
    counts = np.bincount(y)
    shares = [counts[int(label)] * value for label, value in last["accuracy_by_class"].items()]
    assert sum(shares) / len(y) == pytest.approx(last["accuracy"])


def test_a_class_without_test_samples_and_too_many_classes_are_left_out() -> None:
    given = unequal_clients()
    x, y = given["test"]
    given["test"] = (x[y != 1], y[y != 1])
    result = hw.simulate("fedavg", SMALL, model=norm_free(), **given)
    assert result.records[-1]["accuracy_by_class"].keys() == {"0", "2"}
    many = experiment("fedavg")
    wide = dataclasses.replace(many, federation=dataclasses.replace(many.federation, classes=CLASSES_RECORDED + 1))
    _, progress = played(many)
    assert evaluate(many, progress.model).by_class
    assert evaluate(wide, progress.model).by_class == {}


def test_the_page_has_a_dot_for_each_class_and_their_numbers() -> None:
    study = known(study_named("fedavg", "fedacg", seeds=2))
    text = page(study)
    accuracies = classes.accuracies(study)
    assert accuracies is not None
    assert accuracies.names == ["a", "bee", "sea gull", "d"]
    assert accuracies.values == pytest.approx(np.array([[0, 20, 40, 60], [5, 25, 45, 65]]))
    section = text[text.index('id="h-classes"') :].split("</section>")[0]
    heights = [float(y) for y in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', section)]
    assert np.corrcoef(heights, accuracies.values.ravel())[0, 1] == pytest.approx(-1, abs=1e-3)
    table = next(table for table in Parsed(text).tables if "worst class" in table[0])
    assert table[1] == ["fedavg", "0.00 (a)", "60.00 (d)", "22.36", "0.00", "20.00", "40.00", "60.00"]
    sheet = Parsed(text).data["sheets"]["classes"]
    assert sheet["rows"][2] == [2, "sea gull", 40, 45]


def test_runs_that_did_not_record_classes_or_split_have_no_such_section() -> None:
    text = page(study_named("fedavg", "fedacg"))
    assert "h-classes" not in text
    assert "h-split" not in text
    assert Parsed(text).data["sheets"] == {}


# ── the split ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_knows_its_split_in_memory_and_from_its_folder(tmp_path: Path) -> None:
    result = hw.simulate("fedavg", out=tmp_path / "run", **QUICK)
    kept = load_study([tmp_path / "run"]).runs["fedavg"][0].split
    with np.load(tmp_path / "run/split.npz", allow_pickle=False) as held:
        ends = np.cumsum([0, *held["sizes"]])
        rows = [held["rows"][start:stop] for start, stop in itertools.pairwise(ends)]
    from headway.data import sources

    source = sources.load("fashion", None)
    wanted = [np.bincount(source.train.labels.numpy()[own], minlength=10) for own in rows]
    for table in (result.split, kept):
        assert table is not None
        assert np.array_equal(table.counts, wanted)
        assert np.array_equal(table.clients, np.arange(8))
        assert table.class_names == source.class_names


def test_a_split_that_does_not_fit_its_classes_is_damage(tmp_path: Path) -> None:
    hw.simulate("fedavg", out=tmp_path / "run", **QUICK)
    path = tmp_path / "run/split.npz"
    with np.load(path, allow_pickle=False) as held:
        arrays = dict(held)
    wrong = {**arrays, "class_counts": arrays["class_counts"] + 1}
    np.savez(path, **wrong)
    study = load_study([tmp_path / "run"])
    refused(lambda: page(study), "split.npz is damaged", "its classes are not those of its clients")
    np.savez(path, rows=arrays["rows"], sizes=arrays["sizes"])  # as earlier versions wrote it
    assert load_study([tmp_path / "run"]).runs["fedavg"][0].split is None
    assert "h-split" not in page(load_study([tmp_path / "run"]))


def test_the_picture_has_a_bubble_for_each_class_of_each_client() -> None:
    study = known(study_named("fedavg", "fedacg"))
    table = next(iter(study.runs.values()))[0].split
    assert table is not None
    text = page(study)
    section = text[text.index('id="h-split"') :].split("</section>")[0]
    assert section.count("h.01") == np.count_nonzero(table.counts)
    assert section.count("<figure") == 1, "both methods have one split"
    sheet = Parsed(text).data["sheets"]["split"]
    assert sheet["head"] == ["client", "a", "bee", "sea gull", "d"]
    assert [row[1:] for row in sheet["rows"]] == table.counts.tolist()
    assert f"12 clients hold {table.sizes.sum():,} samples" in section
    areas = [float(wide) ** 2 for wide in re.findall(r'class="bubbles" stroke-width="([\d.]+)"', section)]
    assert areas == sorted(areas, reverse=True), "small bubbles lie in front"


def test_of_many_clients_some_are_drawn_and_the_page_says_so() -> None:
    counts = np.ones((SHOWN, 10), np.int64)
    table = SplitTable(np.arange(SHOWN) * 5, counts, (), np.full(5 * SHOWN, 10))
    text = split.section([("", table)])
    assert text.count("h.01") == 120 * 10
    assert "120 of 5,000 clients are drawn, evenly spaced" in text
    assert len(split.sheet(table)["rows"]) == SHOWN


def test_rows_of_different_splits_have_a_picture_each() -> None:
    runs = [hw.simulate("fedavg", partition=partition, **QUICK) for partition in ("iid", "dirichlet:0.1")]
    study = study_of(runs, by=["partition"])
    tables = split.splits(study)
    assert [label for label, _ in tables] == ["fedavg, partition=iid", "fedavg, partition=dirichlet:0.1"]
    even, uneven = (table.counts.std(0).mean() for _, table in tables)
    assert even < uneven
    assert {"split", "split-2"} <= Parsed(page(study)).data["sheets"].keys()


# ── in a browser ─────────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = ("fedavg", "fedacg", NASTY)


@pytest.fixture
def downloads(browser: Any, tmp_path: Path) -> Callable[[str], str]:
    """Gives the text of a file that the page saved, once it is whole."""
    place = tmp_path / "saved"
    place.mkdir()
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(place)})

    def text(name: str) -> str:
        for _ in range(200):
            if (place / name).is_file() and not list(place.glob("*.crdownload")):
                return (place / name).read_text(encoding="utf-8")
            time.sleep(0.05)
        raise AssertionError(f"{name} was not saved; there is {[one.name for one in place.iterdir()]}")

    return text


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Any:
    """The page of three methods with everything that it may show; at the end the console must be empty."""
    study = known(told(study_named(*NAMES, seeds=3, target=0.5)))
    browser.get(write_page(study, tmp_path / "report.html").as_uri())
    yield browser
    assert browser.get_log("browser") == []


def press(browser: Any, place: str, kind: str) -> None:
    [button] = [one for one in found(browser, f"{place} .save") if one.get_attribute("textContent") == kind]
    browser.execute_script("arguments[0].click()", button)


def names_in(picture: str) -> list[str]:
    """Every text of an SVG; parsing it says that it is whole."""
    root = ElementTree.fromstring(picture.encode())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text")]


def choose(browser: Any, css: str) -> None:
    found(browser, css)[0].send_keys(" ")


def test_thin_lines_are_the_seeds_and_can_be_switched_off(opened: Any) -> None:
    assert len(found(opened, "#chart path.seed")) == 9
    assert len(found(opened, "#chart path.curve")) == 3
    found(opened, "#single")[0].click()
    assert found(opened, "#chart path.seed") == []
    found(opened, "#single")[0].click()
    found(opened, "#legend button")[1].click()
    assert len(found(opened, "#chart path.seed")) == 6, "a hidden method has no seeds either"


def test_curves_can_be_drawn_over_time(opened: Any) -> None:
    choose(opened, "#axis [value=time]")
    labels = [one.text for one in found(opened, "#chart text")]
    assert "s by the clock, training and evaluation" in labels
    assert "3" in labels, "twelve rounds of 0.3 seconds"
    choose(opened, "#measure [value=train_loss]")
    assert len(found(opened, "#chart path.curve")) == 3
    assert "mean loss of the clients' local steps" in [one.text for one in found(opened, "#chart text")]


def test_numbers_of_the_curves_are_saved(opened: Any, downloads: Callable[[str], str]) -> None:
    choose(opened, "#measure [value=accuracy]")
    press(opened, "#curves-saved", "CSV")
    head, *rows = csv.reader(io.StringIO(downloads("curves-accuracy-round.csv")))
    assert head == [
        "method", "round", "MB sent", "s by the clock", "test accuracy, %", "deviation", "seed 0", "seed 1", "seed 2",
    ]  # fmt: skip
    assert [row[0] for row in rows] == [name for name in NAMES for _ in range(12)]
    data = Parsed(Path(opened.current_url.removeprefix("file://")).read_text(encoding="utf-8")).data
    for number, method in enumerate(data["methods"]):
        curve = method["curves"]["accuracy"]
        own = rows[12 * number : 12 * number + 12]
        assert [float(row[4]) for row in own] == curve["mean"]
        assert [float(row[5]) for row in own] == curve["std"]
        assert [[float(row[6 + seed]) for row in own] for seed in range(3)] == curve["seeds"]
        assert [float(row[3]) for row in own] == method["time"][str(curve["grid"])]
    found(opened, "#legend button")[1].click()
    choose(opened, "#axis [value=sent]")
    press(opened, "#curves-saved", "CSV")
    assert {row[0] for row in csv.reader(io.StringIO(downloads("curves-accuracy-sent.csv")))} == {
        "method", NAMES[0], NAMES[2],
    }  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_saved_picture_is_whole_and_for_white_paper(
    browser: Any, opened: Any, downloads: Callable[[str], str], scheme: str
) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        press(browser, "#curves-saved", "SVG")
        picture = downloads("curves-accuracy-round.svg")
        assert browser.execute_script("return document.documentElement.className") == ""
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    texts = names_in(picture)
    assert texts[-3:] == list(NAMES), "the legend is part of the file"
    assert "communication round" in texts
    lines = re.findall(r"<path[^>]*>", picture)
    assert sum('stroke="rgb(68, 119, 170)"' in one for one in lines) == 4, "the first method and its seeds, in print"
    assert 'fill="#ffffff"' in picture
    assert "var(" not in picture
    assert "class=" not in picture
    assert len(found(opened, "#chart .key")) == 0, "the page is as it was"


def test_the_pictures_of_classes_and_split_are_saved(opened: Any, downloads: Callable[[str], str]) -> None:
    data = Parsed(Path(opened.current_url.removeprefix("file://")).read_text(encoding="utf-8")).data
    for name in ("classes", "split"):
        place = f'figure[data-name="{name}"]'
        press(opened, place, "CSV")
        head, *rows = csv.reader(io.StringIO(downloads(f"{name}.csv")))
        sheet = data["sheets"][name]
        assert head == sheet["head"]
        assert rows == [
            [f"{cell:g}" if isinstance(cell, float) else str(cell) for cell in row] for row in sheet["rows"]
        ]
        press(opened, place, "SVG")
        texts = names_in(downloads(f"{name}.svg"))
        assert {"a", "bee", "sea gull", "d"} <= set(texts)
        assert (NASTY in texts) == (name == "classes")


def test_a_field_with_quotes_and_commas_is_one_field(opened: Any, downloads: Callable[[str], str]) -> None:
    press(opened, "#curves-saved", "CSV")
    rows = list(csv.reader(io.StringIO(downloads("curves-accuracy-round.csv"))))
    assert {len(row) for row in rows} == {9}
    assert rows[-1][0] == NASTY


def test_the_pictures_of_local_models_are_saved_as_they_are_drawn(
    browser: Any, tmp_path: Path, downloads: Callable[[str], str]
) -> None:
    [column] = (ROOT / "results/fedacg/figure-2").glob("*/")
    browser.get(write_page(load_study([column]), tmp_path / "report.html").as_uri())
    place = 'figure[data-name="local-models-1-similarity"]'
    press(browser, place, "CSV")
    [analysis] = column.glob("fedacg-*/seed-0/analysis/round-*/analysis.json")
    similarity = json.loads(analysis.read_text())["similarity"]
    head, *rows = csv.reader(io.StringIO(downloads("local-models-1-similarity.csv")))
    assert head == ["layer", "model", "other", "cka"]
    assert {row[0] for row in rows} == set(similarity)
    press(browser, place, "SVG")
    picture = downloads("local-models-1-similarity.svg")
    assert "linear CKA: mean, least to most" in names_in(picture)
    drawn = found(browser, f"{place} svg")[0].get_attribute("innerHTML")
    for colour in ("#4477aa", "#ee6677"):
        assert picture.count(f"fill: {colour}") == drawn.count(f"fill: {colour}") > 0
    assert 'fill="rgb' not in picture, "a fill of its own would hide that of the shape which uses it"
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_section_fits_in_both_schemes(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    study = known(told(study_named(*NAMES, *LONG[:3], seeds=2, target=0.5)), clients=150)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        browser.get(write_page(study, tmp_path / "report.html").as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        for name in ("classes", "split"):
            [chart] = found(browser, f'figure[data-name="{name}"] svg')
            assert chart.rect["width"] >= 700, "in a narrow window it is scrolled, not shrunk"
        colour = "return getComputedStyle(document.querySelector('.bubbles')).stroke"
        assert browser.execute_script(colour) == {"light": "rgb(68, 119, 170)", "dark": "rgb(122, 169, 220)"}[scheme]
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [390, 1280])
def test_a_long_table_keeps_its_names_in_sight(browser: Any, tmp_path: Path, width: int) -> None:
    """16 methods with long names and 20 columns: the names stay while the numbers are scrolled by the keyboard."""
    study = study_named(*LONG, seeds=3, target=0.5)
    metrics = ["accuracy", *(f"metric_{number}" for number in range(12))]
    about = [{"name": name, "higher_is_better": True, "percent": False} for name in metrics]
    for one in itertools.chain(*study.runs.values()):
        one.records[0]["metrics"] = about
        for record in one.records:
            record.update(dict.fromkeys(metrics[1:], 0.123456))
            record["accuracy"] = record["accuracy"]
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get(write_page(study, tmp_path / "report.html").as_uri())
        [box] = found(browser, "section:first-of-type .wide")
        assert len(found(browser, "section:first-of-type th")) >= 20
        name = found(browser, "section:first-of-type tbody td:first-child")[7]
        assert name.text == LONG[7]
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", name)
        before = name.rect
        assert before["width"] <= 0.45 * width, "there is room for numbers beside the names"
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        assert browser.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth + 100", box)
        assert box.get_attribute("tabindex") == "0", "the keyboard can scroll it"
        browser.execute_script("arguments[0].scrollLeft = 100000", box)
        time.sleep(0.2)
        assert name.rect["x"] == pytest.approx(before["x"], abs=1)
        last = found(browser, "section:first-of-type tbody tr:nth-child(8) td:last-child")[0].rect
        assert last["x"] + last["width"] <= box.rect["x"] + box.rect["width"] + 1, "the last column can be reached"
        assert last["x"] >= before["x"] + before["width"] - 1, "and is not under the names"
        top = browser.execute_script(
            "const {x, y} = arguments[0].getBoundingClientRect(); return arguments[0].contains("
            "document.elementFromPoint(x + 8, y + 8))",
            name,
        )
        assert top, "the name lies above the numbers"
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.get_log("browser") == []


def test_the_panels_of_a_grid_are_saved(browser: Any, tmp_path: Path, downloads: Callable[[str], str]) -> None:
    settings = {**QUICK, "eval_samples": 50, "seeds": 2}
    grid = hw.compare_grid(["fedavg", "fedacg"], vary={"partition": ["iid", "dirichlet:0.3"]}, **settings)
    browser.get(hw.report.write_grid(grid, tmp_path / "grid").page.as_uri())
    panels = found(browser, "figure.saved")
    assert [one.get_attribute("data-name") for one in panels] == ["curves-01", "curves-02"]
    press(browser, 'figure[data-name="curves-02"]', "CSV")
    head, *rows = csv.reader(io.StringIO(downloads("curves-02.csv")))
    assert head == ["method", "round", "last accuracy %", "deviation"]
    study = grid.cells[1].study
    assert study is not None
    for name in ("fedavg", "fedacg"):
        each = [[100 * record["accuracy"] for record in one.records] for one in study.runs[name]]
        own = [row for row in rows if row[0] == name]
        assert [float(row[2]) for row in own] == pytest.approx(np.mean(each, axis=0), rel=1e-5)
        assert [float(row[3]) for row in own] == pytest.approx(np.std(each, axis=0, ddof=1), rel=1e-5)
    press(browser, 'figure[data-name="curves-01"]', "SVG")
    above = ["last accuracy % over communication rounds", "partition=iid"]
    assert names_in(downloads("curves-01.svg"))[-4:] == ["fedavg", "fedacg", *above]
    assert browser.get_log("browser") == []
