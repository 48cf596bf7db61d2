"""What an operator sees of a run, and what is refused before anything starts."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from command_line import called, one_line
from headway.deploy import commands, operate
from headway.deploy.commands import Address
from headway.deploy.starts import Start, Starts
from headway.deploy.terms import Terms
from headway.errors import UserError


def status_of(folder: Path) -> None:
    site = {
        "name": "<a>",
        "index": 0,
        "node": "1",
        "last_seen": None,
        "counted": 2,
        "lost": 1,
        "late": 0,
        "code": "LOST",
    }
    about = {"round": 3, "rounds": 9, "void": 1, "waiting_for": [], "updated": 0.0, "sites": [site]}
    folder.mkdir()
    (folder / "status.json").write_text(json.dumps(about), encoding="utf-8")


def test_watching_ends_where_a_run_was_stopped_and_its_page_rests(tmp_path: Path) -> None:
    status_of(tmp_path / "run")
    called(tmp_path, "deploy status run --page page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(one in page for one in ('http-equiv="refresh"', "color-scheme: light dark", "&lt;a&gt;"))
    operate.mark_stopped(tmp_path / "run")
    called(tmp_path, "deploy status run --watch --page page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'http-equiv="refresh"' not in page
    assert "round 3 of 9, 1 void, stopped" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [("--json --watch", "leave out --watch"), ("--page none/page.html", "the folder none is missing")],
)
def test_what_status_cannot_do_is_refused(words: str, said: str, tmp_path: Path) -> None:
    status_of(tmp_path / "run")
    assert said in one_line(called(tmp_path, f"deploy status run {words}"))


def test_a_start_that_the_server_never_got_is_forgotten(tmp_path: Path) -> None:
    start = Start("ab", "ward", str(tmp_path / "run"), Terms(1))
    operator = operate.Operator(Address("127.0.0.1", 1), tmp_path / "ca.crt", tmp_path)
    with pytest.raises(UserError, match="not the state folder of a server"):
        operator.submit(start)
    assert Starts(tmp_path).latest(tmp_path / "run") is None
    assert list((tmp_path / "starts").iterdir()) == []


def test_an_address_in_use_is_refused() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = Address("127.0.0.1", other.getsockname()[1])
        with pytest.raises(UserError, match=f"--address is {address}, where nothing can listen"):
            commands.check_free("--address", address)
    commands.check_free("--address", address)
