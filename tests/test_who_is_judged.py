"""Who is judged: clients on their own test samples, against plain PyTorch; else a proxy that is called one."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import headway as hw
from conftest import NETWORKS, SMALL, played, unequal_clients
from headway.data.federation import ClientTests
from headway.data.held_out import with_client_tests
from headway.data.own_data import federate
from headway.engine.building import build
from headway.engine.evaluation import evaluate
from headway.engine.experiment import Experiment
from headway.engine.server import initial_state
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.measure.over_clients import measured, worst_tenth
from headway.measure.summary import over_seeds, summarise
from headway.random import built
from headway.report import figures, tables
from headway.report.page.write import page
from headway.report.tables import cells
from headway.runs import packed
from headway.runs.resume import lengthen
from headway.runs.study import Study
from source_files import described

OWN = (5, 0, 12, 1, 7, 20)
"""Test samples of each client; the second has none."""


def with_tests(**more: Any) -> dict[str, Any]:
    """Unequal clients with their own test sets."""
    tests = unequal_clients(tuple(max(size, 1) for size in OWN), seed=3)["clients"]
    given = unequal_clients()
    return {**given, "test": [pair if size else None for pair, size in zip(tests, OWN, strict=True)], **more}


def bound(given: dict[str, Any], network: str = "norm_free", method: str = "fedavg", **settings: Any) -> Experiment:
    model = settings.pop("model", None) or built(NETWORKS[network], 7, "test")
    return build(SMALL.changed(**settings), hw.method(method), model=model, **given)


def answers(model: nn.Module, x: Any) -> Tensor:
    with torch.no_grad():
        return model.eval()(torch.as_tensor(x))


def handed(chosen: Experiment, progress: Any) -> nn.Module:
    return chosen.network.module(progress.model.theta, progress.model.buffers)


def check(record: dict[str, Any], values: list[float], higher_is_better: bool = True) -> None:
    """The record's numbers over clients are those of these values."""
    found = np.array(values)
    worst = np.sort(found if higher_is_better else -found)[: max(len(found) // 10, 1)].mean()
    assert record["client_scores"] == "measured"
    assert record["clients_judged"] == len(found)
    assert record["client_mean"] == pytest.approx(found.mean(), abs=1e-12)
    assert record["client_std"] == pytest.approx(found.std(), abs=1e-12)
    assert record["client_worst"] == pytest.approx(worst if higher_is_better else -worst, abs=1e-12)
    assert record["client_quantiles"] == pytest.approx(np.quantile(found, np.linspace(0, 1, 21)), abs=1e-12)
    assert "client_accuracy_std" not in record


# ── a test set for each client ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("executor", ["serial", "batched", "pool"])
def test_accuracies_of_clients_are_those_of_plain_pytorch(executor: str) -> None:
    given = with_tests()
    chosen = bound(given)
    records, progress = played(chosen, executor)
    model = handed(chosen, progress)
    pairs = [pair for pair in given["test"] if pair is not None]
    right = [(answers(model, x).argmax(1).numpy() == y).astype(float) for x, y in pairs]
    check(records[-1], [each.mean() for each in right])
    assert records[-1]["client_metric"] == "accuracy"
    assert records[-1]["accuracy"] == pytest.approx(np.concatenate(right).mean()), "the test set is that of all"


def test_the_error_of_clients_is_that_of_plain_pytorch_where_less_is_better() -> None:
    draw = np.random.default_rng(0)

    def samples(count: int) -> tuple[Any, Any]:
        x = draw.normal(size=(count, 4))
        return x, x.sum(1, keepdims=True) + draw.normal(size=(count, 1))

    given = {"clients": [samples(9) for _ in range(12)], "test": [samples(3 + client) for client in range(12)]}
    chosen = bound({**given, "metrics": ["mae"]}, model=nn.Linear(4, 1, dtype=torch.float64))
    records, progress = played(chosen)
    errors = [np.abs(answers(handed(chosen, progress), x).numpy() - y) for x, y in given["test"]]
    check(records[-1], [each.mean() for each in errors], higher_is_better=False)
    assert records[-1]["client_worst"] == pytest.approx(max(each.mean() for each in errors))
    assert records[-1]["mae"] == pytest.approx(np.concatenate(errors).mean())
    sizes = [len(x) for x, _ in given["test"]]
    scores = evaluate(chosen, progress.model)
    assert scores.metrics["mae"] == pytest.approx(np.average([each.mean() for each in errors], weights=sizes))


def test_ratios_are_those_of_each_client_s_own_samples() -> None:
    """R² and a metric of torchmetrics are no means over samples; a client that does not define them is not judged."""
    torchmetrics = pytest.importorskip("torchmetrics")
    draw = np.random.default_rng(1)

    def samples(count: int) -> tuple[Any, Any]:
        x = draw.normal(size=(count, 3))
        return x, x @ np.array([1.0, -2.0, 0.5]) + 0.1 * draw.normal(size=count)

    tests = [samples(6), samples(1), samples(11)]
    numbers = {"clients": [samples(8) for _ in range(3)], "test": tests, "metrics": ["r2"]}
    chosen = bound(numbers, model=nn.Sequential(nn.Linear(3, 1, dtype=torch.float64), nn.Flatten(0)))
    records, progress = played(chosen)
    guesses = [answers(handed(chosen, progress), x).numpy() for x, _ in tests]
    told = [1 - ((g - y) ** 2).mean() / y.var() for g, (_, y) in zip(guesses, tests, strict=True) if len(y) > 1]
    check(records[-1], told)

    metric = torchmetrics.F1Score(task="multiclass", num_classes=3, average="macro")
    given = with_tests(metrics=[metric])
    chosen = bound(given)
    records, progress = played(chosen)
    model = handed(chosen, progress)
    pairs = [(torch.as_tensor(x), torch.as_tensor(y)) for x, y in filter(None, given["test"])]
    check(records[-1], [float(metric(answers(model, x).float(), y)) for x, y in pairs])
    assert records[-1]["client_metric"] == "MulticlassF1Score"


def test_perplexities_of_clients_are_over_the_tokens_that_count() -> None:
    draw = torch.Generator().manual_seed(0)

    def blocks(count: int, ignored: int) -> tuple[Tensor, Tensor]:
        x = torch.randint(0, 5, (count, 4), generator=draw)
        y = torch.randint(0, 5, (count, 4), generator=draw)
        y.view(-1)[:ignored] = -100
        return x, y

    tests = [blocks(3, 5), blocks(2, 0), blocks(1, 4), None]
    model = nn.Sequential(nn.Embedding(5, 6), nn.Linear(6, 5)).double()
    chosen = bound({"clients": [blocks(4, 0) for _ in range(4)], "test": tests}, model=model)
    records, progress = played(chosen)
    after = handed(chosen, progress)
    losses = [
        nn.functional.cross_entropy(answers(after, x).flatten(0, 1), y.flatten(), ignore_index=-100)
        for x, y in filter(None, tests)
    ]
    check(records[-1], [float(loss.exp()) for loss in losses if loss.isfinite()], higher_is_better=False)
    assert records[-1]["clients_judged"] == 2, "one has no target that counts, another no samples"


def test_clients_and_tests_may_have_names() -> None:
    given = with_tests()
    names = [f"hospital {number}" for number in range(6)]
    by_name = {
        "clients": dict(zip(names, given["clients"], strict=True)),
        "test": {name: pair for name, pair in zip(reversed(names), reversed(given["test"]), strict=True) if pair},
    }
    first, second = (played(bound(one, rounds=1))[0][0] for one in (given, by_name))
    assert {k: v for k, v in first.items() if "seconds" not in k} == {
        k: v for k, v in second.items() if "seconds" not in k
    }
    whole = {**by_name, "test": unequal_clients()["test"]}
    assert played(bound(whole, rounds=1))[0][0]["client_scores"] == "proxy"


class Items(torch.utils.data.Dataset[Any]):
    def __init__(self, pair: tuple[Any, Any]) -> None:
        self.pair = pair

    def __len__(self) -> int:
        return len(self.pair[1])

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.pair[0][index], self.pair[1][index]


def named(pair: tuple[Any, Any]) -> list[dict[str, Any]]:
    """Items as those of Hugging Face."""
    return [{"x": x, "labels": y} for x, y in Items(pair)]


@pytest.mark.parametrize("form", [tuple, Items, lambda pair: list(Items(pair)), named])
def test_two_test_sets_for_two_clients_are_not_one_pair(form: Callable[[Any], Any]) -> None:
    given = unequal_clients((4, 6))
    pairs = unequal_clients((3, 5), seed=2)["clients"]
    clients = given["clients"] if form is not named else [named(pair) for pair in given["clients"]]
    found = federate(clients, [form(pair) for pair in pairs])
    assert found.client_tests is not None
    assert [len(rows) for rows in found.client_tests.rows] == [3, 5]
    assert np.array_equal(found.test.labels.numpy(), np.concatenate([y for _, y in pairs]))


def test_a_list_of_as_many_items_as_clients_is_one_test_set() -> None:
    given = unequal_clients((4, 6))
    x, y = unequal_clients((2,), seed=2)["clients"][0]
    items = [(x[0], y[0]), (x[1], y[1])]
    assert federate(given["clients"], items).client_tests is None
    assert federate(given["clients"], [x, y]).client_tests is None
    tokens = torch.arange(12).reshape(3, 4) % 5
    rows = [(tokens[0], tokens[1]), (tokens[1], tokens[2])]
    assert federate([(tokens, tokens), (tokens, tokens)], rows, task="tokens").client_tests is None


# ── statistics that clients keep ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("executor", ["serial", "batched", "pool"])
def test_a_client_is_judged_with_the_statistics_that_it_keeps(executor: str) -> None:
    """One that never took part has none, and is judged as the server's model is: by those of the samples at hand."""
    given = with_tests()
    chosen = bound(given, "batch_norm_dropout", buffers="keep-local", rounds=2, participation=0.34)
    store = ClientStates()
    records, progress = played(chosen, executor, store)
    seen = {client for one in records for client in one["clients"]}
    assert 0 < len(seen) < 6
    told = []
    for client, pair in enumerate(given["test"]):
        if pair is None:
            continue
        model = built(NETWORKS["batch_norm_dropout"], 7, "test").double()
        kept = store.get(client)
        buffers = chosen.network.buffers if kept is None else kept["buffers"]
        model.load_state_dict({**progress.model.theta.leaves, **buffers})
        model.eval()
        for norm in model.modules() if kept is None else ():
            if isinstance(norm, nn.BatchNorm1d):
                norm.running_mean = norm.running_var = None
        x, y = (torch.as_tensor(part) for part in pair)
        told.append(_accuracy(model, x, y))
    check(records[-1], told)


def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Of one sample alone, torch has no statistics; they are its own values."""
    norm = next(one for one in model.modules() if isinstance(one, nn.BatchNorm1d))
    if norm.running_mean is None and len(x) == 1:
        x, y = x.repeat(2, 1), y.repeat(2)
    return float((answers(model, x).argmax(1) == y).double().mean())


def test_without_what_clients_keep_nobody_is_judged_with_it() -> None:
    chosen = bound(with_tests(), "batch_norm_dropout", buffers="keep-local")
    assert evaluate(chosen, initial_state(chosen)).over_clients == {}


# ── natural splits ───────────────────────────────────────────────────────────────────────────────────────────────────


def femnist(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A little FEMNIST of four writers, of whom one has no test image and another no training image: the test part."""
    (folder / "femnist").mkdir()
    draw = np.random.default_rng(5)
    for part, users in (("train", [7, 3, 3, 9, 7, 9, 3, 9]), ("test", [3, 7, 4, 3, 7, 7])):
        x, y = draw.integers(0, 256, (len(users), 28, 28), dtype=np.uint8), draw.integers(0, 3, len(users))
        np.savez(folder / f"femnist/{part}.npz", x=x, y=y, user=np.array(users))
    return x, y, np.array(users)


def test_writers_of_leaf_are_judged_on_their_own_images(tmp_path: Path) -> None:
    x, y, users = femnist(tmp_path)
    settings = SMALL.changed(data="femnist", data_dir=str(tmp_path), partition="natural", clients=0, model="linear")
    chosen = build(settings, hw.method("fedavg"))
    records, progress = played(chosen)
    model = handed(chosen, progress)
    right = (answers(model, x[:, None] / 255.0).argmax(1).numpy() == y).astype(float)
    check(records[-1], [right[users == writer].mean() for writer in (3, 7)])
    assert records[-1]["accuracy"] == pytest.approx(right.mean()), "also of who is no client"
    assert chosen.task_in_words.endswith("; 2 of 3 clients are judged on their own test samples")
    told = described("femnist", "--partition", "natural", "--data-dir", str(tmp_path))
    assert (told["clients"], told["clients_with_tests"]) == (3, 2)
    two = build(settings.changed(clients=2), hw.method("csgd"))
    check(played(two)[0][-1], _by_writer(two, played(two)[1], x, y, users))
    few = build(settings.changed(eval_samples=3), hw.method("fedavg"))
    assert few.client_tests is not None
    assert few.client_tests.samples is few.test
    drawn = few.federation.test.labels.numpy()
    for rows, writer in zip(few.client_tests.rows, (3, 7, 9), strict=True):
        assert np.array_equal(drawn[rows], y[[0, 2, 5]][users[[0, 2, 5]] == writer])
    iid = build(settings.changed(partition="iid", clients=3), hw.method("fedavg"))
    assert played(iid)[0][-1]["client_scores"] == "proxy"


def test_owners_of_own_test_samples_are_judged_on_them(tmp_path: Path) -> None:
    users, test_users = np.array(["ann", "bob", "ann", "eve"]), np.array(["eve", "eve", "zoe"])
    x, y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 1, 0])
    parts = {"x_train": x, "y_train": y, "x_test": x[:3], "y_test": y[:3], "users_train": users}
    np.savez(tmp_path / "own.npz", **parts, users_test=test_users)
    chosen = build(
        SMALL.changed(data=f"npz:{tmp_path / 'own.npz'}", partition="natural", clients=0, model="linear"),
        hw.method("fedavg"),
    )
    tests = chosen.split.client_tests
    assert tests is not None
    assert [rows.tolist() for rows in tests.rows] == [[], [], [0, 1]]


def _by_writer(chosen: Experiment, progress: Any, x: Any, y: Any, users: Any) -> list[float]:
    right = answers(handed(chosen, progress), x[:, None] / 255.0).argmax(1).numpy() == y
    return [right[users == writer].mean() for writer in (3, 7)]


# ── samples held out ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_share_of_each_client_s_samples_judges_it_and_trains_nobody() -> None:
    given = unequal_clients()
    chosen, plain = (bound(given, rounds=1, client_test=share) for share in (0.25, None))
    tests = chosen.split.client_tests
    assert tests is not None
    assert tests.samples is not chosen.split.test
    bounds = np.cumsum([0, *(len(y) for _, y in given["clients"])])
    held = [int(0.25 * size + 0.5) for size in np.diff(bounds)]
    assert [len(rows) for rows in tests.rows] == held
    for client, rows in enumerate(tests.rows):
        own = given["clients"][client][0]
        both = np.concatenate([tests.samples.x[rows], chosen.split.train.x[chosen.split.clients[client]]])
        assert np.array_equal(np.unique(both, axis=0), np.unique(own, axis=0))
        assert len(both) == len(own)
    again = with_client_tests(plain.split, 0.25, 0)
    assert all(np.array_equal(one, other) for one, other in zip(again.clients, chosen.split.clients, strict=True))
    records, progress = played(chosen)
    model = handed(chosen, progress)
    right = answers(model, tests.samples.x).argmax(1) == tests.samples.labels
    check(records[-1], [right[rows].double().mean().item() for rows in tests.rows if len(rows)])
    x, y = given["test"]
    assert records[-1]["accuracy"] == pytest.approx((answers(model, x).argmax(1).numpy() == y).mean())
    assert records[-1]["clients"] == played(plain)[0][-1]["clients"], "who takes part does not move"


def test_own_data_without_a_test_set_is_judged_on_what_is_held_out() -> None:
    clients = unequal_clients()["clients"]
    for setting, on in (("client_test", "test"), ("validation", "validation")):
        chosen = bound({"clients": clients}, **{setting: 0.4})
        assert f"clients are judged on their own {on} samples" in chosen.task_in_words
        tests = chosen.split.client_tests
        assert tests is not None
        assert tests.samples is chosen.split.test
        records, progress = played(chosen)
        right = answers(handed(chosen, progress), tests.samples.x).argmax(1) == tests.samples.labels
        check(records[-1], [right[rows].double().mean().item() for rows in tests.rows if len(rows)])
        assert records[-1]["accuracy"] == pytest.approx(right.double().mean().item())


def test_a_validation_has_none_of_the_clients_test_samples() -> None:
    chosen = bound({"clients": unequal_clients()["clients"]}, client_test=0.25, validation=0.25)
    kept = bound({"clients": unequal_clients()["clients"]}, client_test=0.25)
    first, second = kept.split.client_tests, chosen.split.client_tests
    assert first is not None
    assert second is not None
    both = np.concatenate([first.samples.x, second.samples.x, *(chosen.split.train.x[r] for r in chosen.split.clients)])
    assert len(np.unique(both, axis=0)) == len(both) == sum(len(y) for _, y in unequal_clients()["clients"])


def test_a_share_is_refused_where_clients_have_test_samples() -> None:
    with pytest.raises(UserError, match="5 of 6 clients have their own test samples; leave it out"):
        bound(with_tests(), client_test=0.2)
    with pytest.raises(UserError, match="too few samples to hold one out"):
        bound(unequal_clients(), client_test=0.01)


def test_what_the_page_of_the_docs_prints_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[1] / "docs/clients.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "clients.md", "exec"), {})
    assert capsys.readouterr().out.startswith("measured 7 ")


# ── arithmetic ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_worst_tenth_has_at_least_one_and_knows_which_end_is_worse() -> None:
    values = np.arange(25.0)
    assert worst_tenth(values) == 0.5
    assert worst_tenth(values, higher_is_better=False) == 23.5
    assert worst_tenth(values[:3]) == 0.0


def test_fewer_test_samples_stay_those_of_their_clients() -> None:
    given = with_tests()
    whole = federate(given["clients"], given["test"])
    few = whole.judged_on(10)
    assert isinstance(few.client_tests, ClientTests)
    assert few.client_tests.samples is few.test
    assert len(few.test) == 10
    inputs = few.test.inputs
    for client, rows in enumerate(few.client_tests.rows):
        pair = given["test"][client]
        for row in rows:
            assert (pair[0] == inputs[row].numpy()).all(1).any()
    assert sum(map(len, few.client_tests.rows)) == 10


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def studies() -> dict[str, Study]:
    """A comparison with clients that are measured, and the same with a proxy."""
    quiet = {"executor": "serial", "smoothing": 0.0, "observer": Silent()}
    given: dict[str, Any] = {
        **quiet,
        "model": built(lambda: nn.Linear(6, 3), 7, "test"),
        "rounds": 2,
        "seeds": 2,
        "precision": "fp64",
    }
    return {
        "measured": hw.compare(["fedavg", "fedacg"], **given, **with_tests()),
        "proxy": hw.compare(["fedavg", "fedacg"], **given, **unequal_clients()),
    }


class Silent:
    def begins(self, *about: Any) -> None: ...
    def round(self, *about: Any) -> None: ...
    def tell(self, message: str) -> None: ...


@pytest.mark.parametrize("how", ["measured", "proxy"])
def test_table_page_json_and_csv_say_which_it_is(studies: dict[str, Study], how: str, tmp_path: Path) -> None:
    study, other = studies[how], {"measured": "proxy", "proxy": "measured"}[how]
    rows = study.summary()
    assert all(row["client_scores"] == how for row in rows)
    heads, cells_of_rows = cells(rows)
    spread = heads.index(f"client spread ({how})")
    assert not [head for head in heads if f"({other})" in head]
    key = "client_std" if how == "measured" else "client_accuracy_std"
    for row, line in zip(rows, cells_of_rows, strict=True):
        each = [one.summary[key] for one in study.runs[row["name"]]]
        assert row[key] == pytest.approx(np.mean(each))
        assert row[f"{key}_std"] == pytest.approx(np.std(each, ddof=1))
        assert line[spread] == f"{100 * np.mean(each):.2f} ± {100 * np.std(each, ddof=1):.2f}"
    report = hw.report.write(study, tmp_path)
    words = {"measured": "accuracy, measured on the test samples of each of 5 clients", "proxy": "spread is a proxy"}
    for text in (report.markdown, report.latex, report.page):
        assert words[how] in text.read_text(encoding="utf-8")
        assert words[other] not in text.read_text(encoding="utf-8")
    lines = list(csv.DictReader(report.clients.read_text(encoding="utf-8").splitlines()))
    assert [(line["method"], line["seed"], line["scores"]) for line in lines] == [
        (name, seed, how) for name in ("fedavg", "fedacg") for seed in "01"
    ]
    runs = [one for seeds in study.runs.values() for one in seeds]
    for line, one in zip(lines, runs, strict=True):
        assert float(line["std"]) == one.summary[key]
        middle = one.summary["client_quantiles"]
        assert line["at_50_percent"] == ("" if middle is None else str(middle[10]))


def test_the_page_draws_the_distribution_of_what_is_measured(studies: dict[str, Study]) -> None:
    measured, proxy = (page(studies[how]) for how in ("measured", "proxy"))
    assert 'class="chart"' not in proxy
    chart = re.search(r'<svg class="chart".*?</svg>', measured, re.DOTALL)
    assert chart is not None
    curves = re.findall(r'<path class="curve [^"]+" d="M([^"]+)"', chart[0])
    assert len(curves) == 2
    for curve, row in zip(curves, studies["measured"].summary(), strict=True):
        heights = [float(point.split()[1]) for point in curve.split("L")]
        values = row["client_quantiles"]
        assert values is not None
        assert len(heights) == len(values) == 21
        assert np.corrcoef(heights, values)[0, 1] == pytest.approx(-1, abs=1e-3), "upwards is more"


def test_the_picture_has_a_panel_for_clients_that_are_measured(
    studies: dict[str, Study], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: dict[str, Any] = {}
    for how, study in studies.items():
        monkeypatch.setattr(figures, "save", lambda figure, path, how=how: drawn.setdefault(how, figure) and path)
        figures.compare_picture(study, tmp_path / how)
    assert [len(drawn[how].axes) for how in ("measured", "proxy")] == [3, 2]
    panel = drawn["measured"].axes[2]
    for curve, row in zip(panel.get_lines(), studies["measured"].summary(), strict=True):
        assert curve.get_ydata() == pytest.approx(100 * np.array(row["client_quantiles"]))


def test_a_report_of_other_metrics_has_their_own_numbers() -> None:
    draw = np.random.default_rng(0)

    def samples(count: int) -> tuple[Any, Any]:
        x = draw.normal(size=(count, 4))
        return x, x.sum(1, keepdims=True)

    clients = [samples(9) for _ in range(3)]
    result = hw.simulate(
        "fedavg", model=nn.Linear(4, 1), clients=clients, test=clients, rounds=1, executor="serial", precision="fp64"
    )
    for metric in ("loss", "rmse", "r2"):
        assert list(result.clients[metric]) == pytest.approx(_by_hand(result.model, clients, metric))
    rows = [over_seeds("fedavg", [result.summary])]
    cell = dict(zip(*(part if at == 0 else part[0] for at, part in enumerate(cells(rows))), strict=True))
    assert cell["client mean (measured)"] == f"{result.summary['client_mean']:.4f}"
    assert cell["worst tenth (measured)"] == f"{result.summary['client_worst']:.4f}"
    assert "loss, measured on" in tables.markdown(rows, result.scenario)


def _by_hand(model: nn.Module, tests: list[tuple[Any, Any]], metric: str) -> list[float]:
    errors = [((answers(model, x).numpy() - y) ** 2).mean() for x, y in tests]
    spreads = [y.var() for _, y in tests]
    of = {"loss": lambda e, _: e, "rmse": lambda e, _: e**0.5, "r2": lambda e, v: 1 - e / v}[metric]
    return [of(error, spread) for error, spread in zip(errors, spreads, strict=True)]


def test_without_test_samples_of_clients_there_is_no_table_of_them() -> None:
    result = hw.simulate("fedavg", SMALL.changed(rounds=1), model=nn.Linear(6, 3), **unequal_clients())
    with pytest.raises(UserError, match="do not have their own test samples; give them some"):
        _ = result.clients


# ── runs in folders ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_is_resumed_judges_the_same_clients(tmp_path: Path) -> None:
    """Also with statistics that clients keep, which are in the checkpoint."""
    given = with_tests(model=built(NETWORKS["batch_norm_dropout"], 7, "test"), observer=Silent())
    settings = SMALL.changed(rounds=4, buffers="keep-local", executor="serial", checkpoint_every=1)
    whole = hw.simulate("fedavg", settings, **given)
    hw.simulate("fedavg", settings.changed(rounds=2), out=tmp_path / "run", **given)
    lengthen(tmp_path / "run", 4)
    resumed = hw.resume(tmp_path / "run", **given)
    for one, other in zip(whole.records, resumed.records, strict=True):
        assert {key: value for key, value in one.items() if "client" in key and key != "clients"} == {
            key: value for key, value in other.items() if "client" in key and key != "clients"
        }
    loaded = hw.load_run(tmp_path / "run", **given)
    assert loaded.summary["client_scores"] == "measured"
    table = whole.clients
    assert table["samples"].to_dict() == {client: size for client, size in enumerate(OWN) if size}
    assert np.mean(table["accuracy"]) == pytest.approx(whole.records[-1]["client_mean"])
    assert table.equals(resumed.clients)
    assert table.equals(loaded.clients)
    told = json.loads((tmp_path / "run/summary.json").read_text())
    assert (told["client_scores"], told["client_quantiles"]) == ("measured", whole.records[-1]["client_quantiles"])
    kept = packed.rounded(resumed.records)[-1]["client_quantiles"]
    assert kept == pytest.approx(resumed.records[-1]["client_quantiles"], rel=1e-5)
    with pytest.raises(UserError, match="the clients' numbers of test samples"):
        hw.resume(tmp_path / "run", **{**given, "test": [*given["test"][2:], *given["test"][:2]]})


def test_a_summary_of_both_has_what_came_last() -> None:
    """A run of an earlier version that goes on has a proxy first, which did not say that it is one."""
    base = {"round": 1, "steps": 1, "bytes_down_total": 0, "bytes_up_total": 0}
    clock = {"seconds_training": 0.0, "seconds_evaluation": 0.0}
    old: Any = {**base, **clock, "accuracy": 0.5, "client_accuracy_std": 0.1, "client_accuracy_low": 0.2}
    new: Any = {**base, **clock, "round": 2, "accuracy": 0.5, **measured("accuracy", np.array([0.2, 0.6]), True)}
    assert summarise([old], None)["client_scores"] == "proxy"
    found = summarise([old, new], None)
    assert (found["client_scores"], found["client_mean"], found["client_accuracy_std"]) == ("measured", 0.4, None)
