"""Downloads of data sets from their publishers.

A download is resumed where a connection broke, checked against its sums, and put in place whole or not at all.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import socket
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from headway.data.published import BY_HAND, PUBLISHED, Published
from headway.errors import UserError, nearest

Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes received so far, and how many there will be (None where that is unknown)."""

TIMEOUT = 30.0
ATTEMPTS = 4
"""Connections in a row that bring nothing before a download is given up."""
PAUSE = 0.5
"""Seconds before the second attempt; doubled before each further one."""
_CHUNK = 1 << 18


# ── one file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Broken(Exception):
    """The connection ended before the file did."""


def _length(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


@contextmanager
def _opened(part: Path, resumed: bool) -> Iterator[Callable[[bytes], None]]:
    """A function that writes to the file, after what is there or anew.

    Its errors are `UserError`s, so they are not taken for the network's.
    """

    def write(chunk: bytes) -> None:
        try:
            file.write(chunk)
        except OSError as fault:
            raise _unwritable(part, fault) from None

    try:
        file = part.open("ab" if resumed else "wb", buffering=0)
    except OSError as fault:
        raise _unwritable(part, fault) from None
    with file:
        yield write


def _unwritable(path: Path, fault: OSError) -> UserError:
    return UserError(f"{path} cannot be written: {fault.strerror or fault}")


def _receive(url: str, part: Path, size: int | None, progress: Callable[[int, int | None], None]) -> None:
    """Reads from one connection what `part` lacks, or the whole file where the server cannot start in the middle."""
    here = _length(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={here}-"} if here else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if url.startswith("https:") and not answer.url.startswith("https:"):
            raise UserError(f"{url} leads to {answer.url}, which anybody on the way could change; it is not fetched")
        resumed = _resumes(answer, part, here)
        here = here if resumed else 0
        total = _announced(answer, here, size)
        with _opened(part, resumed) as write:
            while chunk := answer.read(_CHUNK):
                write(chunk)
                here += len(chunk)
                progress(here, total)
                if size is not None and here > size:
                    return
    if total is not None and here < total:
        raise _Broken(f"the connection ended after {here:,} of {total:,} bytes")


def _announced(answer: http.client.HTTPResponse, here: int, size: int | None) -> int | None:
    """How many bytes the file will have: as the server says, else `size`."""
    coming = answer.headers.get("Content-Length")
    return here + int(coming) if coming and coming.isdigit() else size


def _resumes(answer: http.client.HTTPResponse, part: Path, here: int) -> bool:
    """Whether the answer goes on from byte `here`; another part of the file is refused."""
    resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {here}-")
    if answer.status == 206 and not resumed:
        part.unlink()
        raise _Broken("the server answered with another part of the file")
    return resumed


def _hopeless(fault: Exception) -> bool:
    """Whether another attempt would fail in the same way."""
    if isinstance(fault, urllib.error.HTTPError):
        return 400 <= fault.code < 500 and fault.code not in (408, 416, 429)
    return isinstance(fault, urllib.error.URLError) and isinstance(fault.reason, socket.gaierror)


def _cause(fault: Exception) -> str:
    if isinstance(fault, urllib.error.HTTPError):
        return f"the server answers {fault.code} {fault.reason}"
    return str(fault.reason if isinstance(fault, urllib.error.URLError) else fault or type(fault).__name__)


def _received(url: str, part: Path, size: int | None, progress: Callable[[int, int | None], None]) -> None:
    """Reads the file into `part` until it is whole, over as many connections as that takes."""
    vain = 0
    while size is None or _length(part) != size:
        before = _length(part)
        try:
            _receive(url, part, size, progress)
            return
        except (_Broken, OSError, http.client.HTTPException) as fault:
            if isinstance(fault, urllib.error.HTTPError):
                fault.close()
                if fault.code == 416:  # nothing after what is here, which may be of another file
                    part.unlink(missing_ok=True)
            vain = vain + 1 if _length(part) <= before else 0
            if vain >= ATTEMPTS or _hopeless(fault):
                left = f"; what came so far is kept in {part} and will be resumed" if _length(part) else ""
                raise UserError(f"{url} cannot be downloaded: {_cause(fault)}{left}") from None
        time.sleep(PAUSE * 2**vain)


def _sum(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


@dataclass(frozen=True)
class _File:
    """A file on a server, and what is known of it."""

    url: str
    size: int | None
    sums: dict[str, str]
    """Checksums of the file by kind, `sha256` or `md5`."""

    def wrong_sum(self, part: Path) -> str | None:
        """The first sum of a received file that is not the one it should be, in words; None where all are right."""
        found = ((kind, wanted, _sum(part, kind)) for kind, wanted in self.sums.items())
        length = f"{_length(part):,} bytes"
        return next(
            (f"{kind} {own} of {length}, expected {wanted}" for kind, wanted, own in found if own != wanted), None
        )


def fetch(
    url: str,
    target: Path,
    *,
    md5: str | None = None,
    sha256: str | None = None,
    size: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Downloads an address to `target`, which appears when it is whole and its sums are right.

    Until then there is `target.part`: a broken download is resumed from it, also by a later call. A file with a wrong
    sum is deleted; one that began with the remains of an earlier call is fetched once more from its beginning.
    """
    sums = {kind: wanted.lower() for kind, wanted in (("sha256", sha256), ("md5", md5)) if wanted}
    assert sums, "without a sum a broken download looks like a whole one"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"'{url}' is not an http or https address")
    part = target.with_name(target.name + ".part")

    def tell(here: int, total: int | None) -> None:
        if progress is not None:
            progress(target.name, here, total)

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch_checked(_File(url, size, sums), part, tell)
        os.replace(part, target)
    except OSError as fault:
        raise _unwritable(target, fault) from None


def _fetch_checked(file: _File, part: Path, progress: Callable[[int, int | None], None]) -> None:
    """Fetches a file whose sums are right into `part`; there may be remains of an earlier call."""
    remains = _length(part) > 0
    _received(file.url, part, file.size, progress)
    wrong = file.wrong_sum(part)
    if wrong is None:
        return
    part.unlink()
    if remains:
        _fetch_checked(file, part, progress)
        return
    raise UserError(f"{file.url} is not the file it should be and was deleted: {wrong}")


# ── a data set ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _members(archive: Path) -> Iterator[tuple[PurePosixPath, IO[bytes]]]:
    """Name and content of each plain file of an archive."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if not entry.is_dir():
                    with packed.open(entry) as content:
                        yield PurePosixPath(entry.filename), content
    else:
        with tarfile.open(archive) as tape:
            for member in tape:
                held = tape.extractfile(member) if member.isfile() else None
                if held is not None:
                    with closing(held):
                        yield PurePosixPath(member.name), held


def _unpack(archive: Path, folder: Path, holds: tuple[str, ...]) -> None:
    """Unpacks an archive into `folder`: all files are unpacked beside it first, then moved, those of `holds` last."""
    aside = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder))
    try:
        names = []
        for path, content in _members(archive):
            if path.is_absolute() or ".." in path.parts:
                raise UserError(f"{archive} is refused: it holds '{path}', which leads out of the folder")
            name = str(path)
            place = aside / name
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as file:
                shutil.copyfileobj(content, file)
            names.append(name)
        if absent := set(holds) - set(names):
            raise UserError(f"{archive} does not hold {min(absent)}")
        for name in sorted(names, key=lambda name: name in holds):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(aside / name, folder / name)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as fault:
        raise UserError(f"{archive} cannot be unpacked: {fault}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _there(file: Published, folder: Path) -> bool:
    """Whether a published file is in the folder already, packed or unpacked."""
    if file.holds:
        return all((folder / name).is_file() for name in file.holds)
    return (folder / file.path).is_file() or (folder / file.path.removesuffix(".gz")).is_file()


def get(name: str, folder: Path, progress: Progress | None = None) -> list[Path]:
    """Downloads the files of a data set that the data folder lacks; returns the paths of all its files."""
    if name in BY_HAND and name not in PUBLISHED:
        raise UserError(f"'{name}' has no one file to download: {BY_HAND[name]} of {folder}")
    if name not in PUBLISHED:
        raise UserError(
            f"there is nothing to download for '{name}'{nearest(name, PUBLISHED)} (known: {', '.join(PUBLISHED)})"
        )
    for file in PUBLISHED[name]:
        if _there(file, folder):
            continue
        target = folder / file.path
        try:
            _fetch_published(file, target, progress)
        except UserError as fault:
            raise UserError(f"{fault}; by hand: {_by_hand(name, folder)}") from None
        if file.holds:
            _unpack(target, folder, file.holds)
            target.unlink()
    return [folder / path for file in PUBLISHED[name] for path in file.brings]


def _fetch_published(file: Published, target: Path, progress: Progress | None) -> None:
    """Downloads a published file, unless it is whole at its place."""
    kind, wanted = ("sha256", file.sha256) if file.sha256 else ("md5", file.md5)
    if not target.is_file() or _sum(target, kind) != wanted:
        fetch(file.url, target, md5=file.md5, sha256=file.sha256, size=file.size, progress=progress)


def _by_hand(name: str, folder: Path) -> str:
    """What to do without a network: which files go where."""
    files = PUBLISHED[name]
    if files[0].holds:
        return f"unpack {files[0].url} in {folder}"
    base = files[0].url.rpartition("/")[0]
    names = ", ".join(Path(file.path).name for file in files)
    return f"put {names} of {base} in {(folder / files[0].path).parent}"
