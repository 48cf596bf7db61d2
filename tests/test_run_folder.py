"""Who gets a run's folder when two want it at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from headway.errors import UserError
from headway.runs import records, reserve
from headway.scenario import Scenario, scenario

FIRST, SECOND = Scenario(rate=0.01), Scenario(rate=0.02)


def one_line(refused: pytest.ExceptionInfo[UserError]) -> str:
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("study", [None, ["fedavg", "fedacg"]])
def test_a_folder_that_another_is_just_claiming_is_in_use(
    study: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process that comes while the first is still writing is refused, and the first is not disturbed."""
    told: list[str] = []
    write = reserve.write_atomically

    def meanwhile(path: Path, content: bytes) -> None:
        monkeypatch.undo()
        with pytest.raises(UserError) as refused:
            reserve.reserve(path.parent, SECOND, ["fedprox"])
        told.append(one_line(refused))
        write(path, content)

    monkeypatch.setattr(reserve, "write_atomically", meanwhile)
    folder = reserve.reserve(tmp_path / "run", FIRST, study)
    assert told == [f"another process is writing the run in {folder}"]
    assert scenario(folder) == FIRST
    assert (folder / "study.json").is_file() == (study is not None)
    assert study is None or "fedprox" not in (folder / "study.json").read_text()


def test_a_folder_claimed_since_it_was_found_free_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appending = records.appending

    @contextmanager
    def late(path: Path) -> Iterator[IO[bytes]]:
        monkeypatch.undo()
        reserve.reserve(path.parent, FIRST)
        with appending(path) as file:
            yield file

    monkeypatch.setattr(records, "appending", late)
    with pytest.raises(UserError, match="is already used") as refused:
        reserve.reserve(tmp_path / "run", SECOND, ["fedavg"])
    one_line(refused)
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["scenario.toml"]
    assert scenario(tmp_path / "run") == FIRST
