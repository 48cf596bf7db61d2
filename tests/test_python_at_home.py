"""Python at home: types that a checker reads, progress that is seen, results that show themselves."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import subprocess
import sys
import typing
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas
import pytest
import torch
from safetensors.torch import load_file

import headway as hw
from headway.errors import CallbackError, UserError
from headway.methods.catalogue import METHODS
from headway.models.networks import NETWORKS
from headway.runs import shown
from headway.runs.observer import Unwatched, as_observer
from headway.runs.shown import NotebookProgress, TerminalProgress
from headway.runs.study import study_of
from headway.scenario import Scenario
from headway.typed_settings import ScenarioSettings, Settings

ROOT = Path(__file__).parents[1]
LITTLE: dict[str, Any] = {
    "model": "linear",
    "rounds": 3,
    "clients": 10,
    "steps": 1,
    "device": "cpu",
    "executor": "serial",
    "eval_samples": 50,
}
GIVEN_AS_OBJECTS = {"method", "model", "clients", "task", "metrics"}


@pytest.fixture(scope="module")
def study() -> hw.Study:
    return hw.compare(["fedavg", "fedacg"], seeds=2, **LITTLE)


# ── types ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_typed_settings_are_those_of_a_scenario() -> None:
    """With the same types; a path may be given as one, and data as a dataset."""
    typed, checked = typing.get_type_hints(Settings), typing.get_type_hints(Scenario)
    assert typed.keys() == checked.keys() - GIVEN_AS_OBJECTS
    assert {name for name in typed if typed[name] != checked[name]} == {"attendance", "data"}
    assert typing.get_type_hints(ScenarioSettings) == checked


WRONG = """\
import headway as hw

hw.simulate("fedacg", rounds=3, rate=0.1, partition="iid", participation=None)
hw.compare(["fedavg"], seeds=2, deterministic=True)
hw.simulate("fedacg", rounds="three")  # refused
hw.simulate("fedacg", round=3)  # refused
hw.compare(["fedavg"], deterministic="yes")  # refused
hw.compare_grid(["fedavg"], vary={"rate": [0.1]}, clip=None)  # refused
hw.sweep("fedacg", {"lam": [0.8]}, batch_size=1.5)  # refused
hw.simulate("fedacg", model=3)  # refused
iid = hw.scenario("fashion/iid/60x6", rounds=3, method="fedacg", metrics=None, clients=30)
hw.simulate("fedacg", iid.changed(rate=0.1, cohort_size=None, attendance="runs/before"))
hw.scenario(rounds="three")  # refused
hw.scenario("fashion/iid/60x6", round=3)  # refused
iid.changed(rounds="three")  # refused
iid.changed(clients=None)  # refused
iid.changed(data=[1, 2])  # refused
"""


@pytest.mark.soak
def test_a_type_checker_refuses_wrong_settings(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(WRONG)
    answer = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-error-summary", str(file)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    refused = {int(line.split(":")[1]) for line in answer.stdout.splitlines() if ": error:" in line}
    assert refused == {at for at, line in enumerate(WRONG.splitlines(), 1) if "refused" in line}, answer.stdout


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Screen(io.StringIO):
    """Standard error of a terminal."""

    def isatty(self) -> bool:
        return True


class Shell:
    """A notebook's kernel, and the places that it has shown."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.places: list[list[str]] = []
        outside, display = ModuleType("IPython"), ModuleType("IPython.display")
        shell = type("ZMQInteractiveShell", (), {})()
        outside.get_ipython = lambda: shell  # type: ignore[attr-defined]
        display.display = self._display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", outside)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def _display(self, content: Any, display_id: bool) -> Any:
        assert display_id
        place = [content._repr_html_()]
        self.places.append(place)
        return type("Handle", (), {"update": lambda _, new: place.append(new._repr_html_())})()


def test_a_pipe_has_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(as_observer(None), Unwatched)
    hw.simulate("fedavg", **LITTLE)
    assert capsys.readouterr().err == "headway: task: classification of 10 classes, cross-entropy, accuracy\n"


def test_a_terminal_has_a_bar_for_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    assert isinstance(as_observer(None), TerminalProgress)
    hw.compare(["fedavg", "fedacg"], **LITTLE)
    text = screen.getvalue()
    assert "fedavg · seed 0" in text
    assert "fedacg · seed 0" in text
    assert re.search(r"3/3\S* rounds", text)
    assert text.count("task:") == 1
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"), "the cursor is back"


def test_a_run_that_fails_leaves_no_bar_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    with pytest.raises(CallbackError):
        hw.simulate("fedavg", callbacks=[lambda run: 1 / 0], **LITTLE)
    assert screen.getvalue().rfind("\x1b[?25h") > screen.getvalue().rfind("\x1b[?25l")


def test_a_notebook_has_a_line_for_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(monkeypatch)
    assert isinstance(as_observer(None), NotebookProgress)
    hw.compare(["fedavg", "fedacg"], **LITTLE)
    assert len(shell.places) == 2
    for place, name in zip(shell.places, ("fedavg", "fedacg"), strict=True):
        assert f"{name} · seed 0 · serial · 0/3 rounds" in place[0]
        assert 'value="3" max="3"' in place[-1]
        assert "accuracy" in place[-1]


def test_a_notebook_shows_where_a_failed_run_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(monkeypatch)

    def ends(run: hw.Run) -> None:
        if run.record["round"] == 2:
            raise ValueError("enough")

    with pytest.raises(CallbackError):
        hw.simulate("fedavg", callbacks=[ends], **LITTLE)
    assert "1/3 rounds" in shell.places[0][-1]


def test_an_ordinary_ipython_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = ModuleType("IPython")
    shell = type("TerminalInteractiveShell", (), {})()
    outside.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", outside)
    assert shown.notebook() is None


def test_messages_stay_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    Shell(monkeypatch)
    for observer in (TerminalProgress(), as_observer(None)):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            observer.tell("careful")
        assert [str(one.message) for one in heard] == ["careful"]


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_result_is_a_line_with_its_headline(study: hw.Study) -> None:
    result = study.runs["fedacg"][0]
    level = result.summary["last_accuracy"]
    assert level is not None
    assert repr(result) == f"Result(fedacg on fashion, seed 0: last accuracy {100 * level:.1f} % after 3 rounds)"
    assert "1 of 3 rounds" in repr(_first_rounds(result, 1))
    assert repr(_first_rounds(result, 0)) == "Result(fedacg on fashion, seed 0: 0 of 3 rounds)"


def _first_rounds(result: hw.Result, rounds: int) -> hw.Result:
    return dataclasses.replace(result, records=result.records[:rounds])


def test_a_study_is_a_line_with_every_headline(study: hw.Study) -> None:
    levels = {row["name"]: 100 * (row["last_accuracy"] or 0) for row in study.summary()}
    each = ", ".join(f"{name} {level:.1f} %" for name, level in levels.items())
    assert repr(study) == f"Study({each}: last accuracy, 2 seeds)"


def test_a_notebook_shows_the_table(study: hw.Study) -> None:
    for shows in (study, study.runs["fedavg"][0]):
        text = shows._repr_html_()
        assert text.startswith("<table>")
        assert "last accuracy %" in text
    assert study._repr_html_().count("<tr>") == 3
    assert study._repr_html_().count("<strong>") >= 1


def test_a_name_with_html_in_it_stays_text() -> None:
    bad = hw.Method(name="<img src=x>")
    text = study_of([hw.simulate(bad, **LITTLE)])._repr_html_()
    assert "<img" not in text
    assert "&lt;img" in text


def test_result_and_study_have_the_same_names(study: hw.Study, tmp_path: Path) -> None:
    result = study.runs["fedacg"][0]
    for number, one in enumerate((result, study)):
        assert one.plot()._repr_png_().startswith(b"\x89PNG\r\n\x1a\n")
        saved = one.plot().save(tmp_path / f"{number}.svg")
        assert "<svg" in saved.read_text(encoding="utf-8")
        assert one.report(tmp_path / str(number)).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
        assert isinstance(one.table(), pandas.DataFrame)
    with pytest.raises(UserError, match=r"must end in \.png, \.svg or \.pdf"):
        study.plot().save(tmp_path / "curves.bmp")


def test_the_table_and_the_rounds_of_a_study_are_those_of_its_runs(study: hw.Study) -> None:
    table = study.table()
    assert list(table.columns) == ["fedavg", "fedacg"]
    for row in study.summary():
        assert table.loc["last_accuracy", row["name"]] == row["last_accuracy"]
    assert list(study.rounds.index.names) == ["method", "seed", "round"]
    for name, seeds in study.runs.items():
        for one in seeds:
            there = study.rounds.xs((name, one.scenario.seed), level=("method", "seed"))
            assert list(there["accuracy"]) == list(one.rounds["accuracy"])


def test_a_model_is_written_from_a_result_as_from_its_folder(tmp_path: Path) -> None:
    result = hw.simulate("fedacg", out=tmp_path / "run", **LITTLE)
    files = [
        result.export(tmp_path / "one.safetensors"),
        hw.export(result, tmp_path / "two.safetensors"),
        hw.export(tmp_path / "run", tmp_path / "three.safetensors"),
    ]
    for file in files:
        for name, leaf in result.model.state_dict().items():
            assert torch.equal(load_file(file)[name], leaf)
    with pytest.raises(UserError, match="no best model"):
        hw.export(result, tmp_path / "best.safetensors", best=True)


def test_methods_and_models_are_listed() -> None:
    assert list(hw.list_methods().index) == list(METHODS)
    assert list(hw.list_models().index) == list(NETWORKS)
    assert hw.list_methods().loc["fedacg", "arguments"] == "lam=0.85,beta=0.01,half=True"
    assert (hw.list_methods()["purpose"] != "").all()
    assert (hw.list_models()["what"] != "").all()
    assert not hw.list_methods()["purpose"].str.contains(r"\]\(").any(), "no Markdown links"
