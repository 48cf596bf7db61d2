"""Wrong command lines: valid commands of every subcommand, with words lost, doubled, misspelt or of no sense."""

from __future__ import annotations

import dataclasses
import itertools
import random
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import headway
from fuzzing.attempts import Attempt, Finding
from fuzzing.shell import Answer, command, inside, judged, spelled, strict
from fuzzing.words import METHODS, METRICS, NUMBERS, SCHEDULES, SPELLINGS, TASKS, WORDS
from headway.scenario import Scenario

LITTLE = (
    "--model linear --rounds 1 --clients 6 --participation 0.4 --steps 1 --device cpu --executor serial "
    "--eval-samples 20 --batch-size 4 --quiet"
)
SETTINGS = "--rounds 3 --clients 6 --rate 0.1 --partition dirichlet:0.3 --seed 1 --target 0.8"

BASES = [
    line.split()
    for line in (
        *[f"run fedavg {LITTLE} --out out"] * 6,
        f"run fedacg:lam=0.9,beta=0.001 {LITTLE} --out out --json",
        f"run --scenario good.toml fedprox+acg {LITTLE} --out out",
        f"compare fedavg fedacg {LITTLE} --out out --target 0.3 --json",
        f"run fedavg+adamw:state=keep --schedule cosine:warmup=0.5,end=0.1 {LITTLE} --out out --json",
        f"run scaffold+sam --keep-best --patience 3 --validation 0.3 {LITTLE} --out out --json",
        f"run fedacg --metrics top3 --client-test 0.3 --task classification {LITTLE} --out out --json",
        f"compare fedavg+sgd fedcm+lesam --metrics top3,top5 --schedule constant {LITTLE} --out out --json",
        f"sweep fedavg+adam --grid rate=0.01,0.1 --metrics top2 {LITTLE} --out out --json",
        "export finished --best --out model.safetensors",
        "resume finished --json",
        "resume stopped --quiet",
        "resume compared --quiet --json",
        "export finished --out model.safetensors",
        "report finished --out page --json",
        "report compared --tuned --out page",
        *[f"scenario {SETTINGS}"] * 4,
        f"scenario good.toml {SETTINGS}",
        f"scenario cifar10/dir0.3/100x5% {SETTINGS}",
        "show fedacg",
        "data list --data-dir empty --json",
        "data get nothing --data-dir empty",
        "data describe fashion --partition dirichlet:0.3 --clients 20 --split-seed 1 --json",
        "data describe synthetic:1,1,8 --partition natural --json",
        "data describe fashion --clients 5 --picture split.png",
        f"sweep fedavg --grid rate=0.1,0.2 {LITTLE} --out out --json",
        f"sweep fedacg --grid lam=0.8 --budget 2 {LITTLE} --out out --json",
        "reproduce nothing/table-1 --rows fedavg --data cifar10 --rounds 2 --seeds 1 --scale tiny --out out",
        "reproduce fedacg/table-1a --rows fedavg --data cifar10 --rounds 1 --scale tiny --data-dir empty --out out",
        "reproduce fedacg/table-1a --from empty --format markdown --claim kept",
        "reproduce fedacg/table-1a --rows fedavg --data cifar10 --dry-run --json",
        "bench --workload nothing --engines serial --rounds 1 --precision fp32 --device cpu",
        "methods --jsonn",
        "--version",
    )
]

FLAGS = [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(Scenario) if field.name != "method"]
SLOW = ("--device", "--executor", "--model", "--data")
"""Flags whose other values may be right and take seconds; they get wrong values only."""


def _value(draw: random.Random) -> str:
    return draw.choice(draw.choice((NUMBERS, WORDS, METHODS, SPELLINGS)))


def _places(words: list[str]) -> list[int]:
    """Where a value follows a flag."""
    return [at for at in range(1, len(words)) if words[at - 1].startswith("--") and not words[at].startswith("--")]


def _other_value(words: list[str], draw: random.Random) -> list[str]:
    if not (places := _places(words)):
        return _more(words, draw)
    at = draw.choice(places)
    pool = NUMBERS if any(letter.isdigit() for letter in words[at]) else WORDS
    return [*words[:at], draw.choice(pool), *words[at + 1 :]]


def _of_a_kind(words: list[str], draw: random.Random) -> list[str]:
    """One of the settings that are small languages of their own."""
    flag, pool = draw.choice((("--schedule", SCHEDULES), ("--metrics", METRICS), ("--task", TASKS)))
    if flag in words[:-1]:
        at = words.index(flag) + 1
        return [*words[:at], draw.choice(pool), *words[at + 1 :]]
    return [*words, flag, draw.choice(pool)]


def _other_word(words: list[str], draw: random.Random) -> list[str]:
    at = draw.randrange(len(words))
    return [*words[:at], _value(draw), *words[at + 1 :]]


def _other_letter(words: list[str], draw: random.Random) -> list[str]:
    """One letter more, less or other. No word begins with a slash: it would lie outside of the folder."""
    at = draw.randrange(len(words))
    word, letter = words[at], draw.choice("abz019-_=:,.+ %é\udcff")
    place = draw.randrange(len(word) + 1)
    keep = word[place + draw.randrange(2) :].lstrip("/" if not place else "")
    changed = word[:place] + draw.choice((letter, "")) + keep
    return [*words[:at], changed, *words[at + 1 :]]


def _lost(words: list[str], draw: random.Random) -> list[str]:
    at = draw.randrange(len(words))
    return words[:at] + words[at + 1 :]


def _twice(words: list[str], draw: random.Random) -> list[str]:
    at = draw.randrange(len(words))
    return [*words[: at + 1], *words[at : at + 2], *words[at + 1 :]]


def _swapped(words: list[str], draw: random.Random) -> list[str]:
    changed = list(words)
    one, other = draw.randrange(len(words)), draw.randrange(len(words))
    changed[one], changed[other] = changed[other], changed[one]
    return changed


def _more(words: list[str], draw: random.Random) -> list[str]:
    at = draw.randrange(len(words) + 1)
    flag = draw.choice([*FLAGS, "--frobnicate", "--lr", "--no-seeds", "--seed=", "-x", "-h", "--", "@file"])
    value = draw.choice(WORDS) if flag in SLOW else _value(draw)
    return [*words[:at], *draw.choice(([flag, value], [f"{flag}={value}"], [flag], [value])), *words[at:]]


def _method(words: list[str], draw: random.Random) -> list[str]:
    """The first word after the command is a method in many; elsewhere this is nonsense too."""
    name, value = draw.choice(METHODS).partition(":")[0], draw.choice(NUMBERS)
    option = draw.choice(("lam", "beta", "mu", "alpha", "bits", "rate", "x", ""))
    spelled = draw.choice((draw.choice(SPELLINGS), f"{name}:{option}={value}", f"{name}+{draw.choice(WORDS)}"))
    return [*words[:1], spelled, *words[2:]]


def _glued(words: list[str], draw: random.Random) -> list[str]:
    at = draw.randrange(len(words))
    return [*words[:at], draw.choice(("", "=", ",", " ")).join(words[at : at + 2]), *words[at + 2 :]]


MUTATIONS: tuple[Callable[[list[str], random.Random], list[str]], ...] = (
    *(_other_value, _other_value, _other_value, _more, _more, _method, _of_a_kind),
    *(_other_word, _other_letter, _lost, _twice, _swapped, _glued),
)


def prepared(folder: Path) -> None:
    """What commands are wrong about: a scenario, a finished and a stopped run, a comparison, an empty folder."""
    little = Scenario(model="linear", rounds=2, clients=6, steps=1, device="cpu", executor="serial", eval_samples=20)
    headway.simulate("fedavg", little.changed(keep_best=True), out=folder / "finished")
    headway.compare(["fedavg", "fedprox"], little, out=folder / "compared")
    shutil.copytree(folder / "finished", folder / "stopped")
    (folder / "stopped" / "summary.json").unlink()
    (folder / "good.toml").write_text(little.as_toml(comments=True), encoding="utf-8")
    (folder / "empty").mkdir()


class Commands:
    """`headway …` with something wrong in it."""

    def __init__(self, place: Path) -> None:
        self.whole, self.box = place / "whole", place / "some" / "where" / "box"
        self.whole.mkdir(parents=True)
        prepared(self.whole)

    def attempt(self, draw: random.Random) -> Attempt:
        words = list(draw.choice(BASES))
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            words = draw.choice(MUTATIONS)(words, draw) or ["run"]
        return Attempt(spelled(words), lambda: self.play(words))

    def play(self, words: list[str]) -> str:
        fresh(self.whole, self.box)
        with inside(self.box):
            answer = command(*words)
            outcome = judged(answer)
            if outcome == "stopped" and not (self.box / "out" / "rounds.jsonl").is_file():
                raise Finding(f"it ran for long before a run began: {answer}")
            if outcome == "done":
                self.as_asked(words, answer)
        return outcome

    def as_asked(self, words: list[str], answer: Answer) -> None:
        """A command that was taken did what it said: numbers are not read as others."""
        if _asked(words, "--json") and "-h" not in words and "--help" not in words and "--version" not in words:
            strict(answer.out)
        if words[0] == "scenario" and answer.out.startswith("#"):
            compare(words, answer.out)
        elif words[0] == "run" and (self.box / "out" / "scenario.toml").is_file():
            compare(words, (self.box / "out" / "scenario.toml").read_text(encoding="utf-8"))


def _asked(words: list[str], flag: str) -> bool:
    """Whether a flag without a value is given, and not as the value of the flag before it."""
    alone = ("--quiet", "--json", "--tuned", "--dry-run")
    return any(word == flag and (before in alone or before[:1] != "-") for before, word in itertools.pairwise(words))


def compare(words: list[str], text: str) -> None:
    """The numbers after the last flag of each name are those of the scenario."""
    made = tomllib.loads(text)
    for flag in FLAGS:
        given = [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
        given += [word for before, word in itertools.pairwise(words) if before == flag]
        found = made.get(flag[2:].replace("-", "_"))
        if len(given) != 1 or isinstance(found, str | bool | None):
            continue
        asked = int(given[0]) if isinstance(found, int) else float(given[0])
        if asked != found or "_" in given[0]:
            raise Finding(f"{flag} {given[0]!r} was taken for {found!r}")


def fresh(whole: Path, box: Path) -> None:
    """A copy of a folder, in place of the last one."""
    if box.exists():
        shutil.rmtree(box)
    shutil.copytree(whole, box)
