"""Names that other libraries have for Headway's settings point to Headway's own."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path

import pytest

import headway as hw
from headway.cli.main import main
from headway.elsewhere import SENTENCES, SETTINGS, pointer
from headway.errors import UserError
from headway.scenario import Scenario

FIELDS = {setting.name for setting in dataclasses.fields(Scenario)}
ASKED = {
    "lr": "rate",
    "learning_rate": "rate",
    "fraction": "participation",
    "fraction_fit": "participation",
    "join_ratio": "participation",
    "num_rounds": "rounds",
    "global_rounds": "rounds",
    "central_num_iterations": "rounds",
    "local_epochs": "epochs",
    "local_num_epochs": "epochs",
    "num_clients": "clients",
    "local_batch_size": "batch_size",
    "dataset": "data",
    "max_grad_norm": "clip",
    "eval_gap": "eval_every",
    "metric": "metrics",
}


@pytest.mark.parametrize("name", ASKED)
def test_a_setting_of_another_name_points_to_headways(name: str, tmp_path: Path) -> None:
    """In Python and in a scenario file."""
    words = f"a scenario has no setting '{name}'; Headway's name for it is {ASKED[name]}"
    with pytest.raises(UserError) as caught:
        hw.simulate("fedavg", **{name: 1})
    assert str(caught.value) == words
    (tmp_path / "mine.toml").write_text(f"{name} = 1\n")
    with pytest.raises(UserError) as caught:
        hw.scenario(tmp_path / "mine.toml")
    assert str(caught.value).endswith(words)


@pytest.mark.parametrize("command", ["run fedavg", "compare fedavg fedacg", "sweep fedavg"])
@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--lr", "there is no flag '--lr'; Headway's name for it is --rate"),
        ("--num-rounds", "Headway's name for it is --rounds"),
        ("--local_epochs", "Headway's name for it is --epochs"),
        ("--optimizer", "local steps are a slot of the method"),
        ("--algorithm", "the method is the first argument"),
    ],
)
def test_a_flag_of_another_name_does_too(
    command: str, flag: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["headway", *command.split(), flag, "1"])
    with pytest.raises(SystemExit) as ended:
        main()
    line = capsys.readouterr().err
    assert ended.value.code == 2
    assert line.count("\n") == 1
    assert words in line


def test_a_command_without_settings_does_not_point_to_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["headway", "export", "run", "--lr", "1"])
    with pytest.raises(SystemExit):
        main()
    assert "No such option: --lr" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["optimizer", "optimiser", "momentum", "mu", "server_lr", "alpha"])
def test_what_is_no_setting_says_where_it_belongs(name: str) -> None:
    with pytest.raises(UserError, match=f"no setting '{name}'; {SENTENCES[name][:12]}"):
        hw.scenario(**{name: 0.9})


def test_a_grid_points_too() -> None:
    with pytest.raises(UserError, match=r"'lr' is neither .*; Headway's name for it is rate"):
        hw.sweep("fedavg", {"lr": [0.1]}, rounds=1)


def test_every_pointer_leads_somewhere() -> None:
    """To a setting or an argument that there is, and never away from one."""
    arguments = set(inspect.signature(hw.simulate).parameters)
    assert set(SETTINGS.values()) <= FIELDS | arguments
    assert not (SETTINGS.keys() | SENTENCES.keys()) & (FIELDS - {"method"})
    assert not SETTINGS.keys() & SENTENCES.keys()
    assert pointer("rate") is None
    assert pointer("LR") == pointer("lr")


def test_a_misspelt_setting_is_still_told_the_nearest() -> None:
    with pytest.raises(UserError, match="no setting 'round'; did you mean 'rounds'"):
        hw.scenario(round=3)
