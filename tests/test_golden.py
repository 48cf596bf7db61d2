"""The comparing part of `benchmarks/golden.py`, on made-up results."""

from __future__ import annotations

import copy
import importlib.util
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

GOLDEN = Path(__file__).resolve().parents[1] / "benchmarks" / "golden.py"
NAMES = ["fedavg, serial, plain, group-norm, fp32", "fedavg, pool, wire, group-norm, fp64"]


@pytest.fixture(scope="module")
def golden() -> ModuleType:
    specification = importlib.util.spec_from_file_location("golden", GOLDEN)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def results() -> dict[str, Any]:
    """Two runs of a tree."""
    one = {
        "executor": "serial",
        "records": [{"round": 1, "loss": 0.1}, {"round": 2, "loss": 0.3, "clients": [0, 2]}],
        "model": {"weight": "00ff"},
        "checkpoint": {"server/model/weight": "00ff", "client 0/dual": "1234"},
    }
    return {name: copy.deepcopy(one) for name in NAMES}


def test_equal_results_are_equal(golden: ModuleType, results: dict[str, Any]) -> None:
    lines, equal = golden.compared(results, copy.deepcopy(results))
    assert equal
    assert lines[-1] == "2 runs: 2 equal, 0 refused by both, 0 different"
    assert not [line for line in lines if line.startswith("DIFFERENT")]


def test_one_bit_of_a_record_is_found_with_its_round_and_field(golden: ModuleType, results: dict[str, Any]) -> None:
    other = copy.deepcopy(results)
    other[NAMES[1]]["records"][1]["loss"] = math.nextafter(0.3, 1)
    lines, equal = golden.compared(results, other)
    assert not equal
    assert lines[0] == f"DIFFERENT  {NAMES[1]}: round 2, loss: 0.3 / {math.nextafter(0.3, 1)!r}"
    assert "executor   pool                       1 runs     1 different" in lines
    assert "executor   serial                     1 runs     0 different" in lines


def test_what_an_old_tree_does_not_measure_is_no_difference_and_what_it_does_is(
    golden: ModuleType, results: dict[str, Any]
) -> None:
    """A proxy for clients may give way to what is measured; both are compared where both trees have them."""
    old, new = copy.deepcopy(results), copy.deepcopy(results)
    old[NAMES[0]]["records"][0]["client_accuracy_std"] = 0.1
    new[NAMES[0]]["records"][0] |= {"client_scores": "proxy", "client_accuracy_std": 0.1}
    assert golden.compared(old, new)[1]
    del new[NAMES[0]]["records"][0]["client_accuracy_std"]
    assert not golden.compared(old, new)[1]
    new[NAMES[0]]["records"][0] |= {"client_scores": "measured", "client_std": 0.2}
    assert golden.compared(old, new)[1]
    assert not golden.compared(new, old)[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda one: one["records"][0].update(loss=-0.0), "round 1, loss: 0.1 / -0.0"),
        (lambda one: one["records"][1].pop("clients"), "round 2, clients: [0, 2] / missing"),
        (lambda one: one["records"][0].update(cost=1), "round 1, cost: missing / 1"),
        (lambda one: one["records"].pop(), "rounds: 2 / 1"),
        (lambda one: one["model"].update(weight="00fe"), "model, weight: other bytes"),
        (lambda one: one["checkpoint"].pop("client 0/dual"), "checkpoint, client 0/dual: missing in the new tree"),
        (lambda one: one["checkpoint"].update(more="1"), "checkpoint, more: missing in the old tree"),
        (lambda one: one.update(executor="batched"), "executor serial / batched"),
    ],
)
def test_every_other_difference_is_found(golden: ModuleType, results: dict[str, Any], change: Any, words: str) -> None:
    other = copy.deepcopy(results)
    change(other[NAMES[0]])
    lines, equal = golden.compared(results, other)
    assert not equal
    assert lines[0] == f"DIFFERENT  {NAMES[0]}: {words}"


def test_a_missing_run_is_a_difference_and_a_further_one_is_not(golden: ModuleType, results: dict[str, Any]) -> None:
    fewer = {NAMES[0]: results[NAMES[0]]}
    lines, equal = golden.compared(results, fewer)
    assert not equal
    assert lines[0] == f"DIFFERENT  {NAMES[1]}: missing in the new tree"
    lines, equal = golden.compared(fewer, results)
    assert equal
    assert lines[0] == f"only in the new tree: {NAMES[1]}"
    assert golden.compared({}, results)[1] is False  # nothing was compared


def test_a_refusal_is_equal_to_a_refusal_only(golden: ModuleType, results: dict[str, Any]) -> None:
    refused = {**results, NAMES[0]: {"refused": "UserError", "words": "it needs everybody"}}
    reworded = {**results, NAMES[0]: {"refused": "UserError", "words": "everybody must take part"}}
    lines, equal = golden.compared(refused, reworded)
    assert equal
    assert lines[-2:] == [
        "refused by both, 1 runs: UserError: it needs everybody",
        "2 runs: 1 equal, 1 refused by both, 0 different",
    ]
    assert not golden.compared(refused, {**refused, NAMES[0]: {"refused": "TypeError", "words": ""}})[1]
    lines, equal = golden.compared(refused, results)
    assert not equal
    assert lines[0] == f"DIFFERENT  {NAMES[0]}: old: it needs everybody; new: played"


def test_a_renamed_field_is_the_same_field(
    golden: ModuleType, results: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = copy.deepcopy(results)
    for one in other.values():
        for record in one["records"]:
            record["mean_loss"] = record.pop("loss")
        one["checkpoint"]["client 0/h"] = one["checkpoint"].pop("client 0/dual")
    assert not golden.compared(results, other)[1]
    monkeypatch.setattr(golden, "RENAMED_FIELDS", {"loss": "mean_loss"})
    monkeypatch.setattr(golden, "RENAMED_TENSORS", {"client 0/dual": "client 0/h"})
    assert golden.compared(results, other)[1]


def test_a_quick_plan_has_every_method_and_every_case(golden: ModuleType) -> None:
    plan = {
        "methods": [],
        "executors": ["serial", "batched"],
        "cases": list(golden.CASES),
        "networks": list(golden.NETWORKS),
        "precisions": list(golden.PRECISIONS),
        "quick": True,
    }
    methods = [f"method-{number}" for number in range(28)]
    runs = list(golden.wanted(plan, methods))
    assert len({golden.key(run) for run in runs}) == len(runs) == 28 * 2 * 2
    for part, values in (("method", methods), ("case", golden.CASES), ("network", golden.NETWORKS)):
        for executor in ("serial", "batched"):
            assert {run[part] for run in runs if run["executor"] == executor} == set(values)
    everything = list(golden.wanted({**plan, "quick": False}, methods))
    assert len(everything) == 28 * 2 * len(golden.CASES) * 4
    assert [run["method"] for run in golden.wanted({**plan, "methods": ["method-3"]}, methods)] == ["method-3"] * 4
