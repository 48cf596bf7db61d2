"""rounds.jsonl: one line a round, flushed as it is written. Each line has a checksum of all lines up to it.

The last key of a line is `chain`: the first 16 digits of the SHA-256 of the `chain` before (nothing for the first line)
and of the record without it, as JSON with sorted keys. So a line that is changed, lost or moved is found, and a line
that a kill cut short is not: it ends without a line feed, and is left out.

A run that is kept for others has its rounds packed (`packed`), without these checksums and with another.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import IO, Any

from headway.errors import DamagedRun, UserError
from headway.records import RoundRecord
from headway.runs import packed
from headway.runs.files import parsed

try:
    import fcntl
except ImportError:  # no file locks on this system: two writers are not told apart
    fcntl = None  # type: ignore[assignment]

CHAIN = "chain"
_NEEDED = ("steps", "bytes_down_total", "bytes_up_total", "seconds_training", "seconds_evaluation")
"""What every record has; summaries are made of these."""


def _linked(before: str, record: Mapping[str, object]) -> str:
    return hashlib.sha256((before + json.dumps(record, sort_keys=True)).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Chain:
    """Checksums of all records up to one."""

    whole: str = ""
    """Of everything in them: it stands in the lines and, of the last line, in the summary."""
    numbers: str = ""
    """Of what does not depend on the clock: it stands in the checkpoint, where equal runs have equal bytes."""

    def then(self, record: RoundRecord) -> Chain:
        """The checksums with one more record."""
        timeless = {name: value for name, value in record.items() if "seconds" not in name}
        return Chain(_linked(self.whole, record), _linked(self.numbers, timeless))


@dataclass(frozen=True)
class Rounds:
    """What a rounds.jsonl holds, up to a round."""

    records: list[RoundRecord]
    checked: bool
    """Whether its lines have checksums; before Headway wrote them, they had none."""
    size: int
    """How many bytes these records take in the file."""
    packed: str = ""
    """The digest of the file of a run that is kept for others."""

    @cached_property
    def chain(self) -> Chain:
        """The checksums of all of them."""
        return chained(self.records)


def chained(records: Iterable[RoundRecord]) -> Chain:
    return reduce(Chain.then, records, Chain())


def load(path: Path, round: int | None = None) -> Rounds:
    """The records of rounds 1 to `round`, every one of them; of all whole lines where no round is given.

    What comes after `round` is not looked at. Anything wrong up to there is one line that says what is sound.
    """
    if (kept := path.with_name(packed.NAME)).is_file():
        if path.is_file():
            raise DamagedRun(f"{path.parent} has its rounds twice, in {path.name} and {kept.name}; remove one of them")
        return _packed(kept, round)
    content = path.read_bytes() if path.is_file() else b""
    checked = CHAIN.encode() in content
    records: list[RoundRecord] = []
    chain, held, size = "", False, 0
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        if round is not None and number > round:
            break
        try:
            record = parsed(line)
            check = record.pop(CHAIN, None) if isinstance(record, dict) else None
            _check(record, number, strict=checked or round is not None)
            chain = _linked(chain, record) if checked else ""
            if check not in (None, chain):
                raise ValueError("it is not what was written after the lines before it (its checksum differs)")
            if check is None and held:
                raise ValueError("it has no checksum, the lines before it have")
        except ValueError as fault:
            raise DamagedRun(f"{path}, line {number} is damaged: {fault}; {_sound(number - 1)}") from None
        if records and record["round"] <= records[-1]["round"]:
            raise DamagedRun(f"{path}, line {number} is damaged: it is of round {record['round']} again")
        held = held or check is not None
        records.append(record)
        size += len(line) + 1
    if round is not None and len(records) < round:
        raise DamagedRun(
            f"{path} does not hold rounds 1 to {round}, which the checkpoint was made after; {_sound(len(records))}"
        )
    return Rounds(records, held or not records, size)


def _sound(rounds: int) -> str:
    """What can still be used of a damaged file."""
    sound = "no round before it" if not rounds else f"round{'s' if rounds > 1 else ''} up to {rounds}"
    return f"{sound} {'are' if rounds > 1 else 'is'} sound; put the file back from a copy, or run it again"


def _packed(path: Path, round: int | None) -> Rounds:
    """The rounds of a run that is kept for others."""
    content = packed.content(path)
    records = packed.read(path)
    for number, record in enumerate(records, 1):
        try:
            _check(record, number, strict=round is not None)
        except ValueError as fault:
            raise DamagedRun(f"{path} is damaged: round {number}: {fault}") from None
    if round is not None and len(records) < round:
        raise DamagedRun(f"{path} does not hold rounds 1 to {round}, which the summary was made of")
    return Rounds(records[:round], True, 0, packed.digest(content))


def read(path: Path) -> list[RoundRecord]:
    """Every whole line; a last line that a kill cut short is left out. Where there is no such file, what is packed."""
    return load(path).records


def _check(record: Any, number: int, strict: bool) -> None:
    """Refuse what is not the record of a round; `strict`: of this round, with all that a summary is made of."""
    if not isinstance(record, dict) or type(record.get("round")) is not int:
        raise ValueError("it is not the record of a round")
    if strict and record["round"] != number:
        raise ValueError(f"it is of round {record['round']}, where round {number} should be")
    for name in _NEEDED:
        if strict and name not in record:
            raise ValueError(f"it does not have '{name}'")
    for name, value in record.items():
        if not _OTHERS.get(name, _number)(value):
            raise ValueError(f"'{name}' is {json.dumps(value)[:40]}")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _place(value: Any) -> bool:
    return value in ("test", "validation")


def _listed(value: Any) -> bool:
    return isinstance(value, list) and all(type(client) is int for client in value)


_OTHERS = {"clients": _listed, "measured_on": _place}
"""What is not a number."""


def cut(path: Path, kept: Rounds) -> None:
    """Remove what lies after these rounds."""
    with path.open("ab") as file:
        file.truncate(kept.size)


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


def append(file: IO[bytes], record: Mapping[str, object]) -> None:
    """Write one line: a record with the chain up to it."""
    file.write((json.dumps(record, allow_nan=False) + "\n").encode())
    file.flush()
