"""rounds.jsonl: one line a round, flushed as it is written; a run that is kept for others has them packed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from headway.errors import UserError
from headway.runs import packed

try:
    import fcntl
except ImportError:  # no file locks on this system: two writers are not told apart
    fcntl = None  # type: ignore[assignment]


def read(path: Path) -> list[dict[str, Any]]:
    """Every whole line; a last line that a kill cut short is left out. Where there is no such file, what is packed."""
    kept = path.with_name(packed.NAME)
    if kept.is_file():
        if path.is_file():
            raise UserError(f"{path.parent} has its rounds twice, in {path.name} and {kept.name}; remove one of them")
        return packed.read(kept)
    if not path.is_file():
        return []
    records: list[dict[str, Any]] = []
    for line in path.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        try:
            record = json.loads(line)
        except ValueError as fault:
            raise UserError(f"{path}, line {len(records) + 1} is damaged: {fault}") from None
        if not isinstance(record, dict) or not isinstance(record.get("round"), int):
            raise UserError(f"{path}, line {len(records) + 1} is damaged: it is no record of a round")
        records.append(record)
    return records


def until(path: Path, round: int) -> list[dict[str, Any]]:
    """The records of rounds 1 to `round`; every one must be there."""
    kept = [record for record in read(path) if record["round"] <= round]
    if [record["round"] for record in kept] != list(range(1, round + 1)):
        raise UserError(f"{path} does not hold rounds 1 to {round}, which the checkpoint was made after")
    return kept


def cut(path: Path, round: int) -> list[dict[str, Any]]:
    """Remove what lies after a round, and return what stays."""
    kept = until(path, round)
    whole = path.read_bytes() if path.is_file() else b""
    stay = sum(len(line) for line in whole.splitlines(keepends=True)[: len(kept)])
    with path.open("ab") as file:
        file.truncate(stay)
    return kept


@contextmanager
def appending(path: Path) -> Iterator[IO[bytes]]:
    """The file, open at its end and locked: two processes never write one run."""
    with path.open("ab") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"another process is writing the run in {path.parent}") from None
        yield file


def append(file: IO[bytes], record: dict[str, Any]) -> None:
    file.write((json.dumps(record, allow_nan=False) + "\n").encode())
    file.flush()
