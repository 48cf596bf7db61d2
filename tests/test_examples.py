"""The programs in `examples` for tasks run as they are, in fewer rounds, and print what they say they print."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from headway.tasks import METRICS, TASKS

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
HAS_METRICS = find_spec("torchmetrics") is not None


def main_of(name: str) -> Callable[..., None]:
    main: Callable[..., None] = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]
    return main


def numbers(words: str, printed: str) -> list[float]:
    return [float(found) for found in re.findall(words, printed)]


def test_regression(capsys: pytest.CaptureFixture[str]) -> None:
    main_of("regression")()
    squared, absolute = numbers(r"MAE (\d\.\d+)", capsys.readouterr().out)
    assert absolute < 0.15 < 0.5 < squared


def test_multilabel(capsys: pytest.CaptureFixture[str]) -> None:
    main_of("multilabel")(rounds=3)
    printed = capsys.readouterr().out
    assert len(numbers(r"(\d+\.\d)% of the labels right", printed)) == 2
    assert len(numbers(r"F1 (\d\.\d+)", printed)) == (2 if HAS_METRICS else 0)


def test_segmentation(capsys: pytest.CaptureFixture[str]) -> None:
    main_of("segmentation")(rounds=2)
    printed = capsys.readouterr().out
    (right,) = numbers(r"(\d+\.\d)% of the pixels", printed)
    assert right > 60
    assert len(numbers(r"mean IoU (\d\.\d+)", printed)) == (1 if HAS_METRICS else 0)


def test_shakespeare_without_the_data(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path))
    main_of("shakespeare")(rounds=2)
    printed = capsys.readouterr().out
    assert "shakespeare must hold users.json" in printed
    assert "four speeches instead" in printed
    (first,), (last,) = numbers(r"perplexity (\S+) after one", printed), numbers(r"(\S+) after 2", printed)
    assert last < first < 60


def test_shakespeare_by_speaker_and_by_play(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the layout of the data set: six speakers of four plays."""
    speakers, plays = ["HAMLET", "GHOST", "PUCK", "PORTIA", "JAQUES", "OBERON"], ["A", "A", "B", "C", "D", "B"]
    lines = "".join(runpy.run_path(str(EXAMPLES / "shakespeare.py"))["LINES"].values())
    text = {speaker: lines[50 * at :] for at, speaker in enumerate(speakers)}
    (tmp_path / "shakespeare").mkdir()
    content = {"users": speakers, "text": text, "hierarchies": plays}
    (tmp_path / "shakespeare/users.json").write_text(json.dumps(content))
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path))
    main_of("shakespeare")(rounds=1)
    printed = capsys.readouterr().out
    assert re.search(r"^speaker +6 clients: perplexity .* after 1 ", printed, re.M)
    assert re.search(r"^play +4 clients: perplexity .* after 1 ", printed, re.M)
    assert "instead" not in printed


PAGE = (EXAMPLES.parent / "docs" / "tasks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "block", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL), ids=["own metric", "own loss", "own task", "padding"]
)
def test_python_of_the_page_of_tasks_runs(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block, "docs/tasks.md", "exec"), {})
    assert all(float(number) > 0 for number in capsys.readouterr().out.split())


def test_the_page_of_tasks_names_every_task_and_metric() -> None:
    for name in (*TASKS, *METRICS):
        assert f"`{name}`" in PAGE or name == "top3"
