"""Methods, models and data of one's own in comparisons, and their folders afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import headway as hw
from conftest import unequal_clients
from headway.errors import Diverged, UserError
from headway.report import tables
from headway.report.page.commands import _flags, reason_for_none
from headway.runs.study import load_study, resume_study

QUICK: dict[str, Any] = {"rounds": 2, "executor": "serial", "clients": 6, "model": "mlp", "steps": 2, "device": "cpu"}


def frozen(model: hw.Vector, uploads: Any) -> hw.Vector:
    return model


def mine(name: str = "mine") -> hw.Method:
    return hw.Method(server=frozen, name=name)


def test_an_own_method_is_compared_as_it_is() -> None:
    study = hw.compare([mine(), "fedavg"], **QUICK)
    assert list(study.runs) == ["mine", "fedavg"]
    assert [record["update_norm"] for record in study.runs["mine"][0].records] == [0.0, 0.0]
    assert study.runs["fedavg"][0].records[0]["update_norm"] > 0


@pytest.mark.parametrize("name", ["fedavg", "fedacg"])
def test_an_own_method_has_a_name_of_its_own(name: str) -> None:
    for run in (hw.simulate, lambda method, **settings: hw.compare([method], **settings)):
        with pytest.raises(UserError, match=f"the catalogue's '{name}'; give it another"):
            run(mine(name), **QUICK)
    hw.simulate(hw.method(name), **QUICK)  # the catalogue's own object has it by right


def test_a_folder_of_an_own_method_says_what_it_needs(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = hw.simulate(mine(), out=run, **QUICK)
    for open_it in (hw.load_run, hw.resume):
        with pytest.raises(UserError, match=r"'mine', which is not a method of the catalogue.*method=…"):
            open_it(run)
    assert hw.load_run(run, method=mine()).summary == first.summary
    study = load_study([run])
    assert study.summary()[0]["name"] == "mine"
    assert "mine was run from Python with its own method" in str(reason_for_none(study))


def test_own_models_and_data_are_compared(tmp_path: Path) -> None:
    given = unequal_clients()
    settings = {"rounds": 2, "executor": "serial", "participation": 0.5, "batch_size": 4, "device": "cpu"}
    study = hw.compare(["fedavg", mine()], model=nn.Linear(6, 3), out=tmp_path / "study", **given, **settings)
    alone = hw.simulate("fedavg", model=nn.Linear(6, 3), **given, **settings)
    assert study.runs["fedavg"][0].scenario == alone.scenario
    with pytest.raises(UserError, match="made from Python with mine, its own data, its own model"):
        resume_study(tmp_path / "study")


def test_a_number_of_clients_is_said_where_the_partition_has_another() -> None:
    for partition, said in (("natural", True), ("iid", False)):
        assert ("--clients" in _flags(hw.Scenario(partition=partition, clients=60))) is said


def test_a_value_without_a_gradient_is_refused() -> None:
    """It would be FedAvg without a word."""
    with pytest.raises(UserError, match=r"mine.* returned a float; a value is a tensor"):
        hw.simulate(hw.Method(objective=lambda w, output, step: w.dot(w).item(), name="mine"), **QUICK)


def test_a_folder_that_is_taken_says_by_what(tmp_path: Path) -> None:
    hw.simulate("fedavg", out=tmp_path / "run", **QUICK)
    (tmp_path / "file").write_text("")
    for name, what in (("run", "headway report .* shows it"), ("file", "it is a file")):
        with pytest.raises(UserError, match=f"already used \\({what}\\)"):
            hw.simulate("fedavg", out=tmp_path / name, **QUICK)


def test_a_sweep_wants_a_name() -> None:
    method: Any = mine()
    with pytest.raises(UserError, match="by its name"):
        hw.sweep(method, {"rate": [0.1]}, rounds=1)


def test_a_method_that_diverges_is_noted_and_the_others_run(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="server_rate=1e30, seed 0, failed"):
        study = hw.compare(["fedavg", "fedavgm:server_rate=1e30", "fedacg"], out=tmp_path / "study", **QUICK)
    assert list(study.runs) == ["fedavg", "fedacg"]
    assert len(study.failed) == 1
    assert "fedavgm:server_rate=1e30, seed 0, failed: round " in study.note
    with pytest.warns(UserWarning, match="failed"):
        again = resume_study(tmp_path / "study")
    assert list(again.runs) == ["fedavg", "fedacg"]
    assert again.failed == study.failed


def test_a_comparison_that_never_began_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        hw.compare(["fedavg"], out=tmp_path / "study", **{**QUICK, "data": f"npz:{tmp_path / 'none.npz'}"})
    assert not (tmp_path / "study").exists()
    hw.compare(["fedavg"], out=tmp_path / "study", **QUICK)


def test_where_every_method_diverges_the_first_is_reported() -> None:
    with pytest.raises(Diverged, match="seed 0: round"):
        hw.compare(["fedavgm:server_rate=1e30"], **QUICK)


def _row(name: str, accuracy: float, rounds: int | None, ended: str = "") -> dict[str, Any]:
    return {
        **{"name": name, "smoothed_accuracy": accuracy, "last_accuracy": accuracy, "headline": "smoothed_accuracy"},
        **{"rounds_to_target": rounds, "target": None, "seeds": 1, "ended": ended},
        **{"bytes_down": 1000, "bytes_up": 1000, "bytes_to_target": None, "bytes_per_round": 1000.0},
    }


def test_equal_ones_are_all_best_and_those_cut_short_are_none() -> None:
    rows = [_row("a", 0.5, 2), _row("b", 0.4, 2), _row("c", 0.9, 1, "failed at round 3"), _row("d", 0.5, None)]
    assert tables.best(rows) == {(0, 1), (3, 1), (0, 2), (1, 2)}
    assert tables._label(rows[2]) == "c (failed at round 3)"


class Halting:
    """Stops after the first round, as Ctrl-C does."""

    def begins(self, experiment: Any, done: int, executor: str) -> None: ...
    def tell(self, message: str) -> None: ...
    def round(self, record: dict[str, Any]) -> None:
        raise KeyboardInterrupt


def test_a_run_that_is_not_finished_says_so(tmp_path: Path) -> None:
    whole = hw.simulate("fedavg", out=tmp_path / "whole", **QUICK)
    with pytest.raises(KeyboardInterrupt):
        hw.simulate("fedacg", out=tmp_path / "part", observer=Halting(), checkpoint_every=1, **QUICK)
    study = load_study([tmp_path / "whole", tmp_path / "part"])
    assert [row["ended"] for row in study.summary()] == ["", "1 of 2 rounds"]
    assert study.target == whole.summary["accuracy"]
    text = tables.markdown(study.summary(), whole.scenario)
    assert "fedacg (1 of 2 rounds)" in text
    assert "2 rounds, 1 seed" in text
