"""The README's Python runs as printed, the example runs, and the commands it names exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from headway.cli.main import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL), ids=["api", "own method"])
def test_python_of_the_readme_runs(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {})


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "own_model.py"), run_name="__main__")
    assert capsys.readouterr().out.count("accuracy") == 3


def test_commands_of_the_readme_exist() -> None:
    named = set(re.findall(r"^headway (\w+)", README, re.MULTILINE))
    assert named <= {command.name or command.callback.__name__ for command in app.registered_commands}
    assert {"run", "compare", "resume"} <= named


def test_targets_of_the_readme_exist() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"^make (\w+)", README, re.MULTILINE)) <= set(targets)
