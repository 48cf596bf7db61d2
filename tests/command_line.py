"""The command `headway`: inside this process, which is quick, and in a separate one, as at a shell."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from typer.testing import CliRunner

from headway.cli import main

Answer = subprocess.CompletedProcess[str]


def environment(**more: str) -> dict[str, str]:
    """That of a user who has set nothing."""
    kept = {name: value for name, value in os.environ.items() if name not in ("HEADWAY_DATA", "COLUMNS")}
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", **more}


def shell(folder: Path, command: str, **more: str) -> Answer:
    """The answer of a process that was started in a folder; `more`: variables of its environment."""
    return subprocess.run(
        [sys.executable, "-m", "headway", *shlex.split(command)],
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=300,
        check=False,
    )


@contextlib.contextmanager
def _captured(encoding: str) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """What is written on standard output and standard error, which are as pipes would be."""
    out, err = io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(pipe, encoding=encoding, write_through=True) for pipe in (out, err)]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        yield out, err


def called(folder: Path, command: str, encoding: str = "utf-8", **more: str) -> Answer:
    """The answer of the whole program, run in this process as `shell` runs it in another."""
    arguments, threads = ["headway", *shlex.split(command)], torch.get_num_threads()
    known = mock.patch.dict(os.environ, environment(**more), clear=True)
    with contextlib.chdir(folder), known, mock.patch.object(sys, "argv", arguments), _captured(encoding) as (out, err):
        torch.set_num_threads(1)
        try:
            with pytest.raises(SystemExit) as end:
                main.main()
        finally:
            torch.set_num_threads(threads)
        said, complained = (pipe.getvalue().decode(encoding) for pipe in (out, err))
    return Answer(arguments, int(end.value.code or 0), said, complained)


def printed(*arguments: str) -> str:
    """What a command that succeeds prints on standard output, which is a pipe; its exceptions are raised."""
    answer = CliRunner().invoke(main.app, list(arguments), catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def one_line(answer: Answer, code: int = 2) -> str:
    """The only line of a refusal, and of a failure where another exit code is given."""
    assert answer.returncode == code, answer.stderr
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1, answer.stderr
    assert answer.stderr.startswith("headway: ")
    assert "Traceback" not in answer.stderr
    return answer.stderr.removeprefix("headway: ").strip()


def commands(text: str) -> list[str]:
    """The lines of a page that call Headway."""
    return re.findall(r"^headway .+$", text, re.MULTILINE)
