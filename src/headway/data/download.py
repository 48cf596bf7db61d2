"""Data sets from their publishers: resumed where a connection broke, checked, and put in place whole or not at all."""

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

from headway.errors import UserError, nearest

Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes that are here, and how many there will be (None where nobody says)."""

TIMEOUT = 30.0
ATTEMPTS = 4
"""Connections in a row that brought nothing, before a download is given up."""
PAUSE = 0.5
"""Seconds before the second attempt; doubled before each further one."""
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Published:
    """A file of a publisher, and where it goes under the data folder."""

    url: str
    path: str
    md5: str
    size: int
    holds: tuple[str, ...] = ()
    """For an archive: files it unpacks under the data folder. The archive itself is not kept."""
    sha256: str | None = None
    """None where nobody whom we can check has published one."""


def _idx(base: str, folder: str, sums: tuple[tuple[str, str, str, int], ...]) -> tuple[Published, ...]:
    return tuple(
        Published(f"{base}/{name}.gz", f"{folder}/{name}.gz", md5, size, sha256=sha256)
        for name, md5, sha256, size in sums
    )


PUBLISHED: dict[str, tuple[Published, ...]] = {
    "mnist": _idx(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "MNIST/raw",
        (
            (
                "train-images-idx3-ubyte",
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                9_912_422,
            ),
            (
                "train-labels-idx1-ubyte",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                28_881,
            ),
            (
                "t10k-images-idx3-ubyte",
                "9fb629c4189551a2d022fa330f9573f3",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                1_648_877,
            ),
            (
                "t10k-labels-idx1-ubyte",
                "ec29112dd5afa0611ce80d1b7f02629c",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                4_542,
            ),
        ),
    ),
    "fashion-mnist": _idx(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        "FashionMNIST/raw",
        (
            (
                "train-images-idx3-ubyte",
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                26_421_880,
            ),
            (
                "train-labels-idx1-ubyte",
                "25c81989df183df01b3e8a0aad5dffbe",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                29_515,
            ),
            (
                "t10k-images-idx3-ubyte",
                "bef4ecab320f06d8554ea6380940ec79",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                4_422_102,
            ),
            (
                "t10k-labels-idx1-ubyte",
                "bb300cfdad3c16e7a12a480ee83cd310",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                5_148,
            ),
        ),
    ),
    "cifar10": (
        Published(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",
            170_052_171,
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            holds=(
                *(f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)),
                "cifar-10-batches-bin/test_batch.bin",
                "cifar-10-batches-bin/batches.meta.txt",
            ),
        ),
    ),
    "cifar100": (
        Published(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",
            168_513_733,
            sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            holds=("cifar-100-binary/train.bin", "cifar-100-binary/test.bin", "cifar-100-binary/fine_label_names.txt"),
        ),
    ),
    "tiny-imagenet": (
        Published(
            "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "tiny-imagenet-200.zip",
            "90528d7ca1a48142e341f4ef8d21d0de",
            248_100_043,
            holds=("tiny-imagenet-200/val/val_annotations.txt", "tiny-imagenet-200/wnids.txt"),
        ),
    ),
}
"""MD5 as the publishers or torchvision give it; SHA-256, of files of the same sizes, as TensorFlow Datasets lists it.

Fashion-MNIST's bucket speaks no https: its files are also in the publisher's repository.
"""

_LEAF = "make it with LEAF (github.com/TalwalkarLab/leaf, data/{name}) and put data/train and data/test in {name}/"
BY_HAND: dict[str, str] = {
    "femnist": _LEAF.format(name="femnist"),
    "shakespeare": _LEAF.format(name="shakespeare"),
    "celeba": _LEAF.format(name="celeba")
    + " and the images of CelebA (mmlab.ie.cuhk.edu.hk/projects/CelebA.html) in celeba/raw/img_align_celeba/",
}
"""What has no one file with a published sum: how to come by it."""


def hint(name: str, *, again: bool = False) -> str:
    """What to do about a file of a data set that is missing or, with `again`, damaged; nothing where we do not know."""
    if name in PUBLISHED:
        return f"; {'delete it, then ' if again else ''}'headway data get {name}' downloads it"
    return f"; {BY_HAND[name]} of the data folder" if name in BY_HAND else ""


# ── one file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Broken(Exception):
    """The connection ended before the file did."""


def _length(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


@contextmanager
def _opened(part: Path, mode: str) -> Iterator[Callable[[bytes], None]]:
    """Writing to a file, with its own error, so that it is not taken for one of the network's."""

    def write(chunk: bytes) -> None:
        try:
            file.write(chunk)
        except OSError as fault:
            raise _unwritable(part, fault) from None

    try:
        file = part.open(mode, buffering=0)
    except OSError as fault:
        raise _unwritable(part, fault) from None
    with file:
        yield write


def _unwritable(path: Path, fault: OSError) -> UserError:
    return UserError(f"{path} cannot be written: {fault.strerror or fault}")


def _receive(url: str, part: Path, size: int | None, progress: Callable[[int, int | None], None]) -> None:
    """One connection: what is missing of `part` where the server can start in the middle, else the whole file."""
    here = _length(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={here}-"} if here else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if url.startswith("https:") and not answer.url.startswith("https:"):
            raise UserError(f"{url} leads to {answer.url}, which anybody on the way could change; it is not fetched")
        resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {here}-")
        if answer.status == 206 and not resumed:
            part.unlink()
            raise _Broken("the server answered with another part of the file")
        here = here if resumed else 0
        coming = answer.headers.get("Content-Length")
        total = here + int(coming) if coming and coming.isdigit() else size
        with _opened(part, "ab" if resumed else "wb") as write:
            while chunk := answer.read(_CHUNK):
                write(chunk)
                here += len(chunk)
                progress(here, total)
                if size is not None and here > size:
                    return
    if total is not None and here < total:
        raise _Broken(f"the connection ended after {here:,} of {total:,} bytes")


def _hopeless(fault: Exception) -> bool:
    """A refusal that another attempt cannot change."""
    if isinstance(fault, urllib.error.HTTPError):
        return 400 <= fault.code < 500 and fault.code not in (408, 416, 429)
    return isinstance(fault, urllib.error.URLError) and isinstance(fault.reason, socket.gaierror)


def _cause(fault: Exception) -> str:
    if isinstance(fault, urllib.error.HTTPError):
        return f"the server answers {fault.code} {fault.reason}"
    return str(fault.reason if isinstance(fault, urllib.error.URLError) else fault or type(fault).__name__)


def _received(url: str, part: Path, size: int | None, progress: Callable[[int, int | None], None]) -> None:
    """`part` whole, over as many connections as it takes."""
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


def fetch(
    url: str,
    target: Path,
    *,
    md5: str | None = None,
    sha256: str | None = None,
    size: int | None = None,
    progress: Progress | None = None,
) -> None:
    """`target` from an address. It appears when it is whole and its sums are right; until then there is `target.part`.

    A broken connection is resumed, also by a later call. What has a wrong sum is deleted; where it began with the
    remains of an earlier call, the file is first fetched anew.
    """
    sums = {kind: wanted.lower() for kind, wanted in (("sha256", sha256), ("md5", md5)) if wanted}
    assert sums, "a download without a sum cannot be told from a broken one"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"'{url}' is no http or https address")
    part = target.with_name(target.name + ".part")

    def tell(here: int, total: int | None) -> None:
        if progress is not None:
            progress(target.name, here, total)

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for remains in (True, False):
            remains = remains and _length(part) > 0
            _received(url, part, size, tell)
            sums_found = ((kind, _sum(part, kind)) for kind in sums)
            kind, found = next(((kind, found) for kind, found in sums_found if found != sums[kind]), ("", ""))
            if not kind:
                os.replace(part, target)
                return
            length = _length(part)
            part.unlink()
            if not remains:
                break
    except OSError as fault:
        raise _unwritable(target, fault) from None
    raise UserError(
        f"{url} is not the file it should be and was deleted: {kind} {found} of {length:,} bytes, expected {sums[kind]}"
    )


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
    """The archive's files under `folder`, moved there when all are unpacked, and those in `holds` last."""
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
    """A file that is there, packed or unpacked, is left alone."""
    if file.holds:
        return all((folder / name).is_file() for name in file.holds)
    return (folder / file.path).is_file() or (folder / file.path.removesuffix(".gz")).is_file()


def get(name: str, folder: Path, progress: Progress | None = None) -> list[Path]:
    """Downloads what is missing of a data set into the data folder; the files that are there now."""
    if name not in PUBLISHED:
        if name in BY_HAND:
            raise UserError(f"'{name}' has no one file to download: {BY_HAND[name]} of {folder}")
        raise UserError(
            f"there is nothing to download for '{name}'{nearest(name, PUBLISHED)} (known: {', '.join(PUBLISHED)})"
        )
    for file in PUBLISHED[name]:
        if _there(file, folder):
            continue
        target = folder / file.path
        kind, wanted = ("sha256", file.sha256) if file.sha256 else ("md5", file.md5)
        if not target.is_file() or _sum(target, kind) != wanted:
            try:
                fetch(file.url, target, md5=file.md5, sha256=file.sha256, size=file.size, progress=progress)
            except UserError as fault:
                raise UserError(f"{fault}; by hand: {_by_hand(name, folder)}") from None
        if file.holds:
            _unpack(target, folder, file.holds)
            target.unlink()
    return [folder / path for file in PUBLISHED[name] for path in file.holds or (file.path,)]


def _by_hand(name: str, folder: Path) -> str:
    """Which files go where."""
    files = PUBLISHED[name]
    if files[0].holds:
        return f"unpack {files[0].url} in {folder}"
    base = files[0].url.rpartition("/")[0]
    names = ", ".join(Path(file.path).name for file in files)
    return f"put {names} of {base} in {(folder / files[0].path).parent}"
