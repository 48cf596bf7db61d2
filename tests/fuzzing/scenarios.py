"""Wrong scenario files: a complete one with other values, keys, bytes, line ends and encodings."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from fuzzing.attempts import Attempt, Finding
from fuzzing.commands import LITTLE, fresh
from fuzzing.shell import command, inside, judged
from headway.scenario import Scenario

TINY = Scenario(
    model="linear",
    rounds=1,
    clients=6,
    steps=1,
    device="cpu",
    executor="serial",
    eval_samples=20,
    target=0.9,
    seed=3,
)

VALUES = (
    *("", "1", "-1", "0", "1.5", "true", '"three"', "'x'", "[]", "[1, 2]", "{}", "{a = 1}", "inf", "-nan", "1e400"),
    *("0x10", "0b11", "1_000", "+5", "01", "1979-05-27", "07:32:00", '"""\nlong\n"""', '"\\u0000"', '"\\ud800"', '""'),
    *("9" * 5_000, "1e-400", "9223372036854775808", "[" * 3_000, "[" * 200 + "]" * 200, '"' + "x" * 70_000 + '"'),
    *('"step:every=1e-320"', '"cosine:end=0.1,warmup=1"', '"top3"', '"torchmetrics:"', '"own:x"', '"regression"'),
    *("{a = {a = " * 500, '"dirichlet:1e999"', '"file:/dev/null"', '"npz:nowhere.npz"', '"cuda:99"', "0.0", "-0.0"),
)


def _line(change: Callable[[list[str], int, random.Random], None]) -> Callable[[str, random.Random], bytes]:
    """A change of the line of one setting."""

    def changed(text: str, draw: random.Random) -> bytes:
        lines = text.splitlines()
        if places := [at for at, line in enumerate(lines) if re.match(r"\w+ = ", line)]:
            change(lines, draw.choice(places), draw)
        return "\n".join(lines).encode("utf-8", "surrogatepass")

    return changed


def _value(lines: list[str], at: int, draw: random.Random) -> None:
    lines[at] = f"{lines[at].split(' = ')[0]} = {draw.choice(VALUES)}"


def _key(lines: list[str], at: int, draw: random.Random) -> None:
    key, _, value = lines[at].partition(" = ")
    other = draw.choice(
        (key[:-1], key + "s", key.upper(), f'"{key}"', f"run.{key}", f"a.b.{key}", "''", "lr", "é", "=")
    )
    lines[at] = f"{other} = {value}"


def _gone(lines: list[str], at: int, draw: random.Random) -> None:
    del lines[at]


def _again(lines: list[str], at: int, draw: random.Random) -> None:
    lines.insert(draw.randrange(len(lines) + 1), lines[at])


def _table(lines: list[str], at: int, draw: random.Random) -> None:
    lines.insert(at, draw.choice(("[run]", "[[run]]", "[run", "[a.b.c]", "[" + "a." * 3_000 + "a]", "rounds", "= 1")))


def _bytes(text: str, draw: random.Random) -> bytes:
    raw = bytearray(text.encode())
    for _ in range(draw.choice((1, 1, 4, 40)) if raw else 0):
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    return bytes(raw)


def _whole(text: str, draw: random.Random) -> bytes:
    """The same text as another editor, system or accident would leave it."""
    raw = text.encode()
    return draw.choice(
        (
            b"\xef\xbb\xbf" + raw,
            raw.replace(b"\n", b"\r\n"),
            raw.replace(b"\n", b"\r"),
            text.replace("fashion", "fäshion").encode("latin-1", "replace"),
            text.encode("utf-16"),
            raw + b"\0",
            raw[: draw.randrange(len(raw) + 1)],
            raw * 2,
            b"",
            b"\0" * 4096,
            raw + b"# " + b"x" * 3_000_000,
            raw.replace(b" = ", b" "),
            raw.replace(b'"', b"'"),
        )
    )


CHANGES = (*[_line(_value)] * 6, _line(_key), _line(_gone), _line(_again), _line(_table), _bytes, _whole, _whole)


class Scenarios:
    """`headway scenario FILE` and `headway run --scenario FILE` with a wrong file."""

    def __init__(self, place: Path) -> None:
        self.whole, self.box = place / "whole", place / "box"
        self.whole.mkdir(parents=True)

    def attempt(self, draw: random.Random) -> Attempt:
        content = TINY.as_toml(comments=draw.random() < 0.5).encode()
        names = []
        for _ in range(draw.choice((1, 1, 1, 2))):
            change = draw.choice(CHANGES)
            names.append(change.__qualname__.split(".")[0])
            content = change(content.decode(errors="replace"), draw)
        runs = draw.random() < 0.2
        words = ["run", "fedavg", *LITTLE.split(), "--out", "out"] if runs else ["scenario"]
        file = ["--scenario", "wrong.toml"] if runs else ["wrong.toml"]
        lines = [line for line in content.splitlines() if line not in TINY.as_toml().encode().splitlines()]
        return Attempt(f"{words[0]} with {names}: {lines[:6]!r:.600}", lambda: self.play(content, [*words, *file]))

    def play(self, content: bytes, words: list[str]) -> str:
        fresh(self.whole, self.box)
        (self.box / "wrong.toml").write_bytes(content)
        with inside(self.box):
            answer = command(*words)
        outcome = judged(answer)
        if outcome == "done" and words[0] == "scenario":
            lines = content.decode().replace("\r\n", "\n").replace("\r", "\n")  # as every text file is read
            given, printed = tomllib.loads(lines), tomllib.loads(answer.out)
            for key, value in given.items():
                if printed.get(key) != value:
                    raise Finding(f"{key} is {value!r} in the file and {printed.get(key)!r} in what was printed")
        return outcome
