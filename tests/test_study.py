"""Comparisons: a folder for each method, one executor for all, and which runs may stand in one table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import headway as hw
from headway.engine.selection import inherited_executor, runs_on
from headway.errors import UserError
from headway.runs import settings
from headway.runs.study import load_study
from headway.scenario import Scenario, settings_of

QUICK: dict[str, Any] = {"rounds": 1, "clients": 6, "model": "mlp", "steps": 2, "device": "cpu"}
CPU, GPU = torch.device("cpu"), torch.device("cuda")


def mine(name: str, rate: float = 1.0) -> hw.Method:
    return hw.Method(server=hw.average(rate), name=name)


# Folders.


def test_methods_that_would_share_a_folder_are_refused(tmp_path: Path) -> None:
    """The second would be given the first one's numbers."""
    both = [mine("mine 1"), mine("mine:1", 0.1)]
    with pytest.raises(UserError, match="'mine 1' and 'mine:1' would be kept in one folder, 'mine-1'") as refused:
        hw.compare(both, out=tmp_path / "study", executor="serial", **QUICK)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "study").exists()
    assert list(hw.compare(both, executor="serial", **QUICK).runs) == ["mine 1", "mine:1"]


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_leaves_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"'{name}' cannot be the name of a folder"):
        hw.compare(["fedavg", mine(name)], out=tmp_path / "in" / "study", executor="serial", **QUICK)
    assert not list(tmp_path.iterdir())


# Executors.


def picky(w: hw.Vector, output: Any, step: Any) -> torch.Tensor:
    """A value that looks at a number, which a stack of clients has none of."""
    return output.logits.sum() * (0.0 if output.logits.sum().item() > 0 else -0.0)


@pytest.mark.parametrize("asked", ["batched", "auto"])
def test_a_method_that_an_executor_refuses_changes_nothing_for_the_others(asked: str) -> None:
    methods = ["fedavg", hw.Method(objective=picky, name="picky"), "fedacg"]
    with pytest.warns(UserWarning, match="the batched executor cannot take"):
        study = hw.compare(methods, executor=asked, deterministic=True, **QUICK)
    used = {name: runs[0].executor for name, runs in study.runs.items()}
    assert used == {"fedavg": "batched", "picky": "serial", "fedacg": "batched"}


def test_an_executor_asked_for_stays_so_where_the_first_method_is_refused() -> None:
    methods = [hw.Method(objective=picky, name="picky"), "fedacg"]
    with pytest.warns(UserWarning, match="the batched executor cannot take"):
        study = hw.compare(methods, executor="batched", **QUICK)
    assert [runs[0].executor for runs in study.runs.values()] == ["serial", "batched"]


@pytest.mark.parametrize(
    ("asked", "before", "device", "next_asked"),
    [
        ("auto", "pool", CPU, "pool"),
        ("auto", "pool:compiled", GPU, "auto"),
        ("auto", "graphed:stacked", GPU, "graphed:stacked"),
        ("auto", "graphed:stacked:compiled", CPU, "auto"),
        ("auto", "serial", GPU, "serial"),
        ("graphed", "graphed:streams:compiled", GPU, "graphed:streams:compiled"),
        ("graphed", "graphed:streams", CPU, "graphed"),
        ("graphed", "serial", GPU, "graphed"),
        ("batched", "serial", CPU, "batched"),
        ("serial", "batched", CPU, "serial"),
    ],
)
def test_a_choice_is_kept_where_the_device_can_take_it(
    asked: str, before: str, device: torch.device, next_asked: str
) -> None:
    assert inherited_executor(asked, before, device) == next_asked


def test_executors_of_one_kind_of_device() -> None:
    assert [runs_on(name, CPU) for name in ("serial", "batched:compiled", "pool", "graphed")] == [True] * 3 + [False]
    assert [runs_on(name, GPU) for name in ("serial", "batched:compiled", "pool", "graphed")] == [
        True,
        True,
        False,
        True,
    ]


# What may differ.


def test_how_runs_were_executed_may_differ_in_a_table(tmp_path: Path) -> None:
    hw.simulate("fedavg", out=tmp_path / "a", executor="serial", **QUICK)
    other = {"client_state_mb": 5.0, "checkpoint_every": 3, "deterministic": True, "executor": "batched"}
    hw.simulate("fedacg", out=tmp_path / "b", **other, **QUICK)
    assert list(load_study([tmp_path / "a", tmp_path / "b"]).runs) == ["fedavg", "fedacg"]
    hw.simulate("fedprox", out=tmp_path / "c", executor="serial", **{**QUICK, "clients": 7})
    with pytest.raises(UserError, match="not comparable: clients is 6 and 7"):
        load_study([tmp_path / "a", tmp_path / "c"])


def test_every_setting_has_one_role() -> None:
    """The precision changes the numbers; method and seeds are what a table is over."""
    execution = {"checkpoint_every", "client_state_mb", "data_dir", "deterministic", "device", "executor", "keep_best"}
    execution |= {"keep_checkpoints"}
    assert settings_of("execution") == execution
    assert settings_of("identity") == {"method", "seed", "seeds"}
    roles = [settings_of(role) for role in ("problem", "training", "watching", "execution", "identity")]
    assert sum(map(len, roles)) == len(dataclasses.fields(Scenario))
    assert frozenset().union(*roles) == {setting.name for setting in dataclasses.fields(Scenario)}
    assert settings_of("execution", "identity") == execution | {"method", "seed", "seeds"}


def test_what_may_differ_follows_from_the_roles() -> None:
    """That bits can be repeated is a promise that a resume keeps."""
    execution, ends = settings_of("execution"), {"rounds", "target", "stop_at_target", "patience", "epsilon", "seeds"}
    assert execution - {"deterministic"} | {"on_failure"} == settings.EDITABLE
    assert settings.EDITABLE | ends == settings.RESUMABLE
    assert execution | {"method", "seed", "seeds", "target"} == settings.COMPARABLE
    assert execution | {"precision"} == settings.REPRODUCIBLE
    rates = {"rate", "schedule", "rate_decay", "rate_decay_epoch"}
    tuned = rates | {"weight_decay", "batch_size", "epochs", "steps", "clip", "clipping"}
    assert tuned == settings.TUNED
    assert {
        *("method", "seed", "seeds", "split_seed", "data_dir", "checkpoint_every", "client_state_mb", "target"),
        *("stop_at_target", "smoothing", *rates, "weight_decay", "clip", "clipping"),
        *(
            "eval_every",
            "eval_samples",
            "global_loss",
            "score_received",
            "metrics",
            "patience",
            "keep_best",
            "keep_checkpoints",
            "diagnose",
        ),
        *("delta", "epsilon", "accountant"),
    } == settings.SAME_WORK
