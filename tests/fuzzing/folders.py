"""Damaged folders of runs, comparisons and sweeps: every command on them says the same numbers, or one line."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch

import headway
from damaged_files import DAMAGE, files
from fuzzing.attempts import Attempt, Finding
from fuzzing.commands import fresh
from fuzzing.kills import LITTLE
from fuzzing.shell import Answer, command, inside, judged
from headway.scenario import Scenario
from test_resume_with_changes import Stopping

SETTINGS = Scenario(
    **LITTLE, rounds=3, executor="serial", eval_samples=20, deterministic=True, checkpoint_every=2, target=0.9
)
FLAGS = shlex.split(
    "--model linear --clients 6 --participation 0.5 --steps 1 --device cpu --executor serial --eval-samples 20 "
    "--deterministic --checkpoint-every 1 --rounds 1 --quiet"
)
SWEEP = ["sweep", "fedavg", "--grid", "rate=0.1,0.2", *FLAGS, "--out"]

BEST = SETTINGS.changed(
    keep_best=True, client_test=0.2, patience=2, metrics="top3", schedule="cosine:end=0.1", checkpoint_every=1
)
"""Of a run that keeps its best model, has client test sets, metrics and a schedule."""

COMMANDS: dict[str, tuple[list[str], ...]] = {
    "best": (
        *(["report", "--json", "--out", "page"], ["resume", "--json"]),
        *(["export", "--best", "--out", "model.safetensors"], ["export", "--out", "model.safetensors"]),
    ),
    "run": (["report", "--json", "--out", "page"], ["resume", "--json"], ["export", "--out", "model.safetensors"]),
    "stopped": (["report", "--json", "--out", "page"], ["resume", "--json"], ["export", "--out", "model.safetensors"]),
    "study": (["report", "--json", "--out", "page"], ["resume", "--json", "--quiet"]),
    "half": (["resume", "--json", "--quiet"],),
    "sweep": ([*SWEEP[:-1], "--json", "--out"],),
}
"""What is done to each folder; its name comes last."""


# ── damage to a file's place ─────────────────────────────────────────────────────────────────────────────────────────


def _folder(file: Path, other: Path, draw: random.Random) -> None:
    file.unlink()
    file.mkdir()


def _loop(file: Path, other: Path, draw: random.Random) -> None:
    file.unlink()
    file.symlink_to(file.name)


def _nowhere(file: Path, other: Path, draw: random.Random) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def _pipe(file: Path, other: Path, draw: random.Random) -> None:
    file.unlink()
    os.mkfifo(file)


def _locked(file: Path, other: Path, draw: random.Random) -> None:
    file.chmod(0)


def _of_another(file: Path, other: Path, draw: random.Random) -> None:
    shutil.copy(other, file)


def _utf_16(file: Path, other: Path, draw: random.Random) -> None:
    file.write_bytes(file.read_bytes().decode("latin-1").encode("utf-16"))


def _marked(file: Path, other: Path, draw: random.Random) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())


def _returns(file: Path, other: Path, draw: random.Random) -> None:
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))


def _huge(file: Path, other: Path, draw: random.Random) -> None:
    with file.open("ab") as open_file:
        open_file.write(draw.choice((b"\0", b" ", b"\n", b"[", b"9", b"#")) * 5_000_000)


def _twice(file: Path, other: Path, draw: random.Random) -> None:
    file.write_bytes(file.read_bytes() * 2)


PLACES: tuple[Callable[[Path, Path, random.Random], None], ...] = (
    *(_folder, _loop, _nowhere, _pipe, _of_another, _of_another, _utf_16, _marked, _returns, _huge, _twice),
    *(() if os.geteuid() == 0 else (_locked,)),  # nothing is locked for root
)


def made(folder: Path, seed: int) -> None:
    """Finished runs, a stopped one, a comparison, half of one, and a sweep; another seed gives other numbers."""
    folder.mkdir(parents=True)
    settings = SETTINGS.changed(seed=seed)
    headway.simulate("scaffold", settings, out=folder / "run")
    for name, begin in (("stopped", headway.simulate), ("half", headway.compare)):
        methods: Any = "scaffold" if name == "stopped" else ["fedavg", "fedacg"]
        with contextlib.suppress(KeyboardInterrupt):
            begin(methods, settings, out=folder / name, observer=Stopping(3))  # type: ignore[operator]
    headway.simulate("fedavg+adamw:state=keep", BEST.changed(seed=seed), out=folder / "best")
    headway.compare(["fedavg", "fedprox"], settings.changed(rounds=2), out=folder / "study")
    with inside(folder):
        assert command(*SWEEP, "sweep", "--seed", str(seed)).code == 0


class Folders:
    """One file of a folder is damaged; one command is given the folder."""

    def __init__(self, place: Path) -> None:
        self.place = place
        made(place / "whole", 0)
        made(place / "other", 1)
        self.expected = {
            (name, number): self.seen(name, number, lambda folder: None)[1]
            for name, commands in COMMANDS.items()
            for number in range(len(commands))
        }

    def attempt(self, draw: random.Random) -> Attempt:
        name = draw.choice(list(COMMANDS))
        number = draw.randrange(len(COMMANDS[name]))
        file = draw.choice(files(self.place / "whole" / name))
        other = self.place / "other" / name / file
        if draw.random() < 0.3 and other.is_file():
            change = draw.choice(PLACES)
            how = change.__name__

            def damage(folder: Path) -> None:
                change(folder / file, other, draw)
        else:
            how = draw.choice(list(DAMAGE))
            after = DAMAGE[how]((self.place / "whole" / name / file).read_bytes(), draw)

            def damage(folder: Path) -> None:
                (folder / file).unlink() if after is None else (folder / file).write_bytes(after)

        words = f"{name}/{file}: {how}, then {COMMANDS[name][number][0]}"
        return Attempt(words, lambda: self.play(name, number, damage))

    def seen(self, name: str, number: int, damage: Callable[[Path], None]) -> tuple[Answer, Any]:
        """What a command says of a damaged copy, and its numbers; None where it is refused."""
        box = self.place / "box"
        box.mkdir(exist_ok=True)
        for path in box.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        fresh(self.place / "whole" / name, box / name)
        damage(box / name)
        with inside(box):
            words = COMMANDS[name][number]
            answer = command(*words, name)
            if answer.code:
                return answer, None
            if words[0] == "export":
                tensors = safetensors.torch.load_file("model.safetensors")
                return answer, {key: value.tolist() for key, value in tensors.items()}
            return answer, _numbers(json.loads(answer.out))

    def play(self, name: str, number: int, damage: Callable[[Path], None]) -> str:
        answer, numbers = self.seen(name, number, damage)
        outcome = judged(answer)
        if outcome == "done":
            expected = self.expected[name, number]
            if numbers != expected:
                raise Finding(f"other numbers: {numbers!s:.1500}\n  instead of {expected!s:.1500}\n  {answer.err}")
            return "the same"
        return outcome


def _numbers(said: Any) -> Any:
    """What does not depend on the clock or on how a run ended."""
    if isinstance(said, dict):
        kept = {key: value for key, value in said.items() if "seconds" not in key}
        return {key: _numbers(value) for key, value in kept.items() if key not in ("folders", "ended", "folder")}
    return [_numbers(part) for part in said] if isinstance(said, list) else said
