"""Damage to the files of a folder, drawn at random from a seed, and what may come of it: the same, or one line."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headway.errors import UserError


def _flip(content: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]


def _number(content: bytes, draw: random.Random) -> bytes:
    """One digit is another one."""
    places = [found.start() for found in re.finditer(rb"\d", content)]
    if not places:
        return _flip(content, draw)
    at = draw.choice(places)
    return content[:at] + draw.choice(b"0123456789".replace(content[at : at + 1], b"")).to_bytes() + content[at + 1 :]


def _on_lines(change: Callable[[list[bytes], random.Random], object]) -> Callable[[bytes, random.Random], bytes]:
    def changed(content: bytes, draw: random.Random) -> bytes:
        lines = content.splitlines(keepends=True)
        change(lines, draw)
        return b"".join(lines)

    return changed


def _swap(lines: list[bytes], draw: random.Random) -> None:
    one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]


def _cut_out(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content))
    return content[:start] + content[start + draw.randrange(1, 20) :]


def _word(content: bytes, draw: random.Random) -> bytes:
    """A name or a value is what another one in the file is."""
    words = list(re.finditer(rb"[A-Za-z_]{3,}|-?\d[\d.e-]*", content))
    if len(words) < 2:
        return _flip(content, draw)
    one, other = draw.sample(words, 2)
    return content[: one.start()] + other[0] + content[one.end() :]


DAMAGE: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "flip a bit": _flip,
    "another digit": _number,
    "another word": _word,
    "a line less": _on_lines(lambda lines, draw: lines.pop(draw.randrange(len(lines)))),
    "a line twice": _on_lines(lambda lines, draw: lines.insert(draw.randrange(len(lines)), draw.choice(lines))),
    "two lines swapped": _on_lines(_swap),
    "cut short": lambda content, draw: content[: draw.randrange(len(content))],
    "a hole": _cut_out,
    "more at the end": lambda content, draw: content + draw.choice([b"\n", b" ", b"\x00", b"{}\n", b"x = 1\n"]),
    "empty": lambda content, draw: b"",
    "gone": lambda content, draw: None,
}


def files(folder: Path) -> list[Path]:
    """What lies in a folder and below it, that Headway reads."""
    made = (".png", ".html", ".md", ".tex", ".csv")
    return sorted(file.relative_to(folder) for file in folder.rglob("*") if file.is_file() and file.suffix not in made)


Look = Callable[[Path], Any]


def told(look: Look, folder: Path) -> Any:
    """What is seen in a folder; the line, where it is refused. Any other end of it is a failure of ours."""
    try:
        return look(folder)
    except UserError as refused:
        line = str(refused)
        assert line.strip(), "the line is empty"
        assert "\n" not in line, line
        return refused


def damaged(
    folder: Path, aside: Path, count: int, seed: int, looks: Sequence[Look], may_go: Sequence[str] = ()
) -> dict[str, int]:
    """Damage copies of a folder, each time one file, and look at each in one of the ways; how many were refused.

    What is seen is what is seen in the whole folder, or it is refused. `may_go`: a file that may be away as well as be
    there, so that nobody can know.
    """
    draw = random.Random(seed)
    expected = [look(_copied(folder, aside)) for look in looks]
    counts = {"refused": 0, "harmless": 0}
    while sum(counts.values()) < count:
        file, kind, at = draw.choice(files(folder)), draw.choice(list(DAMAGE)), draw.randrange(len(looks))
        content = (folder / file).read_bytes()
        after = DAMAGE[kind](content, draw)
        if after == content or (after is None and file.name in may_go):
            continue
        place = _copied(folder, aside)
        (place / file).unlink() if after is None else (place / file).write_bytes(after)
        which = f"{file}: {kind}, by {looks[at].__name__} (number {sum(counts.values())} of seed {seed})"
        try:
            seen = told(looks[at], place)
        except Exception as fault:
            raise AssertionError(which) from fault
        assert isinstance(seen, UserError) or seen == expected[at], which
        counts["refused" if isinstance(seen, UserError) else "harmless"] += 1
    return counts


def _copied(folder: Path, aside: Path) -> Path:
    if aside.exists():
        shutil.rmtree(aside)
    return Path(shutil.copytree(folder, aside))
