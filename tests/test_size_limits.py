"""Files that would hang a reader or fill the memory, and requests that would never end, are refused in one line."""

from __future__ import annotations

import gzip
import io
import os
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from headway.data import own_split, partition
from headway.data.partition import split
from headway.data.sources import files, load
from headway.data.sources.arrays import NEEDED
from headway.errors import UserError
from source_files import picture, refused_source

LABELS = np.arange(8) % 2


@contextmanager
def pipe(path: Path, content: str) -> Iterator[None]:
    """A pipe whose writer waits for a reader, so that who opens it gets the content and does not wait for ever."""
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(content))
    writer.start()
    try:
        yield
    finally:
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        writer.join()
        os.close(reader)


class TestPipes:
    def test_of_rows(self, tmp_path: Path) -> None:
        with (
            pipe(tmp_path / "rows.json", "[[0]]"),
            pytest.raises(UserError, match=r"^the partition file '.*rows\.json' is not a plain file$"),
        ):
            split(f"file:{tmp_path}/rows.json", LABELS, 0, 0)

    def test_of_a_device(self) -> None:
        with pytest.raises(UserError, match=r"'/dev/null' is not a plain file$"):
            split("file:/dev/null", LABELS, 0, 0)

    def test_of_a_data_set(self, tmp_path: Path) -> None:
        (tmp_path / "femnist/train").mkdir(parents=True)
        with pipe(tmp_path / "femnist/train/all.json", "{}"):
            refused_source("femnist", tmp_path, "all.json is not a plain file")

    def test_among_images(self, tmp_path: Path) -> None:
        for name in ("train/a", "train/b", "test/a", "test/b"):
            picture(tmp_path / name / "0.png")
        with pipe(tmp_path / "train/b/1.png", "no image"):
            refused_source(f"folder:{tmp_path}", None, "1.png is not a plain file")


def header(shape: tuple[int, ...], kind: str = "<f8") -> bytes:
    written = io.BytesIO()
    np.lib.format.write_array_header_1_0(written, {"descr": kind, "fortran_order": False, "shape": shape})
    return written.getvalue()


def archive(path: Path, **entries: bytes) -> str:
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in entries.items():
            packed.writestr(f"{name}.npy", content)
    return f"npz:{path}"


class TestArrays:
    @pytest.mark.parametrize("shape", [(10**13,), (2**40, 2**40), (10**6, 10**4)], ids=["long", "beyond", "80 GB"])
    def test_a_header_that_promises_more_than_there_is(self, tmp_path: Path, shape: tuple[int, ...]) -> None:
        name = archive(tmp_path / "own.npz", **dict.fromkeys(NEEDED, header(shape) + b"\0" * 64))
        refused_source(name, None, "own.npz cannot be read as NumPy arrays: a header promises an array of shape (")

    def test_a_header_of_one_array(self, tmp_path: Path) -> None:
        (tmp_path / "own.npz").write_bytes(header((10**13,)))
        refused_source(f"npz:{tmp_path}/own.npz", None, "a header promises an array of shape (10000000000000,)")

    def test_an_archive_that_unpacks_to_far_more(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a lower limit, so that the test has no gigabyte to make. Saved unpacked it is read."""
        monkeypatch.setattr(files, "FREELY", 1_000_000)
        arrays = {"x_train": np.zeros((1000, 200)), "y_train": np.arange(1000) % 2}
        arrays |= {"x_test": arrays["x_train"], "y_test": arrays["y_train"]}
        np.savez_compressed(tmp_path / "own.npz", **arrays)
        refused_source(
            f"npz:{tmp_path}/own.npz", None, "own.npz is refused: its ", "save it unpacked (np.savez, gunzip)"
        )
        np.savez(tmp_path / "own.npz", **arrays)
        assert load(f"npz:{tmp_path}/own.npz", None).train.x.shape == (1000, 200)

    def test_an_archive_with_a_password_or_of_another_kind(self, tmp_path: Path) -> None:
        whole = archive(tmp_path / "own.npz", x_train=header((1,)) + b"\0" * 8)
        raw = bytearray((tmp_path / "own.npz").read_bytes())
        for at, value in ((raw.index(b"PK\x01\x02") + 8, 1), (raw.index(b"PK\x01\x02") + 10, 99)):
            changed = bytearray(raw)
            changed[at] = value
            (tmp_path / "own.npz").write_bytes(changed)
            refused_source(whole, None, "own.npz cannot be read as NumPy arrays: ")

    @pytest.mark.parametrize("label", [10**9, 10**15])
    def test_labels_that_are_identifiers(self, tmp_path: Path, label: int) -> None:
        y = np.array([0, label])
        np.savez(tmp_path / "own.npz", x_train=np.zeros((2, 3)), y_train=y, x_test=np.zeros((2, 3)), y_test=y)
        refused_source(
            f"npz:{tmp_path}/own.npz", None, f"own.npz: label {label} is out of range; labels go from 0 to at most"
        )


class TestGzip:
    def idx(self, folder: Path, sizes: tuple[int, ...], content: bytes) -> None:
        raw = folder / "MNIST/raw"
        raw.mkdir(parents=True, exist_ok=True)
        head = bytes([0, 0, 8, len(sizes)]) + np.array(sizes, ">u4").tobytes()
        (raw / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + content))

    def test_a_file_that_unpacks_to_far_more(self, tmp_path: Path) -> None:
        """Its header says so; nothing of it is unpacked."""
        self.idx(tmp_path, (60_000, 2800, 2800), b"\0" * 100)
        refused_source(
            "mnist", tmp_path, "train-images-idx3-ubyte.gz is refused: its ", "unpack to 470,400,000,000, more than"
        )

    def test_a_file_that_unpacks_to_more_than_it_says(self, tmp_path: Path) -> None:
        """No more is unpacked than what was promised and one byte."""
        self.idx(tmp_path, (2, 2, 2), b"\0" * 1000)
        refused_source("mnist", tmp_path, "its header promises other sizes than its 25 bytes hold")

    def test_a_file_that_ends_too_early(self, tmp_path: Path) -> None:
        self.idx(tmp_path, (2, 2, 2), b"\0" * 7)
        refused_source("mnist", tmp_path, "its header promises other sizes than its 23 bytes hold")


class TestText:
    def test_deep_json(self, tmp_path: Path) -> None:
        (tmp_path / "femnist/train").mkdir(parents=True)
        (tmp_path / "femnist/train/all.json").write_text('{"users": ' + "[" * 200_000)
        refused_source("femnist", tmp_path, "all.json is not a complete JSON file")
        (tmp_path / "rows.json").write_text("[" * 200_000)
        with pytest.raises(UserError, match=r"rows\.json' cannot be read as JSON"):
            split(f"file:{tmp_path}/rows.json", LABELS, 0, 0)

    def test_files_that_are_too_long(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With lower limits, so that a fault of this test fills no memory."""
        (tmp_path / "shakespeare").mkdir()
        for module, path in ((files, tmp_path / "shakespeare/users.json"), (own_split, tmp_path / "rows.json")):
            path.write_text("[[0, 1]]")
            monkeypatch.setattr(module, "MOST_JSON", 7)
        refused_source("shakespeare", tmp_path, "users.json is refused: it has 8 bytes; a JSON file has at most 7")
        with pytest.raises(UserError, match=r"rows\.json' has 8 bytes; it may have at most 7$"):
            split(f"file:{tmp_path}/rows.json", LABELS, 0, 0)


class TestRequests:
    def test_a_dirichlet_split_among_very_many(self) -> None:
        labels = np.zeros(1_000_000, np.int64)
        with pytest.raises(
            UserError, match=r"^partition is 'dirichlet:0.3' with 1,000,000 clients .* draws 500,000,500,"
        ):
            split("dirichlet:0.3", labels, 1_000_000, 0)

    def test_a_limit_is_where_it_says(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(partition, "MOST_DRAWS", 8 * 5 // 2)
        assert len(split("dirichlet:1.0", LABELS, 4, 0)) == 4
        with pytest.raises(UserError, match="draws 24 numbers one after another, at most 20; give fewer --clients"):
            split("dirichlet:1.0", LABELS, 5, 0)

    def test_synthetic_users(self) -> None:
        refused_source("synthetic:1,1,1000000000", None, "there are at most 10,000,000 users")


def test_what_is_written_by_numpy_is_read_as_numpy_reads_it(tmp_path: Path) -> None:
    """Of every type and order, compressed or not, also an empty one and one without dimensions."""
    arrays = {
        "bytes": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(3, dtype=">i4"),
        "names": np.array(["eve", "bob"]),
        "empty": np.zeros((0, 5), np.float32),
        "single": np.array(3.5),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "own.npz", **arrays)
        found = files.read_arrays(tmp_path / "own.npz")
        assert list(found) == list(arrays)
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            assert np.array_equal(found[name], array)
    np.save(tmp_path / "own.npy", arrays["columns"])
    assert np.array_equal(files.read_arrays(tmp_path / "own.npy")[""], arrays["columns"])
