"""The page of a comparison: what it holds, and what it does in a real browser."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import headway
from headway.cli.main import app
from headway.engine.cost import cost
from headway.errors import UserError
from headway.methods.catalogue import METHODS
from headway.report.page.curves import POINTS, curves
from headway.report.page.write import page, write_page
from headway.report.tables import best, cells
from headway.runs.costs import cost_record
from headway.runs.files import read_json, write_json
from headway.runs.given import catalogue_method
from headway.runs.result import Result
from headway.runs.study import Study, load_study
from headway.scenario import Scenario

NASTY = "</script><script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">&amp;"
LITTLE = "--model linear --rounds 4 --clients 20 --steps 1 --device cpu --executor serial"


def record(number: int, level: float, numeric: bool = False) -> dict[str, Any]:
    """A round of a run whose accuracy rises towards `level`."""
    accuracy = level * (1 - math.exp(-number / 5))
    told = {"round": number, "steps": 10, "bytes_down": 100_000, "bytes_up": 50_000}
    told |= {"bytes_down_total": 100_000 * number, "bytes_up_total": 50_000 * number}
    told |= {"seconds_training": 0.25, "seconds_evaluation": 0.05, "loss": 2.5 - accuracy}
    if numeric:
        return told | {"rmse": math.sqrt(2.5 - accuracy), "r2": accuracy}
    return told | {"accuracy": accuracy, "accuracy_smoothed": 0.95 * accuracy, "client_accuracy_std": 0.125}


def runs_of(name: str, level: float, rounds: int = 12, seeds: int = 2, numeric: bool = False, **settings: Any) -> list:
    scenario = Scenario(method=name, rounds=rounds, participation=0.1, precision="fp32", **settings)
    return [
        Result(
            name,
            dataclasses.replace(scenario, seed=seed),
            [record(number, level + 0.01 * seed, numeric) for number in range(1, rounds + 1)],
            nn.Identity,
            "serial",
            None,
            cost=cost_record(named) if (named := catalogue_method(name)) is not None else None,
        )
        for seed in range(seeds)
    ]


def study_of(*names: str, **settings: Any) -> Study:
    return Study({name: runs_of(name, 0.6 + 0.05 * at, **settings) for at, name in enumerate(names)}, None)


class Parsed(HTMLParser):
    """Elements, tables and scripts of a page; every element must be closed in its order."""

    VOID = ("meta", "input", "br", "img", "link", "wbr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.bold: list[str] = []
        self.scripts: list[str] = []
        self.preformatted: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
        elif tag in ("script", "pre"):
            (self.scripts if tag == "script" else self.preformatted).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data
            if "strong" in self.open:
                self.bold.append(data)
        elif "script" in self.open:
            self.scripts[-1] += data
        elif "pre" in self.open:
            self.preformatted[-1] += data

    @property
    def data(self) -> Any:
        return json.loads(self.scripts[0])


# ── what is in it ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_table_of_the_page_is_the_table_of_the_report() -> None:
    study = study_of("fedavg", "fedacg", "fedprox")
    rows = study.summary()
    head, body = cells(rows)
    parsed = Parsed(page(study))
    assert parsed.tables[0] == [head, *body]
    assert sorted(parsed.bold) == sorted(body[row][column] for row, column in best(rows))


def test_the_page_says_which_differences_are_distinguishable() -> None:
    """FedAvg's levels are 5 points lower in every seed, FedProx's differ from FedACG's by 5 ± 1."""
    runs = study_of("fedavg", "fedacg", rounds=60, seeds=3).runs
    levels = {0: 0.55, 1: 0.61, 2: 0.58}
    runs["fedprox"] = [
        dataclasses.replace(one, records=[record(number, levels[one.scenario.seed]) for number in range(1, 61)])
        for one in runs_of("fedprox", 0.0, rounds=60, seeds=3)
    ]
    parsed = Parsed(page(Study(runs, None)))
    head, *body = parsed.tables[0]
    found = {line[0]: line[head.index("against best")] for line in body}
    assert found["fedacg"] == "best"
    assert found["fedavg"] == "−4.75 same in every seed"
    # 0.95 · (−10, −5, −9) = −9.5, −4.75, −8.55: mean −7.6, s = 2.513, 4.3027 · s/√3 = 6.24
    assert found["fedprox"] == "−7.60 [−13.84, −1.36] distinguishable"
    assert "Against best: mean difference over seeds that both have" in parsed.text
    assert ("span", {"class": "word clear"}) in parsed.elements
    assert Parsed(page(study_of("fedavg", "fedacg", seeds=2))).text.count("needs 3 seeds") > 0


def test_the_curves_of_a_short_run_begin_with_the_raw_accuracy() -> None:
    for rounds, first in ((12, "accuracy"), (60, "accuracy_smoothed")):
        data = Parsed(page(study_of("fedavg", "fedacg", rounds=rounds))).data
        assert data["measures"][0]["key"] == first


def test_costs_are_the_sums_of_the_records() -> None:
    table = Parsed(page(study_of("fedavg", "scaffold", "gradma"))).tables[1]
    costs = [dict(zip(table[0], line, strict=True)) for line in table[1:]]
    for line in costs:
        assert line["kB down a round"] == "100.00"
        assert line["kB up a round"] == "50.00"
        assert line["kB down"] == "1200.0"
        assert line["kB up"] == "600.0"
        assert line["local steps"] == "120"
        assert line["seconds training"] == "3.0"
        assert line["seconds evaluating"] == "0.6"
    assert [line["passes"] for line in costs] == ["1", "1", "3"]
    assert [line["client state"] for line in costs] == ["0", "1", "1"]


def test_a_page_plays_no_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs that an earlier version did not record are not made up for; a user's own method never has any."""
    study = study_of("fedavg", "mine")
    study.runs["fedavg"] = [dataclasses.replace(one, cost=None) for one in study.runs["fedavg"]]
    for place in ("engine.cost.cost", "runs.costs.cost", "engine.simulation.simulate"):
        monkeypatch.setattr(f"headway.{place}", lambda *_: pytest.fail("a round was played"))
    table = Parsed(page(study)).tables[1]
    for name in ("passes", "client state", "server memory"):
        assert [line[table[0].index(name)] for line in table[1:]] == ["not recorded", "–"]


def test_a_run_records_what_its_method_costs(tmp_path: Path) -> None:
    quick: dict[str, Any] = {"rounds": 1, "clients": 6, "model": "linear", "steps": 1, "executor": "serial"}
    result = headway.simulate("scaffold", out=tmp_path / "run", device="cpu", **quick)
    assert result.cost == dataclasses.asdict(cost(headway.method("scaffold")))
    assert headway.load_run(tmp_path / "run").cost == result.cost
    assert read_json(tmp_path / "run/summary.json")["cost"] == result.cost
    (one,) = load_study([tmp_path / "run"]).runs["scaffold"]
    assert one.cost == result.cost


def test_curves_are_means_and_deviations_over_the_seeds() -> None:
    study = study_of("fedavg", "fedacg", target=0.5)
    data = Parsed(page(study)).data
    assert data["target"] == 50
    assert [method["name"] for method in data["methods"]] == ["fedavg", "fedacg"]
    curve = data["methods"][1]["curves"]["accuracy"]
    each = [[100 * record["accuracy"] for record in one.records] for one in study.runs["fedacg"]]
    assert curve["mean"] == pytest.approx([(a + b) / 2 for a, b in zip(*each, strict=True)], abs=0.006)
    assert curve["std"] == pytest.approx([abs(a - b) / math.sqrt(2) for a, b in zip(*each, strict=True)], abs=0.006)
    grid = data["grids"][curve["grid"]]
    assert grid["round"] == list(range(1, 13))
    assert grid["sent"] == pytest.approx([0.15 * number for number in range(1, 13)])


def test_every_setting_is_reported() -> None:
    parsed = Parsed(page(study_of("fedavg", "fedacg", rate=0.0625)))
    for setting in dataclasses.fields(Scenario):
        if setting.name not in ("method", "seed", "seeds"):
            assert setting.name in parsed.text
    assert "0.0625" in parsed.text


def test_nothing_is_fetched() -> None:
    text = page(study_of("fedavg", "fedacg"))
    assert re.findall(r"https?://|url\(|@import|\bfetch\(|XMLHttpRequest", text) == []
    for tag, attributes in Parsed(text).elements:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert not {"src", "href", "srcset", "action"} & attributes.keys()


def test_a_name_cannot_break_the_page() -> None:
    study = study_of("fedavg")
    named = Study({**study.runs, NASTY: runs_of("fedavg", 0.7)}, None, note=NASTY)
    text = page(named)
    parsed = Parsed(text)
    assert len(parsed.scripts) == 2
    assert "img" not in [tag for tag, _ in parsed.elements]
    assert parsed.data["methods"][1]["name"] == NASTY
    assert parsed.tables[0][2][0] == NASTY
    assert "innerHTML" not in text


def test_a_regression_is_reported_by_its_loss() -> None:
    study = study_of("fedavg", "fedacg", numeric=True)
    parsed = Parsed(page(study))
    heads = parsed.tables[0][0]
    assert heads[1:3] == ["last loss", "smoothed"]
    assert heads[-3:-1] == ["RMSE", "R²"]
    assert not any("accuracy" in head or "client spread" in head for head in heads)
    assert [measure["key"] for measure in parsed.data["measures"]] == ["loss", "rmse", "r2"]
    assert [measure["higher"] for measure in parsed.data["measures"]] == [False, False, True]
    assert parsed.data["target"] is None


def test_a_long_run_stays_small() -> None:
    study = Study({name: runs_of(name, 0.5, rounds=2 * POINTS + 1, seeds=1) for name in ("fedavg", "fedacg")}, None)
    data = curves(study, {})
    curve = data["methods"][0]["curves"]["loss"]
    rounds = data["grids"][curve["grid"]]["round"]
    assert len(curve["mean"]) == len(rounds) <= POINTS + 1
    assert rounds[-1] == 2 * POINTS + 1
    assert len(data["grids"]) == 1, "methods evaluated at the same places share them"
    assert len(json.dumps(data)) < 110_000


def test_seeds_with_unequal_evaluations_are_averaged_where_all_were_evaluated() -> None:
    first, second = runs_of("fedavg", 0.6)
    shorter = dataclasses.replace(second, records=[one for one in second.records if one["round"] % 2 == 0][:3])
    data = curves(Study({"fedavg": [first, shorter], "fedacg": runs_of("fedacg", 0.7)}, None), {})
    assert data["grids"][data["methods"][0]["curves"]["loss"]["grid"]]["round"] == [2, 4, 6]
    assert data["grids"][data["methods"][1]["curves"]["loss"]["grid"]]["round"] == list(range(1, 13))


def test_a_value_that_is_no_number_is_a_gap() -> None:
    runs = runs_of("fedavg", 0.6, seeds=1)
    runs[0].records[4]["loss"] = math.inf
    assert Parsed(page(Study({"fedavg": runs}, None))).data["methods"][0]["curves"]["loss"]["mean"][4] is None


def test_settings_tuned_with_a_method_stand_beside_it() -> None:
    study = Study({"fedavg": runs_of("fedavg", 0.6), "fedacg": runs_of("fedacg", 0.7, rate_decay=0.995)}, None)
    parsed = Parsed(page(study))
    assert [["method", "rate_decay"], ["fedavg", "0.998"], ["fedacg", "0.995"]] in parsed.tables
    assert len(parsed.preformatted) == 3, "two comparisons and their report"


def test_runs_of_python_objects_have_no_command() -> None:
    parsed = Parsed(page(study_of("fedavg", model="own")))
    assert parsed.preformatted == []
    assert "its own model" in parsed.text


# ── from the command line ────────────────────────────────────────────────────────────────────────────────────────────


def invoked(command: str) -> Any:
    return CliRunner().invoke(app, shlex.split(command))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "compared"
    answer = invoked(f"compare fedavg fedacg {LITTLE} --seeds 2 --seed 3 --quiet --out {folder}")
    assert answer.exit_code == 0, answer.output
    assert f"page:    {folder / 'report.html'}" in answer.output
    return folder


def test_compare_and_report_write_the_same_page(compared: Path, tmp_path: Path) -> None:
    answer = invoked(f"report {compared} --out {tmp_path}")
    assert answer.exit_code == 0, answer.output
    assert str(tmp_path / "report.html") in answer.output
    assert (tmp_path / "report.html").read_bytes() == (compared / "report.html").read_bytes()


def test_the_environment_is_the_recorded_one(compared: Path) -> None:
    recorded = json.loads((compared / "fedavg/seed-3/summary.json").read_text())["environment"]
    text = Parsed((compared / "report.html").read_text(encoding="utf-8")).text
    for word in (recorded["hardware"], recorded["system"], f"torch {recorded['versions']['torch']}", "serial", "3, 4"):
        assert word in text
    assert "not recorded" not in text


def test_the_command_of_the_page_makes_the_same_numbers(
    compared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [command] = Parsed((compared / "report.html").read_text(encoding="utf-8")).preformatted
    assert command.startswith("headway compare fedavg fedacg ")
    assert invoked(command.removeprefix("headway ") + " --quiet").exit_code == 0
    first, second = (
        [(row["name"], row["accuracy"], row["loss"], row["bytes_up"]) for row in load_study([folder]).summary()]
        for folder in (compared, tmp_path / "runs/again")
    )
    assert first == second


def test_an_unfinished_run_says_where_it_stands(compared: Path, tmp_path: Path) -> None:
    shutil.copytree(compared, tmp_path / "stopped")
    (tmp_path / "stopped/fedacg/seed-4/summary.json").unlink()
    text = Parsed(page(load_study([tmp_path / "stopped"]))).text
    assert "fedacg: seed 4 unfinished, round 4 of 4" in text
    assert "not recorded" in text
    rows = load_study([tmp_path / "stopped"]).summary()
    assert all(row["against_best"] for row in rows), "it has all its rounds: only its summary is not there"
    write_json(tmp_path / "stopped/fedacg/seed-4/summary.json", {"finished": False, "failure": "round 5, client 2: oh"})
    text = Parsed(page(load_study([tmp_path / "stopped"]))).text
    assert "fedacg: seed 4 unfinished, round 4 of 4; it failed: round 5, client 2: oh" in text
    rows = load_study([tmp_path / "stopped"]).summary()
    assert [row["against_best"] for row in rows] == [None, None], "it is compared with nobody"


def test_a_report_needs_neither_the_data_nor_a_checkpoint(
    compared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results that somebody keeps or sends are records and settings only."""
    shutil.copytree(compared, tmp_path / "sent", ignore=shutil.ignore_patterns("checkpoint", "split.npz"))
    monkeypatch.setattr("headway.runs.load.build", lambda *_, **__: pytest.fail("the data was read"))
    told = [without_folders(row) for folder in (compared, tmp_path / "sent") for row in load_study([folder]).summary()]
    assert told[:2] == told[2:]
    (tmp_path / "sent/fedavg/seed-3/summary.json").write_text('{"finished": true}')
    with pytest.raises(UserError, match=r"summary\.json is damaged"):
        load_study([tmp_path / "sent"])


def without_folders(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "folders"}


def test_a_run_of_own_objects_is_reported(tmp_path: Path) -> None:
    clients = [(torch.arange(32.0).reshape(8, 4) / 32, torch.tensor([0, 1] * 4)) for _ in range(3)]
    own = {"model": nn.Linear(4, 2), "clients": clients, "test": clients[0], "rounds": 2, "participation": 1.0}
    headway.simulate(headway.Method(server=headway.momentum(0.5)), **own, device="cpu", out=tmp_path / "own")
    answer = invoked(f"report {tmp_path / 'own'} --out {tmp_path / 'out'}")
    assert answer.exit_code == 0, answer.output
    parsed = Parsed((tmp_path / "out/report.html").read_text(encoding="utf-8"))
    assert parsed.preformatted == []
    assert "its own data and model and method" in parsed.text


def test_a_column_of_a_reproduced_table_is_a_comparison_with_its_mark(
    compared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = tmp_path / "item"
    shutil.copytree(compared / "fedavg/seed-3", item / "one/FedAvg/seed-3")
    shutil.copytree(compared / "fedavg/seed-3", item / "two/FedAvg/seed-3")
    tuned = invoked(f"run fedacg {LITTLE} --seed 3 --rate-decay 0.9 --quiet --out {item / 'one/FedACG/seed-3'}")
    assert tuned.exit_code == 0, tuned.output
    with pytest.raises(UserError, match=r"not comparable: rate_decay is 0\.9 and 0\.998; --tuned"):
        load_study([item / "one"])
    measured = load_study([item / "one"], tuned=True).summary()
    about = {"item": "paper/table-1", "title": "Table 1", "scaled": "scaled down (tiny)"}
    (item / "reproduce.json").write_text(json.dumps(about))

    with pytest.raises(UserError, match=rf"2 columns.*\(one, two\).*headway report {item}/one"):
        load_study([item])
    column = invoked(f"report {item / 'one'} --out {tmp_path / 'out'}")
    assert column.exit_code == 0, column.output
    assert "scaled down (tiny)" in column.output
    parsed = Parsed((tmp_path / "out/report.html").read_text(encoding="utf-8"))
    assert "paper/table-1; Table 1; scaled down (tiny)" in parsed.text
    assert [["method", "rate_decay"], ["fedacg", "0.9"], ["fedavg", "0.998"]] in parsed.tables

    monkeypatch.chdir(tmp_path)
    for command in parsed.preformatted:
        again = invoked(command.removeprefix("headway ") + " --json")
        assert again.exit_code == 0, again.output
    assert [row["accuracy"] for row in json.loads(again.stdout)["methods"]] == [row["accuracy"] for row in measured]

    shutil.rmtree(item / "two")
    assert list(load_study([item]).runs) == ["fedacg", "fedavg"]
    assert "tiny" in load_study([item / "one/FedAvg/seed-3"]).note


# ── in a browser ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def shown(browser: Any, tmp_path: Path) -> Any:
    """The page of five methods, opened; at the end the console must be empty."""
    study = study_of("fedavg", "fedavgm", "fedacg", "fedprox", NASTY, target=0.5)
    browser.get(write_page(study, tmp_path / "report.html").as_uri())
    yield browser
    assert browser.get_log("browser") == []


def found(browser: Any, css: str) -> list[Any]:
    return browser.find_elements("css selector", css)


def drawn(browser: Any) -> set[int]:
    """Numbers of the methods whose curves are there, each with something to see."""
    paths = found(browser, "#chart path.curve")
    assert all(path.get_attribute("d").count("L") > 5 and path.rect["width"] > 300 for path in paths)
    return {int(path.get_attribute("data-number")) for path in paths}


def hover(browser: Any, across: float) -> str:
    """Moves the pointer over the chart, `across` of its width from the left; what the box then says."""
    from selenium.webdriver.common.action_chains import ActionChains

    [chart], [tip] = found(browser, "#chart"), found(browser, "#tip")
    ActionChains(browser).move_to_element_with_offset(chart, int((across - 0.5) * chart.rect["width"]), 0).perform()
    return tip.text if tip.is_displayed() else ""


def test_curves_are_drawn_and_a_click_in_the_legend_hides_one(shown: Any, tmp_path: Path) -> None:
    assert drawn(shown) == {0, 1, 2, 3, 4}
    buttons = found(shown, "#legend button")
    assert [button.text for button in buttons] == ["fedavg", "fedavgm", "fedacg", "fedprox", NASTY, "hide all"]
    buttons[2].click()
    assert drawn(shown) == {0, 1, 3, 4}
    assert buttons[2].get_attribute("aria-pressed") == "false"
    assert shown.title == "5 methods on fashion", "a method's name was run as a script"
    assert shown.save_screenshot(str(tmp_path / "page.png"))
    assert (tmp_path / "page.png").stat().st_size > 20_000
    buttons[2].send_keys(" ")  # by keyboard
    assert drawn(shown) == {0, 1, 2, 3, 4}
    buttons[-1].click()
    assert drawn(shown) == set()
    assert hover(shown, 0.5) == ""
    buttons[-1].click()
    assert drawn(shown) == {0, 1, 2, 3, 4}


def test_the_pointer_reads_every_method_at_its_round(shown: Any) -> None:
    text = hover(shown, 0.5)
    number = int(re.search(r"round (\d+)", text)[1])
    assert 5 <= number <= 7
    for at, name in enumerate(("fedavg", "fedavgm", "fedacg", "fedprox", NASTY)):
        value = 100 * (0.6 + 0.05 * at + 0.005) * (1 - math.exp(-number / 5))  # raw: the run is short
        told = re.search(rf"^{re.escape(name)} ([\d.]+) ±", text, re.MULTILINE)
        assert told is not None, text
        assert float(told[1]) == pytest.approx(value, abs=0.006)
    found(shown, "#axis input")[1].send_keys(" ")
    assert " MB" in hover(shown, 0.9)


def test_switches_change_what_is_drawn(shown: Any) -> None:
    def picture() -> list[str]:
        return [path.get_attribute("d") for path in found(shown, "#chart path.curve")]

    pictures = [picture()]
    for css, at in (("#measure input", 1), ("#measure input", 2), ("#axis input", 1), ("#log", 0)):
        found(shown, css)[at].send_keys(" ")
        pictures.append(picture())
    assert all(len(one) == 5 for one in pictures)
    assert pictures[1] != pictures[2] != pictures[4] != pictures[0]
    assert len(found(shown, "#chart .target")) == 0, "a loss has no target accuracy"
    assert len(found(shown, "#chart path.spread")) == 5
    found(shown, "#band")[0].click()
    assert found(shown, "#chart path.spread") == []


def test_a_heading_sorts(shown: Any) -> None:
    def column(at: int) -> list[str]:
        return [cell.text for cell in found(shown, f"section:first-of-type tbody td:nth-child({at})")]

    best_last = column(2)
    heading = found(shown, "section:first-of-type th:nth-child(2) button")[0]
    heading.click()
    assert column(2) == best_last[::-1]
    heading.click()
    assert column(2) == best_last


def test_differences_are_in_two_lines_and_are_sorted_as_numbers(browser: Any, tmp_path: Path) -> None:
    """The minus sign is one that JavaScript does not read; the best is 0 from itself."""
    study = study_of("fedavg", "fedacg", "fedprox", seeds=3)
    levels = {"fedavg": (0.1, 0.13, 0.12), "fedacg": (0.9, 0.91, 0.89), "fedprox": (0.85, 0.92, 0.80)}
    runs = {
        name: [
            dataclasses.replace(one, records=[record(number, level) for number in range(1, 13)])
            for one, level in zip(results, levels[name], strict=True)
        ]
        for name, results in study.runs.items()
    }
    browser.get(write_page(Study(runs, None), tmp_path / "report.html").as_uri())
    place = "section:first-of-type tbody td:nth-child(4)"
    assert [cell.text.split("\n")[-1] for cell in found(browser, place)] == [
        "distinguishable",
        "best",
        "not distinguishable",
    ]
    assert all(cell.text.count("\n") == 1 for cell in found(browser, place) if cell.text != "best")
    names = "section:first-of-type tbody td:first-child"
    found(browser, "section:first-of-type th:nth-child(4) button")[0].click()
    assert [cell.text for cell in found(browser, names)] == ["fedacg", "fedprox", "fedavg"]
    found(browser, "section:first-of-type th:nth-child(4) button")[0].click()
    assert [cell.text for cell in found(browser, names)] == ["fedavg", "fedprox", "fedacg"]
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [420, 1280])
def test_every_method_fits_on_narrow_and_wide_screens(browser: Any, tmp_path: Path, width: int) -> None:
    study = study_of(*METHODS, rounds=30, seeds=1)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get(write_page(study, tmp_path / "report.html").as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        assert len(found(browser, "#chart path.curve")) == len(METHODS)
        assert hover(browser, 0.6).count("\n") >= len(METHODS)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.get_log("browser") == []


def test_the_switch_of_many_metrics_fits_on_a_narrow_screen(browser: Any, tmp_path: Path) -> None:
    (run,) = runs_of("fedavg", 0.6, seeds=1)
    names = ["perplexity", "bits_per_character", "MulticlassF1Score", "PearsonCorrCoef", "accuracy", "top5"]
    values = {**dict.fromkeys(names, 2.5), "perplexity_smoothed": 2.5}
    told = {"metrics": [{"name": name, "higher_is_better": False, "percent": False} for name in names]}
    study = Study(
        {"fedavg": [dataclasses.replace(run, records=[{**one, **values, **told} for one in run.records])]}, None
    )
    size = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get(write_page(study, tmp_path / "report.html").as_uri())
        assert len(found(browser, "#measure input")) > len(names)
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.get_log("browser") == []


def test_the_dark_scheme_and_one_short_run(browser: Any, tmp_path: Path) -> None:
    path = write_page(Study({"fedavg": runs_of("fedavg", 0.6, rounds=1, seeds=1)}, None), tmp_path / "report.html")
    grounds = {}
    for scheme in ("light", "dark"):
        wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
        browser.get(path.as_uri())
        assert len(found(browser, "#chart path.curve")) == 1
        grounds[scheme] = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert grounds["light"] != grounds["dark"]
    assert browser.get_log("browser") == []
