"""Downloads against a server on this machine: resumed, checked, and never half-written under the final name."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import io
import socket
import tarfile
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from headway.cli.main import app
from headway.data import download
from headway.data.download import fetch, get
from headway.data.published import BY_HAND, PUBLISHED, Published, hint
from headway.data.sources import SOURCES, load
from headway.errors import UserError

CONTENT = np.random.default_rng(0).bytes(1_000_000)


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@dataclass
class Server:
    """Files by path, and how badly they are served."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    """For each answer in turn, after how many bytes the connection breaks; afterwards it holds."""
    ranges: bool = True
    lengths: bool = True
    wrong_start: bool = False
    faults: list[int] = field(default_factory=list)
    """For each answer in turn, a status in place of the file; 0: the file."""
    asked: list[str | None] = field(default_factory=list)
    """The range of each request."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    served = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.close_connection = True
            asked = self.headers.get("Range")
            served.asked.append(asked)
            fault = served.faults.pop(0) if served.faults else 0
            content = served.files.get(self.path)
            if content is None or fault:
                self.send_error(fault or 404)
                return
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and served.ranges else 0
            if start and start >= len(content):
                self.send_error(416)
                return
            if served.wrong_start and start:
                start -= 1
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if served.lengths:
                self.send_header("Content-Length", str(len(content) - start))
            self.send_header("Connection", "close")
            self.end_headers()
            stop = start + served.breaks.pop(0) if served.breaks else len(content)
            self.wfile.write(content[start:stop])

    monkeypatch.setattr(download, "PAUSE", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        served.url = f"http://127.0.0.1:{listening.server_port}"
        served.files["/set.bin"] = CONTENT
        try:
            yield served
        finally:
            listening.shutdown()
            thread.join()


def inside(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class TestFetch:
    def test_a_whole_file_with_its_progress(self, server: Server, tmp_path: Path) -> None:
        told: list[tuple[str, int, int | None]] = []
        target = tmp_path / "deep" / "set.bin"
        fetch(
            f"{server.url}/set.bin",
            target,
            md5=md5(CONTENT),
            size=len(CONTENT),
            progress=lambda *seen: told.append(seen),
        )
        assert target.read_bytes() == CONTENT
        assert inside(tmp_path) == ["deep/set.bin"]
        assert told[-1] == ("set.bin", len(CONTENT), len(CONTENT))
        assert [here for _, here, _ in told] == sorted(here for _, here, _ in told)

    def test_a_sum_of_sha256(self, server: Server, tmp_path: Path) -> None:
        fetch(f"{server.url}/set.bin", tmp_path / "set.bin", sha256=hashlib.sha256(CONTENT).hexdigest().upper())
        assert (tmp_path / "set.bin").read_bytes() == CONTENT

    def test_both_sums_must_be_right(self, server: Server, tmp_path: Path) -> None:
        """A file made to have the MD5 of another does not have its SHA-256."""
        right = {"md5": md5(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
        for kind in right:
            with pytest.raises(UserError, match=rf"was deleted: {kind} {right[kind]} of"):
                fetch(f"{server.url}/set.bin", tmp_path / "set.bin", **{**right, kind: "0" * len(right[kind])})
            assert inside(tmp_path) == []
        fetch(f"{server.url}/set.bin", tmp_path / "set.bin", **right)
        assert inside(tmp_path) == ["set.bin"]

    def test_https_does_not_lead_to_http(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Led(io.BytesIO):
            url, status, headers = "http://example.org/set.bin", 200, {"Content-Length": "3"}

        monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: Led(b"any"))
        with pytest.raises(UserError, match=r"https://\S+ leads to http://\S+, which anybody on the way could change"):
            fetch("https://example.org/set.bin", tmp_path / "set.bin", md5=md5(b"any"))
        assert inside(tmp_path) == []

    @pytest.mark.parametrize("size", [None, len(CONTENT)])
    def test_a_broken_connection_is_resumed_where_it_broke(
        self, server: Server, tmp_path: Path, size: int | None
    ) -> None:
        server.breaks = [300_000, 0, 200_000]
        fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5=md5(CONTENT), size=size)
        assert (tmp_path / "set.bin").read_bytes() == CONTENT
        assert server.asked == [None, "bytes=300000-", "bytes=300000-", "bytes=500000-"]
        assert inside(tmp_path) == ["set.bin"]

    def test_a_later_call_resumes_an_earlier_one(self, server: Server, tmp_path: Path) -> None:
        server.breaks = [400_000, *[0] * download.ATTEMPTS]
        with pytest.raises(UserError, match=r"the connection ended after 400,000 of 1,000,000 bytes.*will be resumed"):
            fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5=md5(CONTENT))
        assert inside(tmp_path) == ["set.bin.part"]
        server.asked.clear()
        fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5=md5(CONTENT))
        assert server.asked == ["bytes=400000-"]
        assert inside(tmp_path) == ["set.bin"]

    def test_a_server_that_cannot_start_in_the_middle_sends_all_again(self, server: Server, tmp_path: Path) -> None:
        server.ranges, server.breaks = False, [600_000, 10]
        fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5=md5(CONTENT))
        assert (tmp_path / "set.bin").read_bytes() == CONTENT

    def test_a_server_that_sends_another_part_is_asked_for_all(self, server: Server, tmp_path: Path) -> None:
        server.wrong_start, server.breaks = True, [600_000]
        fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5=md5(CONTENT))
        assert server.asked == [None, "bytes=600000-", None]

    def test_a_server_that_does_not_say_how_long_the_file_is(self, server: Server, tmp_path: Path) -> None:
        server.lengths, server.breaks = False, [600_000]
        fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5=md5(CONTENT), size=len(CONTENT))
        assert (tmp_path / "set.bin").read_bytes() == CONTENT

    def test_a_wrong_sum_is_refused_and_nothing_is_left(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "set.bin").write_bytes(b"an older one")
        with pytest.raises(
            UserError, match=rf"not the file it should be and was deleted: md5 {md5(CONTENT)} of 1,000,000"
        ):
            fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5=md5(b"another"))
        assert inside(tmp_path) == ["set.bin"]
        assert (tmp_path / "set.bin").read_bytes() == b"an older one"

    @pytest.mark.parametrize("size", [10, 2_000_000])
    def test_a_file_of_another_size_is_refused(self, server: Server, tmp_path: Path, size: int) -> None:
        with pytest.raises(UserError, match="not the file it should be"):
            fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5=md5(b"another"), size=size)
        assert inside(tmp_path) == []

    @pytest.mark.parametrize("remains", [b"of another file", CONTENT + b"and more", CONTENT, b"x" * len(CONTENT)])
    @pytest.mark.parametrize("size", [None, len(CONTENT)])
    def test_remains_of_another_file_do_no_harm(
        self, server: Server, tmp_path: Path, remains: bytes, size: int | None
    ) -> None:
        (tmp_path / "set.bin.part").write_bytes(remains)
        fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5=md5(CONTENT), size=size)
        assert (tmp_path / "set.bin").read_bytes() == CONTENT
        assert inside(tmp_path) == ["set.bin"]

    def test_what_is_not_there_is_refused_at_once(self, server: Server, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"/none\.bin cannot be downloaded: the server answers 404 Not Found$"):
            fetch(f"{server.url}/none.bin", tmp_path / "none.bin", md5="0" * 32)
        assert len(server.asked) == 1
        assert inside(tmp_path) == []

    def test_a_busy_server_is_asked_again(self, server: Server, tmp_path: Path) -> None:
        server.faults = [503, 429, 0]
        fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5=md5(CONTENT))
        server.faults = [500] * 10
        with pytest.raises(UserError, match="the server answers 500"):
            fetch(f"{server.url}/set.bin", tmp_path / "again.bin", md5=md5(CONTENT))
        assert inside(tmp_path) == ["set.bin"]

    def test_nobody_listens(self, server: Server, tmp_path: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with pytest.raises(UserError, match=r"cannot be downloaded: .*refused"):
            fetch(f"http://127.0.0.1:{port}/set.bin", tmp_path / "set.bin", md5=md5(CONTENT))
        assert inside(tmp_path) == []

    @pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org/x", "set.bin"])
    def test_other_addresses_are_refused(self, tmp_path: Path, url: str) -> None:
        with pytest.raises(UserError, match="not an http or https address"):
            fetch(url, tmp_path / "set.bin", md5="0" * 32)

    def test_a_folder_that_cannot_be_written_is_named(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(UserError, match=r"set\.bin cannot be written"):
            fetch(f"{server.url}/set.bin", tmp_path / "file" / "set.bin", md5=md5(CONTENT))
        (tmp_path / "set.bin.part").mkdir()
        with pytest.raises(UserError, match=r"set\.bin\.part cannot be written"):
            fetch(f"{server.url}/set.bin", tmp_path / "set.bin", md5=md5(CONTENT))


# ── data sets ────────────────────────────────────────────────────────────────────────────────────────────────────────


def tape(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, aim in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, aim
            archive.addfile(member)
    return packed.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


@pytest.fixture
def publisher(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The sets `plain` (two files), `tape` and `zip` on this machine."""
    server.files |= {"/a.gz": b"first", "/b.gz": b"second"}
    server.files["/set.tar.gz"] = tape(
        {"set/one.bin": b"1" * 5000, "./set/two.bin": b"22"}, {"set/link": "/etc/passwd"}
    )
    server.files["/set.zip"] = zipped({"zipped/list.txt": b"list", "zipped/x/y.txt": b"y", "zipped/empty/": b""})

    def published(path: str, place: str, holds: tuple[str, ...] = ()) -> Published:
        content = server.files[path]
        return Published(server.url + path, place, md5(content), len(content), holds)

    sets = {
        "plain": (published("/a.gz", "Plain/raw/a.gz"), published("/b.gz", "Plain/raw/b.gz")),
        "tape": (published("/set.tar.gz", "set.tar.gz", ("set/one.bin", "set/two.bin")),),
        "zip": (published("/set.zip", "set.zip", ("zipped/list.txt",)),),
    }
    monkeypatch.setattr(download, "PUBLISHED", sets)
    return server


class TestGet:
    def test_files_are_put_where_they_are_read(self, publisher: Server, tmp_path: Path) -> None:
        names: set[str] = set()
        found = get("plain", tmp_path / "new", lambda name, here, total: names.add(name))
        assert found == [tmp_path / "new/Plain/raw/a.gz", tmp_path / "new/Plain/raw/b.gz"]
        assert [path.read_bytes() for path in found] == [b"first", b"second"]
        assert names == {"a.gz", "b.gz"}

    @pytest.mark.parametrize("there", ["a.gz", "a"])
    def test_what_is_there_is_left_alone(self, publisher: Server, tmp_path: Path, there: str) -> None:
        (tmp_path / "Plain/raw").mkdir(parents=True)
        (tmp_path / "Plain/raw" / there).write_bytes(b"mine")
        get("plain", tmp_path)
        get("plain", tmp_path)
        assert len(publisher.asked) == 1
        assert (tmp_path / "Plain/raw" / there).read_bytes() == b"mine"
        assert inside(tmp_path) == sorted(["Plain/raw/b.gz", f"Plain/raw/{there}"])

    def test_a_strong_sum_counts(self, publisher: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of a file to fetch and of an archive that is there."""
        of = download.PUBLISHED["tape"][0]
        monkeypatch.setitem(download.PUBLISHED, "tape", (dataclasses.replace(of, sha256="0" * 64),))
        (tmp_path / "set.tar.gz").write_bytes(publisher.files["/set.tar.gz"])
        with pytest.raises(UserError, match="was deleted: sha256 "):
            get("tape", tmp_path)
        assert publisher.asked == [None]

    def test_archives_are_unpacked_and_not_kept(self, publisher: Server, tmp_path: Path) -> None:
        get("tape", tmp_path)
        get("zip", tmp_path)
        assert inside(tmp_path) == ["set/one.bin", "set/two.bin", "zipped/list.txt", "zipped/x/y.txt"]
        assert (tmp_path / "set/one.bin").read_bytes() == b"1" * 5000
        get("tape", tmp_path)
        assert len(publisher.asked) == 2
        (tmp_path / "set/one.bin").unlink()
        get("tape", tmp_path)
        assert (tmp_path / "set/one.bin").read_bytes() == b"1" * 5000

    def test_an_archive_that_is_there_is_used(self, publisher: Server, tmp_path: Path) -> None:
        (tmp_path / "set.tar.gz").write_bytes(publisher.files["/set.tar.gz"])
        get("tape", tmp_path)
        assert publisher.asked == []
        assert inside(tmp_path) == ["set/one.bin", "set/two.bin"]

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (tape({"set/one.bin": b"1"}), r"does not hold set/two\.bin"),
            (tape({"set/one.bin": b"1", "../two.bin": b"2"}), r"is refused: it holds '\.\./two\.bin'"),
            (tape({"/tmp/two.bin": b"1"}), "leads out of the folder"),
            (tape({"set/one.bin": b"1" * 9999, "set/two.bin": b"2"})[:60], "cannot be unpacked"),
            (b"no archive", "cannot be unpacked"),
        ],
        ids=["one file missing", "a step up", "an absolute path", "cut short", "no archive"],
    )
    def test_an_archive_of_something_else_leaves_nothing(
        self, publisher: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
    ) -> None:
        publisher.files["/set.tar.gz"] = content
        of = download.PUBLISHED["tape"][0]
        false = Published(of.url, of.path, md5(content), len(content), of.holds)
        monkeypatch.setitem(download.PUBLISHED, "tape", (false,))
        with pytest.raises(UserError, match=words):
            get("tape", tmp_path / "in")
        assert inside(tmp_path) == ["in/set.tar.gz"], "the archive, which is what was asked for"

    def test_a_wrong_sum_says_what_to_do_by_hand(self, publisher: Server, tmp_path: Path) -> None:
        publisher.files["/b.gz"] = b"secund"
        with pytest.raises(UserError) as caught:
            get("plain", tmp_path)
        assert "not the file it should be" in str(caught.value)
        assert f"put a.gz, b.gz of {publisher.url} in {tmp_path / 'Plain' / 'raw'}" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert inside(tmp_path) == ["Plain/raw/a.gz"]

    @pytest.mark.parametrize("name", PUBLISHED)
    def test_without_a_network_the_error_says_which_files_go_where(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def nobody(*_: Any, **__: Any) -> None:
            raise urllib.request.URLError(socket.gaierror(-3, "Temporary failure in name resolution"))

        monkeypatch.setattr(urllib.request, "urlopen", nobody)
        with pytest.raises(UserError) as caught:
            get(name, tmp_path)
        message = str(caught.value)
        assert "name resolution" in message
        assert "\n" not in message
        of = PUBLISHED[name]
        for file in of:
            assert Path(file.path).name in message
        assert str(tmp_path if of[0].holds else (tmp_path / of[0].path).parent) in message
        assert inside(tmp_path) == []

    def test_what_cannot_be_downloaded_is_explained(self, tmp_path: Path) -> None:
        for name in BY_HAND:
            with pytest.raises(UserError, match=rf"'{name}' has no one file to download: make it with LEAF"):
                get(name, tmp_path)
        with pytest.raises(UserError, match=r"nothing to download for 'minst'; did you mean 'mnist'\?"):
            get("minst", tmp_path)


class TestRegistry:
    def test_only_known_sources_are_published_and_hinted_at(self) -> None:
        assert set(PUBLISHED) | set(BY_HAND) <= set(SOURCES)
        assert not set(PUBLISHED) & set(BY_HAND)
        assert hint("fashion") == ""
        assert hint("mnist") == "; 'headway data get mnist' downloads it"

    @pytest.mark.parametrize("name", PUBLISHED)
    def test_files_go_where_the_readers_look(self, name: str, tmp_path: Path) -> None:
        """The path that a reader misses first is one that a download would fill."""
        with pytest.raises(UserError, match="is missing") as caught:
            load(name, str(tmp_path))
        folders = {tmp_path / PUBLISHED[name][0].path, *(tmp_path / path for path in PUBLISHED[name][0].holds)}
        assert any(str(path.parent) in str(caught.value) for path in folders if path.parent != tmp_path)

    def test_all_but_one_have_a_strong_sum(self) -> None:
        """Nobody has published one of Tiny-ImageNet."""
        assert {name for name, files in PUBLISHED.items() if any(file.sha256 is None for file in files)} == {
            "tiny-imagenet"
        }

    @pytest.mark.parametrize(
        "file", [file for files in PUBLISHED.values() for file in files], ids=lambda file: file.url
    )
    def test_sums_are_sums(self, file: Published) -> None:
        assert len(bytes.fromhex(file.md5)) == 16
        assert file.sha256 is None or len(bytes.fromhex(file.sha256)) == 32
        assert file.url.startswith("https://")
        assert file.size > 1000
        assert file.url.endswith(Path(file.path).name)


class TestCommand:
    """`headway data get`."""

    def test_it_makes_the_data_folder_and_says_where_the_files_are(self, publisher: Server, tmp_path: Path) -> None:
        answer = CliRunner().invoke(app, ["data", "get", "plain", "--data-dir", str(tmp_path / "new" / "data")])
        assert answer.exit_code == 0
        assert answer.stdout == f"plain is in {tmp_path / 'new/data/Plain/raw'}\n"
        assert answer.stderr == "", "no bar without a terminal"
        assert inside(tmp_path / "new/data") == ["Plain/raw/a.gz", "Plain/raw/b.gz"]

    def test_the_folder_of_the_environment_is_made_too(
        self, publisher: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADWAY_DATA", str(tmp_path / "new"))
        assert CliRunner().invoke(app, ["data", "get", "tape"]).exit_code == 0
        assert inside(tmp_path / "new") == ["set/one.bin", "set/two.bin"]

    def test_a_terminal_sees_how_far_it_is(
        self, publisher: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        answer = CliRunner().invoke(app, ["data", "get", "plain", "--data-dir", str(tmp_path)])
        for words in ("a.gz", "b.gz", "6/6 bytes"):
            assert words in answer.stderr

    def test_without_a_network_the_error_says_what_goes_where(self, publisher: Server, tmp_path: Path) -> None:
        del publisher.files["/b.gz"]
        answer = CliRunner().invoke(app, ["data", "get", "plain", "--data-dir", str(tmp_path)])
        assert isinstance(answer.exception, UserError)
        assert f"by hand: put a.gz, b.gz of {publisher.url} in {tmp_path / 'Plain/raw'}" in str(answer.exception)
