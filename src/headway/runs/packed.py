"""rounds.json.xz: the rounds of a run that is kept for others to check, a tenth as large as rounds.jsonl or less.

It has a list for each name of a record, with null where a round has no such number, and is compressed; what the same
rounds give is the same bytes. Counts, accuracies and the loss on all clients' data are as the run wrote them: tables
and pictures are made of these. Other measured numbers have six significant digits, and times three.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from headway.errors import DamagedRun
from headway.records import RoundRecord
from headway.runs.files import parsed, read_plain

NAME = "rounds.json.xz"
_EXACT = ("accuracy", "accuracy_smoothed", "global_loss")
QUANTILES = "client_quantiles"
_DIGITS = 6
_DIGITS_OF_TIMES = 3


def _kept(name: str, value: object) -> object:
    if name == QUANTILES and isinstance(value, list):
        return [_kept("", one) for one in value]
    if name in _EXACT or not isinstance(value, float):
        return value
    return float(f"{value:.{_DIGITS_OF_TIMES if name.startswith('seconds_') else _DIGITS}g}")


def rounded(records: Sequence[RoundRecord]) -> list[RoundRecord]:
    """The records as a file of this kind gives them back."""
    return [
        cast(RoundRecord, {name: _kept(name, value) for name, value in one.items() if value is not None})
        for one in records
    ]


def pack(records: Sequence[RoundRecord]) -> bytes:
    """Records as the bytes of rounds.json.xz."""
    names = dict.fromkeys(name for one in records for name in one)
    columns = {name: [_kept(name, one.get(name)) for one in records] for name in names}
    text = json.dumps(columns, separators=(",", ":"), allow_nan=False)
    return lzma.compress(text.encode(), lzma.FORMAT_XZ, lzma.CHECK_CRC32, 9 | lzma.PRESET_EXTREME)


def content(path: Path) -> bytes:
    """The bytes of rounds.json.xz."""
    try:
        return read_plain(path)
    except OSError as fault:
        raise DamagedRun(f"{path} cannot be read: {fault.strerror}") from None


def digest(content: bytes) -> str:
    """What a summary beside it says of the file."""
    return hashlib.sha256(content).hexdigest()


MOST_BYTES = 1 << 28
"""The most bytes that a file may unpack to: a hundred thousand rounds have about 70 MB, with 100 classes about 170."""


def _unpacked(packed: bytes) -> bytes:
    """What a file holds; one that would fill the memory is refused before it does."""
    reader = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    held = reader.decompress(packed, MOST_BYTES)
    if not reader.eof:
        raise ValueError("it is cut off" if reader.needs_input else f"it unpacks to more than {MOST_BYTES >> 20} MB")
    return held


def read(path: Path) -> list[RoundRecord]:
    """Every record, its names in the order in which they first came up."""
    try:
        columns = _columns(parsed(_unpacked(content(path)).decode()))
    except (lzma.LZMAError, ValueError) as fault:
        raise DamagedRun(f"{path} is damaged: {fault}") from None
    rows = zip(*columns.values(), strict=True)
    records = [{name: value for name, value in zip(columns, row, strict=True) if value is not None} for row in rows]
    return cast(list[RoundRecord], records)


def _columns(held: object) -> dict[str, list[object]]:
    """The list of each name; a `ValueError` where they are not of the same rounds."""
    numbers = held.get("round") if isinstance(held, dict) else None
    if not isinstance(held, dict) or not isinstance(numbers, list) or not all(isinstance(one, int) for one in numbers):
        raise ValueError("it has no list of rounds")
    if any(not isinstance(column, list) or len(column) != len(numbers) for column in held.values()):
        raise ValueError(f"its lists are not of {len(numbers)} rounds")
    return held
