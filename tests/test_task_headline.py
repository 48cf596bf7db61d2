"""Whatever says "accuracy" for classes says the task's headline for other tasks, whichever way is better."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import headway as hw
from conftest import SMALL
from headway.cli.main import app
from headway.errors import UserError
from headway.measure.curves import Smoothed
from headway.measure.headline import metrics_of
from headway.report import figures, tables
from headway.report.page.curves import curves
from headway.runs.load import recorded
from headway.runs.resume import lengthen
from headway.runs.trackers.tracking import scalars
from headway.tasks.named_metrics import metric_of
from headway.tuning.picture import picture
from headway.tuning.sweep import sweep
from headway.tuning.table import cells
from task_problems import PROBLEMS, Draw, largest_error

REGRESSION, TOKENS = PROBLEMS["regression"], PROBLEMS["tokens"]
QUICK = SMALL.changed(executor="serial", rounds=6, participation=1.0)


def data(name: str, learnable: bool = True) -> dict[str, Any]:
    """Keyword arguments of `simulate` for a problem; of regression with targets that the inputs say something of."""
    problem, draw = PROBLEMS[name], Draw(1)
    given: dict[str, Any] = {**problem.given}
    samples = [problem.samples(draw, size) for size in (8, 12, 6, 20)]
    if name == "regression" and learnable:
        samples = [(x, x[:, :2] - x[:, 2:4]) for x, _ in samples]
    return {**given, "model": hw_model(problem.model), "clients": samples[:-1], "test": samples[-1]}


def hw_model(make: Any) -> nn.Module:
    torch.manual_seed(0)
    module: nn.Module = make()
    return module


def falling(result: Any, metric: str, target: float) -> int | None:
    """The first round whose smoothed metric is at most the target."""
    rounds = (record["round"] for record in result.records if record[f"{metric}_smoothed"] <= target)
    return next(rounds, None)


def test_the_summary_leads_with_the_headline_and_counts_rounds_until_it_has_fallen() -> None:
    result = hw.simulate("fedavg", QUICK, **data("regression"))
    values = [record["mae"] for record in result.records]
    middle = result.records[3]["mae_smoothed"]
    level = Smoothed()
    for record, value in zip(result.records, values, strict=True):
        level = level.then(value, QUICK.smoothing)
        assert record["mae_smoothed"] == level.level
    found = hw.Study({"fedavg": [result]}, None).summary()[0]
    assert found["headline"] == "last_mae", "six evaluations are too few for the smoothed one"
    assert (found["last_mae"], found["best_mae"]) == (values[-1], min(values))
    assert found["accuracy"] is None
    aimed = hw.simulate("fedavg", QUICK.changed(target=middle), **data("regression"))
    assert aimed.summary["rounds_to_target"] == falling(aimed, "mae", middle) == 4
    assert aimed.summary["bytes_to_target"] == aimed.records[3]["bytes_down_total"] + aimed.records[3]["bytes_up_total"]


@pytest.mark.parametrize(("name", "metric"), [("regression", "mae"), ("tokens", "perplexity")])
def test_a_run_stops_when_the_headline_has_fallen_to_the_target(name: str, metric: str) -> None:
    whole = hw.simulate("fedavg", QUICK, **data(name))
    target = whole.records[3][f"{metric}_smoothed"]
    result = hw.simulate("fedavg", QUICK.changed(target=target, stop_at_target=True), **data(name))
    assert len(result.records) == falling(whole, metric, target) == 4


def test_a_target_of_r2_is_one_to_rise_to_and_may_be_negative() -> None:
    given = {**data("regression"), "metrics": "r2"}
    whole = hw.simulate("fedavg", QUICK, **given)
    target = whole.records[2]["r2_smoothed"]
    result = hw.simulate("fedavg", QUICK.changed(target=target, stop_at_target=True), **given)
    assert len(result.records) == 3
    assert len(hw.simulate("fedavg", QUICK.changed(target=-1e9, stop_at_target=True), **given).records) == 1


def test_a_run_that_is_read_again_has_the_same_headline(tmp_path: Path) -> None:
    """A user's own metric, which no table of names has: the folder says which way is better."""
    given = {**data("regression"), "metrics": [largest_error]}
    whole = hw.simulate("fedacg", QUICK, **given, out=tmp_path / "whole")
    short = hw.simulate("fedacg", QUICK.changed(rounds=3), **given, out=tmp_path / "part")
    lengthen(tmp_path / "part", 6)
    resumed = hw.resume(tmp_path / "part", **given)
    read = recorded(tmp_path / "part")
    first = metrics_of(read.records)[0]
    assert first == {"name": "largest_error", "higher_is_better": False, "percent": False}
    assert len(short.records) == 3
    for key in ("headline", "smoothed_largest_error", "best_largest_error", "metrics"):
        assert whole.summary[key] == resumed.summary[key] == read.summary[key]
    assert "metrics" not in read.rounds.columns


def test_a_run_goes_on_with_the_words_that_it_was_made_with(tmp_path: Path) -> None:
    """Whoever gives `resume` what `simulate` was given gets the run, and another word is no silent change."""
    given = {**data("tokens"), "metrics": "bits_per_character", "out": tmp_path / "run"}
    whole = hw.simulate("fedavg", QUICK, **given)
    (tmp_path / "run/summary.json").unlink()
    given.pop("out")
    again = hw.resume(tmp_path / "run", **given)
    assert [one["loss"] for one in again.records] == [one["loss"] for one in whole.records]
    assert hw.load_run(tmp_path / "run", **given).summary["headline"] == "last_bits_per_character"
    for name, value, was in (("metrics", "accuracy", "bits_per_character"), ("task", "auto", "tokens")):
        with pytest.raises(UserError, match=f"^{name} is '{value}', but the run was made with '{was}'; leave it out"):
            hw.resume(tmp_path / "run", **{**given, name: value})


def test_the_lowest_loss_is_best_in_a_comparison(tmp_path: Path) -> None:
    """In tables, in the interval against the best and in bold; the target is what the worst seed ends with."""
    study = hw.compare(["fedavg", "fedavg:server_rate=0.2"], QUICK.changed(seeds=3), **data("regression"))
    rows = study.summary()
    assert rows[0]["last_mae"] < rows[1]["last_mae"]
    assert rows[0]["against_best"]["verdict"] == "best"
    assert rows[1]["against_best"]["difference"] > 0
    worst = [max(one.records[-1]["mae_smoothed"] for one in seeds) for seeds in study.runs.values()]
    assert study.target == max(worst)
    assert (0, 1) in tables.best(rows)
    heads, _ = tables.cells(rows)
    assert heads[1:3] == ["last MAE", "smoothed"]
    assert heads[4] == f"rounds to {study.target:.4g}"
    assert heads[-4:] == ["loss", "RMSE", "R²", "seconds"]
    for written in (tables.markdown(rows, QUICK), tables.latex(rows, QUICK)):
        assert "accuracy" not in written
        assert "MAE is that of the last evaluation" in written
    drawn = curves(study, {})
    assert [(one["key"], one["higher"], one["targeted"]) for one in drawn["measures"]] == [
        ("mae", False, True),
        ("mae_smoothed", False, True),
        ("loss", False, False),
        ("rmse", False, False),
        ("r2", True, False),
        ("train_loss", False, False),
        ("update_norm", False, False),
    ]
    assert drawn["target"] == study.target
    assert figures.compare_picture(study, tmp_path / "compare.png").stat().st_size > 10_000


def test_shares_are_percentages_and_other_metrics_are_not() -> None:
    given = {**data("classification"), "metrics": "top2"}
    study = hw.compare(["fedavg"], QUICK, **given)
    heads, (texts,) = tables.cells(study.summary())
    row = dict(zip(heads, texts, strict=True))
    last = study.runs["fedavg"][0].records[-1]
    assert row["last top2 %"] == f"{100 * last['top2']:.2f}"
    assert row["accuracy %"] == f"{100 * last['accuracy']:.2f}"
    shares = {one["key"]: one["share"] for one in curves(study, {})["measures"]}
    percentages = ("top2", "top2_smoothed", "accuracy")
    assert shares == {**dict.fromkeys(percentages, True), "loss": False, "train_loss": False, "update_norm": False}


def test_a_fall_by_far_is_drawn_on_a_logarithmic_axis() -> None:
    study = hw.compare(["fedavg"], QUICK, **data("tokens"))
    records = study.runs["fedavg"][0].records
    assert not figures._falls_far(study)
    records[0]["perplexity"] = 1e4
    assert figures._falls_far(study)


@pytest.mark.parametrize(("metrics", "best"), [("mae", min), ("r2", max)])
def test_a_sweep_takes_the_best_headline_on_samples_held_out(metrics: str, best: Any, tmp_path: Path) -> None:
    given = {**data("regression"), "metrics": metrics}
    found = sweep("fedavg", {"rate": [1e-6, 0.1, 0.001]}, QUICK.changed(validation=0.3), out=tmp_path / "s", **given)
    scores = [trial.score for trial in found.trials]
    assert found.measure == metrics
    assert found.best is found.trials[scores.index(best(scores))] is found.trials[1]
    assert cells(found)[0][1] == f"validation {'MAE' if metrics == 'mae' else 'R²'}"
    assert json.loads((tmp_path / "s/sweep.json").read_text())["measure"] == f"validation {metrics}"
    assert picture(found, tmp_path / "sweep.png").stat().st_size > 5_000


@pytest.mark.parametrize(("metrics", "kept"), [("mae", [1, 3]), ("r2", [1, 3])])
def test_halving_lets_the_best_headlines_go_on(metrics: str, kept: list[int]) -> None:
    given = {**data("regression"), "metrics": metrics}
    rates = {"rate": [1e-6, 0.1, 1e-5, 0.05]}
    found = sweep("fedavg", rates, QUICK.changed(validation=0.3, rounds=8), budget=24, **given)
    assert len(found.stages) > 1
    assert [place for place, trial in enumerate(found.trials) if trial.rounds > found.stages[0].rounds] == kept


def test_trackers_get_metrics_under_their_own_names() -> None:
    record = {"round": 1, "perplexity": 8.0, "perplexity_smoothed": 9.0, "worst": 1.0, "pull": 2.0, "accuracy": 0.5}
    names = scalars(record, ("perplexity", "worst", "accuracy"))
    assert names == {
        "perplexity/test": 8.0,
        "perplexity/test_smoothed": 9.0,
        "worst/test": 1.0,
        "method/pull": 2.0,
        "accuracy/test": 0.5,
    }


# ── from the command line ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def numbers(tmp_path: Path) -> list[str]:
    """A file of numbers, and the words that make runs with it short."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(90, 4)).astype(np.float32)
    y = x @ np.array([1, -2, 0.5, 0], np.float32)
    np.savez(tmp_path / "n.npz", x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    words = ["--scenario", f"npz:{tmp_path}/n.npz/iid/6x50%", "--model", "linear", "--rounds", "4", "--rate", "0.05"]
    return [*words, "--device", "cpu", "--executor", "serial", "--quiet"]


def test_the_command_line_compares_and_reports_by_the_headline(numbers: list[str], tmp_path: Path) -> None:
    out = ["--metrics", "mae", "--seeds", "2", "--out", str(tmp_path / "both")]
    done = CliRunner().invoke(app, ["compare", "fedavg", "fedacg", *numbers, *out, "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["methods"]
    assert {row["headline"] for row in rows} == {"last_mae"}
    assert all(row[row["headline"]] > 0 and row["last_mae_std"] >= 0 for row in rows)
    again = CliRunner().invoke(app, ["report", str(tmp_path / "both"), "--out", str(tmp_path / "again"), "--json"])
    assert json.loads(again.stdout)["methods"] == rows
    assert "raw MAE" in (tmp_path / "again/report.html").read_text()


def test_a_share_has_a_target_of_at_most_one_and_other_headlines_any(numbers: list[str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^target is 1\.5; it must be at most 1\.0, as accuracy is a share$"):
        hw.simulate("fedavg", QUICK.changed(target=1.5), **data("classification"))
    with pytest.raises(UserError, match=r"^target is 0; it must be above 0\.0, as accuracy is a share$"):
        hw.simulate("fedavg", QUICK.changed(target=0.0), **data("classification"))
    done = CliRunner().invoke(app, ["run", "fedavg", *numbers, "--target", "3.5", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "rounds to 3.5" in done.stdout


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["round", "loss", "steps", "best_of_all", "gain_smoothed", "rounds_to_target"])
def test_a_metric_does_not_take_the_name_of_another_number(name: str) -> None:
    def own(output: Any, target: Any) -> Any:
        return largest_error(output, target)

    own.__name__ = name
    with pytest.raises(UserError, match=f"^a metric is called '{name}', which is a name of Headway's own"):
        hw.simulate("fedavg", QUICK, **{**data("regression"), "metrics": [own]})


def test_without_torchmetrics_its_metrics_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    with pytest.raises(UserError, match=r"need the package: pip install 'headway\[metrics\]'$"):
        REGRESSION.experiment(metrics="torchmetrics:R2Score")


@pytest.mark.parametrize(
    ("name", "metrics", "words"),
    [
        ("classification", "torchmetrics:F1Score:task=multiclass:num_classes=2", "does not fit task classification"),
        ("classification", "torchmetrics:F1Score:task=multiclass", "F1Score cannot be made"),
        ("classification", "torchmetrics:F1Scor", "has no metric 'F1Scor'; did you mean 'F1Score'"),
        ("classification", "torchmetrics:ConfusionMatrix:task=multiclass:num_classes=3", "more than one number"),
        ("classification", "torchmetrics:F1Score:task", "option 'task' has no value"),
        ("regression", "torchmetrics:TweedieDevianceScore", "does not say whether a larger one is better; say it"),
        ("regression", "torchmetrics:R2Score:higher_is_better=2", "higher_is_better is 2; it must be true or false"),
        ("tokens", "mae", "'mae' judges regression, but the task is tokens"),
        ("regression", "mae,mae", "has 'mae' twice"),
        ("regression", "torchmetrics:JaccardIndex:task=multiclass:num_classes=3", "does not fit task regression"),
    ],
)
def test_metrics_that_cannot_judge_are_refused_before_the_first_round(name: str, metrics: str, words: str) -> None:
    pytest.importorskip("torchmetrics")
    with pytest.raises(UserError, match=words):
        PROBLEMS[name].experiment(metrics=metrics)


def test_the_direction_of_a_metric_of_torchmetrics_may_be_said() -> None:
    """Of a correlation torchmetrics does not say which is better."""
    pytest.importorskip("torchmetrics")
    for word, rises in (("true", True), ("false", False)):
        metric = metric_of(f"torchmetrics:PearsonCorrCoef:higher_is_better={word}", "regression")
        assert metric.higher_is_better is rises
        numbers = torch.tensor([1.0, 2.0, 4.0])
        assert metric.value((numbers, 3 * numbers + 1)) == pytest.approx(1)
