"""Packed rounds: what is read is what was written, small, and the same bytes each time."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from headway.errors import UserError
from headway.runs import packed, records
from headway.runs.resume import resume

ROUNDS: list[dict[str, Any]] = [
    {
        "round": 1,
        "clients": [3, 1],
        "train_loss": 2.345678901234,
        "bytes_down_total": 223479240,
        "seconds_training": 0.123456,
    },
    {
        "round": 2,
        "clients": [0],
        "train_loss": 1e-9 / 3,
        "bytes_down_total": 446958480,
        "accuracy": 0.1 / 3,
        "accuracy_smoothed": 1 / 3,
        "global_loss": 2 / 3,
        "seconds_training": 12.3456,
    },
]


def test_counts_and_what_tables_read_are_exact_the_rest_has_six_digits(tmp_path: Path) -> None:
    (tmp_path / packed.NAME).write_bytes(packed.pack(ROUNDS))
    first, second = packed.read(tmp_path / packed.NAME)
    assert first == {**ROUNDS[0], "train_loss": 2.34568, "seconds_training": 0.123}
    assert second == {**ROUNDS[1], "train_loss": 3.33333e-10, "seconds_training": 12.3}
    assert packed.rounded(ROUNDS) == [first, second]
    assert records.read(tmp_path / "rounds.jsonl") == [first, second]
    kept = packed.digest((tmp_path / packed.NAME).read_bytes())
    assert records.load(tmp_path / "rounds.jsonl").packed == kept


def test_the_same_rounds_are_the_same_bytes_also_when_they_are_packed_again(tmp_path: Path) -> None:
    once = packed.pack(ROUNDS)
    assert packed.pack(ROUNDS) == once
    (tmp_path / packed.NAME).write_bytes(once)
    assert packed.pack(packed.read(tmp_path / packed.NAME)) == once


def test_a_run_has_its_rounds_once(tmp_path: Path) -> None:
    (tmp_path / packed.NAME).write_bytes(packed.pack(ROUNDS))
    (tmp_path / "rounds.jsonl").write_text(json.dumps(ROUNDS[0]) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"has its rounds twice, in rounds\.jsonl and rounds\.json\.xz; remove one"):
        records.read(tmp_path / "rounds.jsonl")


def test_a_run_that_is_kept_for_others_does_not_go_on(tmp_path: Path) -> None:
    (tmp_path / packed.NAME).write_bytes(packed.pack(ROUNDS))
    with pytest.raises(UserError, match="is kept for others to check, without a checkpoint"):
        resume(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [packed.NAME]


def packed_text(text: str) -> bytes:
    return lzma.compress(text.encode())


@pytest.mark.parametrize(
    "content",
    [
        b"no archive",
        packed.pack(ROUNDS)[:-20],
        packed_text("[1, 2]"),
        packed_text('{"round": [1, 2'),
        packed_text('{"round": ["1"]}'),
        packed_text('{"accuracy": [1]}'),
        packed_text('{"round": [1, 2], "accuracy": [0.5]}'),
    ],
)
def test_what_is_damaged_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / packed.NAME).write_bytes(content)
    with pytest.raises(UserError, match=r"rounds\.json\.xz is damaged: "):
        packed.read(tmp_path / packed.NAME)


def test_what_would_fill_the_memory_is_refused_before_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MOST_BYTES", 1 << 20)
    (tmp_path / packed.NAME).write_bytes(lzma.compress(b"[" + b" " * (1 << 21) + b"]"))
    with pytest.raises(UserError, match="is damaged: it unpacks to more than 1 MB"):
        packed.read(tmp_path / packed.NAME)
