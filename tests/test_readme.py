"""Python of the README and of docs/data.md runs as printed, the example runs, and the commands they name exist."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
import textwrap
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from headway.cli.main import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DATA = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=["api", "task, metric, callback, optimiser", "own method"])
def test_python_of_the_readme_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # it writes a page and a picture
    exec(compile(block, "README.md", "exec"), {})


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "own_model.py"), run_name="__main__")
    assert capsys.readouterr().out.count("accuracy") == 3


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, when peft asks it
def test_what_the_page_on_fine_tuning_prints_works(capsys: pytest.CaptureFixture[str]) -> None:
    for library in ("transformers", "peft"):
        pytest.importorskip(library, reason=f"{library} is not installed: pip install 'headway[finetune]'")
    text = (ROOT / "docs" / "fine-tuning.md").read_text(encoding="utf-8")
    space: dict[str, object] = {}
    for block in re.findall(r"^ *```python\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        exec(compile(textwrap.dedent(block), "fine-tuning.md", "exec"), space)
    said = capsys.readouterr().out.splitlines()
    assert said == [str(3 * 34 * 4), "['0.weight', '0.bias', '2.weight', '2.bias']", "BertForSequenceClassification"]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_example_of_adapters_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In its quick form: less is sent for adapters, and each row has the numbers of its head."""
    for library in ("transformers", "peft"):
        pytest.importorskip(library, reason=f"{library} is not installed: pip install 'headway[finetune]'")
    monkeypatch.setattr(sys, "argv", ["lora.py", "--quick"])
    runpy.run_path(str(ROOT / "examples" / "lora.py"), run_name="__main__")
    before, whole, adapters = (line[24:].split() for line in capsys.readouterr().out.splitlines()[-3:])
    assert before[:2] == ["0", "0"]
    assert len(before) == len(whole) == len(adapters) == 5
    assert float(adapters[1]) < float(whole[1]) / 2
    assert int(adapters[0].replace(",", "")) < int(whole[0].replace(",", "")) / 2
    assert float(whole[2]) < float(before[2])


def test_commands_of_the_readme_exist() -> None:
    named = set(re.findall(r"^headway (\w+)", README, re.MULTILINE))
    assert named <= set(typer.main.get_command(app).commands)
    assert {"run", "compare", "resume"} <= named


def test_targets_of_the_readme_exist() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"^make (\w+)", README, re.MULTILINE)) <= set(targets)


def test_what_the_page_on_data_prints_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Python first, then its commands in their order; of those that need a network or files, only the spelling."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path))
    for block in re.findall(r"```python\n(.*?)```", DATA, re.DOTALL):
        exec(compile(block, "data.md", "exec"), {})
    commands = [shlex.split(line, comments=True)[1:] for line in re.findall(r"^headway .*", DATA, re.MULTILINE)]
    assert {command[1] for command in commands if command[0] == "data"} == {"list", "get", "describe"}
    for command in commands:
        elsewhere = any(word in ("cifar10", "mnist", "femnist") for word in command)
        answer = CliRunner().invoke(app, [*command, "--help"] if elsewhere else command, catch_exceptions=False)
        assert answer.exit_code == 0, f"{command}: {answer.output}"
        if "--picture" in command and not elsewhere:
            assert (tmp_path / command[command.index("--picture") + 1]).stat().st_size > 1000
