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
from dataclasses import dataclass, field
from functools import cached_property, reduce
from pathlib import Path
from typing import IO, cast

from headway.errors import DamagedRun, UserError
from headway.measure.over_clients import MEASURED, PROXY
from headway.records import FailedClient, MetricRecord, RoundRecord
from headway.runs import packed
from headway.runs.files import parsed

try:
    import fcntl
except ImportError:  # no file locks on this system: a second writer goes unnoticed
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
    """The checksum of everything in them: it stands in the lines and, of the last line, in the summary."""
    numbers: str = ""
    """The checksum of what does not depend on the clock; it stands in the checkpoint, equal for equal runs."""

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
    """The checksums of all these records together."""
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
    found = _Lines(path, checked, strict=checked or round is not None)
    for line in content.split(b"\n")[:-1][:round]:
        found.take(line)
    if round is not None and len(found.records) < round:
        raise DamagedRun(
            f"{path} does not hold rounds 1 to {round}, which the checkpoint was made after; "
            f"{_sound(len(found.records))}"
        )
    return Rounds(found.records, found.has_checksums or not found.records, found.size)


@dataclass
class _Lines:
    """The lines of a rounds.jsonl, checked one after another."""

    path: Path
    checked: bool
    """Whether a checksum is in the file."""
    strict: bool
    records: list[RoundRecord] = field(default_factory=list)
    size: int = 0
    chain: str = ""
    has_checksums: bool = False
    """Whether a line before had one."""

    def take(self, line: bytes) -> None:
        """Add the record of the next line, or refuse the line."""
        number = len(self.records) + 1
        try:
            record = self._linked_record(line, number)
        except ValueError as fault:
            raise DamagedRun(f"{self.path}, line {number} is damaged: {fault}; {_sound(number - 1)}") from None
        if self.records and record["round"] <= self.records[-1]["round"]:
            raise DamagedRun(f"{self.path}, line {number} is damaged: it is of round {record['round']} again")
        self.records.append(record)
        self.size += len(line) + 1

    def _linked_record(self, line: bytes, number: int) -> RoundRecord:
        """The record in a line, without its checksum, which must be that of all lines up to it."""
        record = parsed(line)
        check = record.pop(CHAIN, None) if isinstance(record, dict) else None
        checked = _checked(record, number, self.strict)
        self.chain = _linked(self.chain, checked) if self.checked else ""
        if check not in (None, self.chain):
            raise ValueError("it is not what was written after the lines before it (its checksum differs)")
        if check is None and self.has_checksums:
            raise ValueError("it has no checksum, the lines before it have")
        self.has_checksums = check is not None
        return checked


def _sound(rounds: int) -> str:
    """What can still be used of a damaged file."""
    sound = "no round before it" if not rounds else f"round{'s' if rounds > 1 else ''} up to {rounds}"
    return f"{sound} {'are' if rounds > 1 else 'is'} sound; put the file back from a copy, or run it again"


def _packed(path: Path, round: int | None) -> Rounds:
    """The rounds of a run that is kept for others."""
    content = packed.content(path)
    records = []
    for number, record in enumerate(packed.read(path), 1):
        try:
            records.append(_checked(record, number, strict=round is not None))
        except ValueError as fault:
            raise DamagedRun(f"{path} is damaged: round {number}: {fault}") from None
    if round is not None and len(records) < round:
        raise DamagedRun(f"{path} does not hold rounds 1 to {round}, which the summary was made of")
    return Rounds(records[:round], True, 0, packed.digest(content))


def read(path: Path) -> list[RoundRecord]:
    """Every whole line; a last line that a kill cut short is left out. Where there is no such file, what is packed."""
    return load(path).records


def _checked(record: object, number: int, strict: bool) -> RoundRecord:
    """A record as it was read, or a `ValueError` where it is not that of a round.

    `strict`: it must be of this round, with all that a summary is made of.
    """
    if not isinstance(record, dict) or type(record.get("round")) is not int:
        raise ValueError("it is not the record of a round")
    if strict and record["round"] != number:
        raise ValueError(f"it is of round {record['round']}, where round {number} should be")
    for name in _NEEDED if strict else ():
        if name not in record:
            raise ValueError(f"it does not have '{name}'")
    for name, value in record.items():
        if not _OTHERS.get(name, _number)(value):
            raise ValueError(f"'{name}' is {json.dumps(value)[:40]}")
    return cast(RoundRecord, record)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _place(value: object) -> bool:
    return value in ("test", "validation")


def _listed(value: object) -> bool:
    return isinstance(value, list) and all(type(client) is int for client in value)


def _failures(value: object) -> bool:
    """Whether a value is a list of clients that were skipped, each with its cause."""
    return isinstance(value, list) and all(
        isinstance(one, dict)
        and one.keys() == FailedClient.__annotations__.keys()
        and type(one["client"]) is int
        and isinstance(one["cause"], str)
        for one in value
    )


def _metrics(value: object) -> bool:
    """Whether a value says how metrics are read."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(one, dict)
            and one.keys() == MetricRecord.__annotations__.keys()
            and isinstance(one["name"], str)
            and isinstance(one["higher_is_better"], bool)
            and isinstance(one["percent"], bool)
            for one in value
        )
    )


def _text(value: object) -> bool:
    return isinstance(value, str)


def _numbers(value: object) -> bool:
    return isinstance(value, list) and all(map(_number, value))


def _by_class(value: object) -> bool:
    return isinstance(value, dict) and all(name.isdecimal() and _number(one) for name, one in value.items())


_OTHERS = {
    "clients": _listed,
    "client_steps": _listed,
    "absent": _failures,
    "ask": _text,
    "measured_on": _place,
    "failures": _failures,
    "metrics": _metrics,
    "client_scores": lambda value: value in (MEASURED, PROXY),
    "client_metric": _text,
    "client_quantiles": _numbers,
    "update_cosines": _numbers,
    "accuracy_by_class": _by_class,
    "forgetting_by_class": _by_class,
}
"""What is not a number."""


def cut(path: Path, kept: Rounds) -> None:
    """Remove what lies after these rounds."""
    with path.open("ab") as file:
        file.truncate(kept.size)


@contextmanager
def appending(path: Path) -> Iterator[IO[bytes]]:
    """The file, open at its end and locked: two processes never write one run. A pipe in its place is not opened."""
    if path.exists() and not path.is_file():
        raise DamagedRun(f"{path} is damaged: it is not a plain file; put it back from a copy")
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
