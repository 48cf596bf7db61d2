"""Completion in real shells: what is on the screen after a tab. And what is remembered of the catalogue for it."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import stat
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import called, environment, one_line
from headway.cli import completion, remembered
from headway.methods.catalogue import METHODS
from headway.models.networks import NETWORKS

SHELLS = {"bash": ("bash", "--norc", "--noprofile", "-i"), "zsh": ("zsh", "-f", "-i")}
READY = "ready" + "-now"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the command `headway`, the scripts, and a cache with the names in it."""
    folder = tmp_path_factory.mktemp("completion")
    command = folder / "bin" / "headway"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m headway "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    (folder / "runs-of-mine").mkdir()
    for shell in SHELLS:
        (folder / f"complete.{shell}").write_text(completion.script(shell), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_CACHE", str(folder / "cache"))
        completion.names()
    return folder


class Terminal:
    """An interactive shell in a terminal, in which the completion of `headway` is set up."""

    def __init__(self, shell: str, place: Path) -> None:
        known = environment(
            HEADWAY_CACHE=str(place / "cache"),
            PATH=f"{place / 'bin'}:{os.environ['PATH']}",
            PYTHONPATH=os.pathsep.join(sys.path),
            TERM="dumb",
            HISTFILE="",
        )
        self.end, inner = pty.openpty()
        termios.tcsetwinsize(self.end, (50, 200))
        self.process = subprocess.Popen(
            SHELLS[shell], stdin=inner, stdout=inner, stderr=inner, cwd=place, env=known, start_new_session=True
        )
        os.close(inner)
        self.seen = ""
        self.after(f"source ./complete.{shell}; PS1='$ '; echo {READY[:5]}''{READY[5:]}\n", READY)

    def after(self, keys: str, expected: str) -> str:
        """What has been on the screen since these keys, once it matches a pattern."""
        self.seen = ""
        os.write(self.end, keys.encode())
        while not re.search(expected, self.seen):
            assert select.select([self.end], [], [], 20)[0], f"{expected} is not in {self.seen!r}"
            text = os.read(self.end, 65536).decode(errors="replace")
            self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\x07", "", text)
        return self.seen

    def clear(self) -> None:
        """Take back the line that was begun."""
        self.after("\x15echo cle''ared\n", r"\ncleared")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.end)


@pytest.fixture(scope="module", params=SHELLS)
def terminal(request: pytest.FixtureRequest, place: Path) -> Iterator[Terminal]:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    found = Terminal(request.param, place)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("begun", "whole"),
    [
        ("headway run fedpa", "headway run fedpaq "),
        ("headway compare fedavg scaffo", "headway compare fedavg scaffold "),
        ("headway run fedacg:la", "headway run fedacg:lam="),
        ("headway run fedacg:lam=0.9,be", "headway run fedacg:lam=0.9,beta="),
        ("headway run fedprox+acg:la", "headway run fedprox+acg:lam="),
        ("headway run fedavg --model vgg1", "headway run fedavg --model vgg11 "),
        ("headway run fedavg --data cifar100", "headway run fedavg --data cifar100 "),
        ("headway run fedavg --partition dirichlet-", "headway run fedavg --partition dirichlet-repeated:"),
        ("headway run fedavg --executor seri", "headway run fedavg --executor serial"),
        ("headway run --client-t", "headway run --client-test "),
        ("headway repr", "headway reproduce "),
        ("headway resume runs-of", "headway resume runs-of-mine/"),
    ],
)
def test_a_tab_completes(begun: str, whole: str, terminal: Terminal) -> None:
    try:
        seen = terminal.after(begun + "\t", re.escape(whole))
        assert whole in seen.replace("\n", "")
    finally:
        terminal.clear()


@pytest.mark.parametrize(
    ("begun", "words"),
    [
        ("headway run fedp", ("fedprox", "fedpaq", "fedproxm")),
        ("headway show fedacg:", ("lam=", "beta=", "half=")),
        ("headway rep", ("report", "reproduce")),
        ("headway run fedavg --executor pool", ("pool", "pool:compiled")),
    ],
)
def test_two_tabs_list_what_there_is(begun: str, words: tuple[str, ...], terminal: Terminal) -> None:
    terminal.after(begun + "\t\t", r"(?s)" + ".*".join(rf"(?=.*\n.*{re.escape(word)})" for word in words))
    terminal.clear()


def test_every_name_is_offered(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(place / "cache"))
    assert [word for word, _ in completion.methods("")] == list(METHODS)
    assert all(text for _, text in completion.methods(""))
    complete = completion.of_setting("model", ())
    assert complete is not None
    assert [word for word, _ in complete("")] == list(NETWORKS)
    assert completion.of_setting("rounds", ()) is None


def test_another_shell_is_refused_in_a_line(tmp_path: Path) -> None:
    assert one_line(called(tmp_path, "completion tcsh")) == "shell is 'tcsh'; allowed: bash, zsh"


# ── what is remembered ───────────────────────────────────────────────────────────────────────────────────────────────


def _made(counted: list[int]) -> dict[str, object]:
    counted.append(1)
    return {"number": len(counted)}


def test_what_is_remembered_is_made_once_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    package = tmp_path / "package"
    package.mkdir()
    (package / "catalogue.py").write_text("one")
    monkeypatch.setattr(remembered, "_PACKAGE", package)
    counted: list[int] = []
    for _ in range(3):
        assert remembered.remembered("thing", lambda: _made(counted)) == {"number": 1}
    (package / "catalogue.py").write_text("another")
    assert remembered.remembered("thing", lambda: _made(counted)) == {"number": 2}
    (file,) = (tmp_path / "cache" / "catalogue").iterdir()
    file.write_text(file.read_text().replace("2", "7", 1))  # damaged: it is made again
    assert remembered.remembered("thing", lambda: _made(counted)) == {"number": 3}


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "file"))
    assert remembered.remembered("thing", lambda: {"number": 1}) == {"number": 1}


def test_the_catalogue_is_read_without_torch(place: Path) -> None:
    """The second `headway methods`, and every tab, in a process in which torch cannot be imported."""
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from headway.cli import completion, listing, main\n"
        "assert completion.methods('fedac')[0][0] == 'fedacg'\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(HEADWAY_CACHE=str(place / "cache"), PYTHONPATH=os.pathsep.join(sys.path)),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
