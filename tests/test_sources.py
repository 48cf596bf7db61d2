"""Every source reads its publisher's layout, and refuses what is missing, damaged or out of range in one line:
MNIST and CIFAR."""

from __future__ import annotations

import contextlib
import gzip
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.data.sources import PROFILES, SOURCES, Normalisation, load, pickled
from headway.data.sources.files import Damaged
from headway.data.sources.pickled import read_pickled
from headway.data.sources.source import statistics
from headway.errors import UserError
from source_files import DRAW, Spy, idx, owners, refused_source, same

# ── names and constants ──────────────────────────────────────────────────────────────────────────────────────────────


class TestNames:
    @pytest.mark.parametrize("name", [name for name, entry in SOURCES.items() if not entry.argument])
    def test_what_takes_no_argument_refuses_one(self, name: str) -> None:
        refused_source(f"{name}:7", None, f"data is '{name}:7'; write {name}")
        refused_source(f"{name}:", None, f"write {name}")

    @pytest.mark.parametrize("name", [name for name, entry in SOURCES.items() if entry.argument and not entry.optional])
    def test_what_takes_an_argument_asks_for_it(self, name: str) -> None:
        refused_source(name, None, f"write {name}:{SOURCES[name].argument}")
        refused_source(f"{name}:", None, f"write {name}:{SOURCES[name].argument}")

    @pytest.mark.parametrize(
        "name", ["mnist", "fashion-mnist", "cifar10", "cifar100", "tiny-imagenet", "femnist", "celeba", "shakespeare"]
    )
    def test_an_empty_data_folder_says_what_goes_where(self, name: str, tmp_path: Path) -> None:
        way = "github.com/TalwalkarLab/leaf" if name in ("femnist", "celeba", "shakespeare") else f"data get {name}"
        refused_source(name, tmp_path, str(tmp_path), "put", way)

    def test_profiles_have_the_constants_of_their_code(self, cifar: Path) -> None:
        """The programs of 2021 (FedAGM), 2024 (FedACG) and GradMA's of 2023 normalise images with these."""
        ten, hundred = load("cifar10", str(cifar)), load("cifar100", str(cifar))
        old = (0.2023, 0.1994, 0.2010)
        assert ten.normalisation() == Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
        assert ten.normalisation("agm21") == ten.normalisation("paper")
        assert ten.normalisation("acg24") == ten.normalisation("gradma-code") == Normalisation(ten.mean, old)
        assert hundred.normalisation("agm21") == Normalisation(ten.mean, old)
        assert hundred.normalisation("acg24").std == (0.2675, 0.2565, 0.2761)
        assert hundred.normalisation("gradma-code").mean == (0.50708, 0.48655, 0.44092)
        with pytest.raises(UserError, match="no profile 'acg42'; did you mean 'acg24'"):
            ten.normalisation("acg42")

    def test_a_source_without_other_constants_has_its_own_in_every_profile(self) -> None:
        found = load("fashion", None)
        assert {found.normalisation(profile) for profile in PROFILES} == {Normalisation((0.2860,), (0.3530,))}

    @settings(deadline=None, max_examples=60)
    @given(st.integers(1, 3), st.integers(1, 40), st.integers(0, 99))
    def test_statistics_are_those_of_numpy(self, channels: int, count: int, seed: int) -> None:
        images = np.random.default_rng(seed).integers(0, 256, (count, channels, 3, 2), np.uint8)
        found = statistics(images)
        assert found.mean == pytest.approx((images / 255).mean((0, 2, 3)))
        assert found.std == pytest.approx((images / 255).std((0, 2, 3)))


# ── MNIST ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """MNIST with 6 + 4 images, and the same as Fashion-MNIST."""
    for place in ("MNIST", "FashionMNIST"):
        raw = tmp_path / place / "raw"
        raw.mkdir(parents=True)
        for part, count in (("train", 6), ("t10k", 4)):
            (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(DRAW.integers(0, 256, (count, 28, 28))))
            (raw / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.arange(count))))
    return tmp_path


class TestMnist:
    def test_without_writers_nobody_owns_the_digits(self, digits: Path) -> None:
        found = load("mnist", str(digits))
        assert found.users is None
        assert found.train.x.shape == (6, 1, 28, 28)
        assert found.train.x.dtype == torch.uint8
        assert load("fashion-mnist", str(digits)).class_names[9] == "Ankle boot"

    def test_writers_of_both_sets_are_in_one_table(self, digits: Path) -> None:
        raw = digits / "MNIST" / "raw"
        np.save(raw / "train-writers.npy", np.array([9, 4, 9, 4, 30, 9], np.int16))
        np.save(raw / "t10k-writers.npy", np.array([2, 2, 100, 2], np.int16))
        found = load("mnist", str(digits))
        assert found.user_names == ("2", "4", "9", "30", "100")
        assert owners(found) == (["9", "4", "9", "4", "30", "9"], ["2", "2", "100", "2"])

    @pytest.mark.parametrize("writers", [np.arange(5), np.arange(6.0), np.zeros((6, 1), int)])
    def test_one_writer_for_each_image(self, digits: Path, writers: np.ndarray) -> None:
        np.save(digits / "MNIST/raw/train-writers.npy", writers)
        refused_source("mnist", digits, "train-writers.npy", "for each of the 6 images")

    def test_what_is_no_array_is_refused(self, digits: Path) -> None:
        for content in (b"junk", b"", pickle.dumps([1])):
            (digits / "MNIST/raw/train-writers.npy").write_bytes(content)
            refused_source("mnist", digits, "train-writers.npy cannot be read as NumPy arrays", "delete it")

    @pytest.mark.parametrize(
        ("part", "content", "words"),
        [
            ("train-labels-idx1-ubyte", idx(np.array([0, 1, 2, 3, 4, 10])), "label 10 is out of range"),
            ("train-labels-idx1-ubyte", idx(np.arange(5)), "6 samples and 5 labels"),
            ("train-labels-idx1-ubyte", idx(np.zeros((6, 1))), "2 dimensions; it must have 1"),
            ("train-images-idx3-ubyte", idx(np.zeros((6, 28, 27))), "(1, 28, 27), test samples (1, 28, 28)"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, digits: Path, part: str, content: bytes, words: str) -> None:
        (digits / "MNIST" / "raw" / part).write_bytes(content)
        refused_source("mnist", digits, words, str(digits / "MNIST"))


# ── CIFAR ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _python_2(value: Any) -> bytes:
    """A value as the cPickle of Python 2 writes it in protocol 2: the instructions of the publishers' own files."""
    match value:
        case dict():
            return b"}q\x01(" + b"".join(_python_2(part) for pair in value.items() for part in pair) + b"u"
        case list():
            return b"]q\x02(" + b"".join(_python_2(part) for part in value) + b"e"
        case str():
            raw = value.encode("latin-1")
            return (b"U" + bytes([len(raw)]) if len(raw) < 256 else b"T" + struct.pack("<i", len(raw))) + raw
        case int():
            return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)
        case np.ndarray():
            kind = b"cnumpy\ndtype\nq\x05U\x02u1K\x00K\x01\x87Rq\x06"
            kind += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
            shape = b"".join(_python_2(int(size)) for size in value.shape) + b"\x86"
            made = b"cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87R"
            return made + b"(K\x01" + shape + kind + b"\x89" + _python_2(value.tobytes().decode("latin-1")) + b"tb"
    raise AssertionError(value)


def python_2(value: Any) -> bytes:
    return b"\x80\x02" + _python_2(value) + b"."


COUNTS = {"data_batch_1": 4, "data_batch_2": 3, "data_batch_3": 1, "data_batch_4": 2, "data_batch_5": 2}


def batch(count: int, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pixels, classes and coarse classes."""
    y = DRAW.integers(0, classes, count)
    return DRAW.integers(0, 256, (count, 3072), np.uint8), y, y % 20


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    """Both sets in the binary layout, and beside it, in `python`, in the python layout."""
    places = {name: tmp_path / name for name in ("cifar-10-batches-bin", "cifar-100-binary")}
    places |= {name: tmp_path / "python" / name for name in ("cifar-10-batches-py", "cifar-100-python")}
    for place in places.values():
        place.mkdir(parents=True)
    for name, count in (COUNTS | {"test_batch": 5}).items():
        x, y, _ = batch(count, 10)
        rows = np.concatenate([y[:, None].astype(np.uint8), x], 1)
        (places["cifar-10-batches-bin"] / f"{name}.bin").write_bytes(rows.tobytes())
        content = {"batch_label": "training batch", "labels": y.tolist(), "data": x, "filenames": ["a.png"] * count}
        (places["cifar-10-batches-py"] / name).write_bytes(python_2(content))
    for name, count in (("train", 9), ("test", 4)):
        x, y, coarse = batch(count, 100)
        rows = np.concatenate([coarse[:, None].astype(np.uint8), y[:, None].astype(np.uint8), x], 1)
        (places["cifar-100-binary"] / f"{name}.bin").write_bytes(rows.tobytes())
        content = {"fine_labels": y.tolist(), "coarse_labels": coarse.tolist(), "data": x}
        (places["cifar-100-python"] / name).write_bytes(python_2(content))
    ten, hundred = [f"kind {n}" for n in range(10)], [f"fine {n}" for n in range(100)]
    (places["cifar-10-batches-bin"] / "batches.meta.txt").write_text("\n".join(ten) + "\n\n")
    (places["cifar-100-binary"] / "fine_label_names.txt").write_text("\n".join(hundred) + "\n")
    meta = {"num_cases_per_batch": 10000, "label_names": ten, "num_vis": 3072}
    (places["cifar-10-batches-py"] / "batches.meta").write_bytes(python_2(meta))
    coarse_names = [f"coarse {n}" for n in range(20)]
    (places["cifar-100-python"] / "meta").write_bytes(
        python_2({"fine_label_names": hundred, "coarse_label_names": coarse_names})
    )
    return tmp_path


class TestCifar:
    @pytest.mark.parametrize(("name", "rows"), [("cifar10", (12, 5)), ("cifar100", (9, 4))])
    def test_both_layouts_hold_the_same(self, cifar: Path, name: str, rows: tuple[int, int]) -> None:
        binary, python = load(name, str(cifar)), load(name, str(cifar / "python"))
        same(binary, python)
        assert (len(binary.train), len(binary.test)) == rows
        assert binary.train.x.shape[1:] == (3, 32, 32)
        assert binary.train.x.dtype == torch.uint8
        assert len(binary.class_names) == binary.classes

    def test_rows_are_label_red_green_blue_and_batches_follow_each_other(self, cifar: Path) -> None:
        raw = b"".join((cifar / f"cifar-10-batches-bin/{name}.bin").read_bytes() for name in COUNTS)
        found = load("cifar10", str(cifar))
        for row in range(12):
            assert found.train.y[row] == raw[3073 * row]
            pixels = raw[3073 * row + 1 : 3073 * (row + 1)]
            assert found.train.x[row, 2, 1, 3] == pixels[2 * 1024 + 32 + 3]

    def test_the_fine_label_is_the_class(self, cifar: Path) -> None:
        raw = (cifar / "cifar-100-binary/test.bin").read_bytes()
        assert load("cifar100", str(cifar)).test.y.tolist() == [raw[3074 * row + 1] for row in range(4)]

    def test_names_are_not_needed(self, cifar: Path) -> None:
        (cifar / "cifar-100-binary/fine_label_names.txt").unlink()
        assert load("cifar100", str(cifar)).class_names == ()

    def test_what_is_damaged_in_the_binary_layout_is_refused(self, cifar: Path) -> None:
        folder = cifar / "cifar-10-batches-bin"
        whole = (folder / "data_batch_3.bin").read_bytes()
        for content, words in (
            (whole[:-1], "data_batch_3.bin is truncated: its 3072 bytes are not a whole number of rows of 3073"),
            (b"", "data_batch_3.bin is truncated"),
            (b"\x0a" + whole[1:], "data_batch_3.bin: label 10 is out of range; labels go from 0 to 9"),
        ):
            (folder / "data_batch_3.bin").write_bytes(content)
            refused_source("cifar10", cifar, words, "headway data get cifar10")
        (folder / "data_batch_3.bin").unlink()
        refused_source("cifar10", cifar, "data_batch_3.bin is missing; put it there", "headway data get cifar10")

    def test_a_wrong_class_count_is_refused(self, cifar: Path) -> None:
        (cifar / "cifar-100-binary/fine_label_names.txt").write_text("only\nthree\nnames\n")
        refused_source("cifar100", cifar, "fine_label_names.txt names 3 classes; there are 100")
        (cifar / "python/cifar-10-batches-py/batches.meta").write_bytes(python_2({"label_names": ["one"]}))
        refused_source("cifar10", cifar / "python", "batches.meta names 1 classes; there are 10")

    def test_what_is_damaged_in_the_python_layout_is_refused(self, cifar: Path) -> None:
        x, y, _ = batch(3, 10)
        path = cifar / "python/cifar-10-batches-py/data_batch_2"
        whole = path.read_bytes()
        for content, words in (
            (python_2({"data": x, "labels": [*y.tolist(), 1]}), "there are 3 samples and 4 labels"),
            (python_2({"data": x, "labels": [0, 1, 700]}), "label 700 is out of range"),
            (python_2({"data": x, "labels": ["a", "b", "c"]}), "holds no list of labels under 'labels'"),
            (python_2({"data": x[:, :7], "labels": y.tolist()}), "holds no images of 3072 bytes"),
            (python_2({"labels": y.tolist()}), "holds no images"),
            (python_2([1, 2]), "not a file of CIFAR's python layout"),
            (whole[: len(whole) // 2], "is truncated or not a file of CIFAR's python layout"),
            (whole[:-1], "is truncated or not a file of CIFAR's python layout"),
            (b"", "is truncated or not a file of CIFAR's python layout"),
            (b"<html>not found</html>", "data_batch_2 is refused: it holds the instruction b'<'"),
        ):
            path.write_bytes(content)
            refused_source("cifar10", cifar / "python", "data_batch_2", words)

    @pytest.mark.parametrize("names", [5, None, "abcdefghij", [1] * 10, [["a"]] * 10])
    def test_names_that_are_no_texts_are_refused(self, cifar: Path, names: Any) -> None:
        meta = cifar / "python/cifar-10-batches-py/batches.meta"
        meta.write_bytes(pickle.dumps({"label_names": names}, 2))
        refused_source("cifar10", cifar / "python", "batches.meta holds no list of names under 'label_names'")


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
"""NumPy's array, still without its state."""
BYTES = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"


class TestPickled:
    @pytest.mark.parametrize("spelled", [python_2, lambda value: pickle.dumps(value, 2)], ids=["python 2", "python 3"])
    def test_numbers_texts_lists_and_arrays_of_bytes_are_read(self, tmp_path: Path, spelled: Any) -> None:
        x = DRAW.integers(0, 256, (5, 7), np.uint8)
        content = {"data": x, "labels": [0, 255, 256, -3, 70000], "name": "ä" * 3, "long": "x" * 300, "none": []}
        (tmp_path / "file").write_bytes(spelled(content))
        found = read_pickled(tmp_path / "file")
        assert np.array_equal(found.pop("data"), content.pop("data"))
        assert found == content

    def test_arrays_by_column_are_read(self, tmp_path: Path) -> None:
        x = np.asfortranarray(DRAW.integers(0, 256, (5, 7), np.uint8))
        (tmp_path / "file").write_bytes(pickle.dumps({"data": x}, 2))
        assert np.array_equal(read_pickled(tmp_path / "file")["data"], x)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (lambda path: pickle.dumps({"data": Spy(path)}, 2), "it names posix.mkdir"),
            (lambda path: b"\x80\x02cbuiltins\neval\n(U\x011tR.", "it names builtins.eval"),
            (lambda path: b"\x80\x02}cnumpy\nndarray\n(K\x01tR.", "it calls numpy.ndarray"),
            (lambda path: b"\x80\x02cnumpy\ndtype\nU\x01O\x85R.", "it calls numpy.dtype"),
            (lambda path: b"\x80\x02cnumpy\nndarray\n}b.", "it sets the state of something else"),
            (lambda path: pickle.dumps({"data": np.zeros(3)}, 2), "it calls numpy.dtype"),
            (lambda path: pickle.dumps({"data": 1.5}, 2), "it holds the instruction BINFLOAT"),
            (lambda path: b"\x80\x02(cposix\nsystem\nU\x02lso.", "it names posix.system"),
            (lambda path: b"\x80\x02(U\x02lsiposix\nsystem\n.", "it holds the instruction INST"),
            (lambda path: b"\x80\x02U\x01aQ.", "it holds the instruction BINPERSID"),
            (lambda path: pickle.dumps({"data": 1}, 4), "it is of protocol 4"),
        ],
    )
    def test_anything_else_is_refused_and_not_done(
        self, tmp_path: Path, content: Callable[[Path], bytes], words: str
    ) -> None:
        (tmp_path / "file").write_bytes(content(tmp_path / "made"))
        with pytest.raises(Damaged, match=f"file is refused: {words}"):
            read_pickled(tmp_path / "file")
        assert not (tmp_path / "made").exists()

    @pytest.mark.parametrize("levels", [5_000, 300_000], ids=["Python's limit", "the limit of the process"])
    @pytest.mark.parametrize(
        ("before", "after", "words"),
        [
            (b"}", b"K\x01s.", "is refused: it holds a key that is not text"),
            (b"}(U\x01aK\x01", b"K\x01u.", "is refused: it holds a key that is not text"),
            (b"", b".", "not a file of CIFAR's python layout"),
            (b"cnumpy\ndtype\n", b"R.", "is refused: it calls numpy.dtype in another way"),
            (b"c_codecs\nencode\nK\x01", b"\x86R.", "is refused: it calls _codecs.encode in another way"),
            (ARRAY + b"(K\x01", BYTES + b"\x89U\x01atb.", "is refused: it holds an array whose shape"),
            (ARRAY + b"(K\x01K\x01\x85", b"\x89U\x01atb.", "is refused: it holds an array of something else"),
            (ARRAY + b"(K\x01K\x01\x85" + BYTES + b"\x89", b"tb.", "not a file of CIFAR's python layout"),
        ],
        ids=["key", "keys", "whole", "type", "text", "shape", "kind", "content"],
    )
    def test_deep_nesting_stops_nothing(
        self, tmp_path: Path, before: bytes, after: bytes, words: str, levels: int
    ) -> None:
        (tmp_path / "file").write_bytes(b"\x80\x02" + before + b")" + b"\x85" * levels + after)
        with pytest.raises(Damaged, match=words) as caught:
            read_pickled(tmp_path / "file")
        assert len(str(caught.value).splitlines()) == 1

    def test_deep_values_that_nobody_asks_for_are_left_alone(self, tmp_path: Path) -> None:
        deep = b")" + b"\x85" * 300_000
        (tmp_path / "file").write_bytes(b"\x80\x02}U\x01a" + deep + b"sU\x01bK\x07s.")
        assert read_pickled(tmp_path / "file")["b"] == 7

    @pytest.mark.parametrize(
        "shape",
        [b"U\x01a\x85", b"K\x01\x85J\xff\xff\xff\x7f\x86", b"K\x01", b"(" + b"K\x01" * 9 + b"t"],
        ids=["of text", "of a tuple many times", "a number", "too long"],
    )
    def test_a_shape_is_a_few_whole_numbers(self, tmp_path: Path, shape: bytes) -> None:
        (tmp_path / "file").write_bytes(b"\x80\x02}U\x01a" + ARRAY + b"(K\x01" + shape + BYTES + b"\x89U\x01atbs.")
        with pytest.raises(Damaged, match="it holds an array whose shape is not a short row of whole numbers"):
            read_pickled(tmp_path / "file")

    def test_whatever_goes_wrong_is_one_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def too_much(*_: Any) -> None:
            raise MemoryError

        (tmp_path / "file").write_bytes(python_2({"a": 1}))
        monkeypatch.setattr(pickled._Machine, "carry_out", too_much)
        with pytest.raises(Damaged, match=r"not a file of CIFAR's python layout: MemoryError$"):
            read_pickled(tmp_path / "file")

    @settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_spoiled_files_are_read_or_refused_but_nothing_else(self, tmp_path: Path, data: st.DataObject) -> None:
        whole = python_2({"data": np.arange(12, dtype=np.uint8).reshape(3, 4), "labels": [1, 2, 3], "name": "abc"})
        at = data.draw(st.integers(0, len(whole)))
        cut = data.draw(st.integers(0, 3))
        (tmp_path / "file").write_bytes(whole[:at] + data.draw(st.binary(max_size=4)) + whole[at + cut :])
        with contextlib.suppress(Damaged):
            assert isinstance(read_pickled(tmp_path / "file"), dict)
