"""A few cases of every fuzzer, always the same ones; `make soak` plays thousands."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from fuzzing.attempts import Attempt, Finding, played
from fuzzing.kinds import KINDS
from fuzzing.shell import Answer, judged

SEED = 18
SHORT = {"kills": 6, "commands": 70, "scenarios": 80, "folders": 16, "data": 50, "misuse": 90, "learning": 60}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_every_case_ends_as_promised(name: str, tmp_path: Path) -> None:
    make, _ = KINDS[name]
    tally = played(name, make(tmp_path), SEED, range(SHORT[name]))
    assert not tally.findings, "\n".join(tally.findings)
    assert tally.count == SHORT[name]
    assert len(tally.outcomes) > 1, "every case ended alike: the fuzzer tries one thing only"


# A fuzzer that finds nothing may be one that cannot.


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(0, "", "Traceback (most recent call last):\nKeyError: 1\n"), "not Headway's"),
        (Answer(0, "Traceback (most recent call last)", ""), "a traceback"),
        (Answer(2, "", ""), "no line says why"),
        (Answer(1, "", "headway: KeyError\n"), "not promised"),
        (Answer(2, "", "headway: " + "x" * 2000 + "\n"), "2009 characters"),
        (Answer(2, "", "headway: \x1b[31m\n"), "no terminal should get"),
    ],
)
def test_a_wrong_end_of_a_command_is_a_finding(answer: Answer, words: str) -> None:
    with pytest.raises(Finding, match=words):
        judged(answer)


class Failing:
    """A kind whose cases fail where their number is drawn high."""

    def attempt(self, draw: object) -> Attempt:
        number = draw.random()  # type: ignore[attr-defined]

        def play() -> str:
            if number > 0.5:
                raise KeyError(number)
            return "fine"

        return Attempt(f"drew {number}", play)


def test_a_finding_says_how_to_repeat_it() -> None:
    tally = played("failing", Failing(), 3, range(20))
    assert 0 < len(tally.findings) < 20
    assert tally.outcomes["FOUND"] == len(tally.findings)
    first = tally.findings[0]
    number = int(first.split("--case ")[1].split()[0])
    assert played("failing", Failing(), 3, [number]).findings == [first]
    assert "KeyError" in first


def test_a_case_that_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzing.limits.SECONDS", 0.05)
    monkeypatch.setattr("fuzzing.limits.PATIENCE", 0.05)

    class Hanging:
        def attempt(self, draw: object) -> Attempt:
            def play() -> str:
                while True:
                    try:
                        sum(range(1000))
                    except KeyboardInterrupt:
                        warnings.warn("not now", stacklevel=1)

            return Attempt("hangs", play)

    with pytest.warns(UserWarning, match="not now"):
        tally = played("hanging", Hanging(), 0, [0])
    assert "did not stop" in tally.findings[0]
