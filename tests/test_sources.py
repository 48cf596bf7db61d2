"""Every source reads its publisher's layout, and refuses what is missing, damaged or out of range in one line."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pickle
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn

from conftest import SMALL, held, played
from headway.data.federation import Federation, Pool, Windows
from headway.data.sources import PROFILES, SOURCES, Normalisation, Source, load
from headway.data.sources.files import Damaged
from headway.data.sources.pickled import read_pickled
from headway.data.sources.source import statistics
from headway.data.sources.synthetic import LEAST, MOST
from headway.data.sources.text import ALPHABET, LENGTH, Stream, split_texts
from headway.engine.world import build
from headway.errors import UserError
from headway.methods.spelling import method
from headway.random import built

DRAW = np.random.default_rng(0)


def refused(name: str, folder: Path | None, *words: str) -> None:
    """One line that has all the words."""
    with pytest.raises(UserError) as caught:
        load(name, None if folder is None else str(folder))
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def same(one: Source, other: Source) -> None:
    """The same samples, labels and users."""
    for first, second in ((one.train, other.train), (one.test, other.test)):
        assert torch.equal(first.x[:], second.x[:])
        assert torch.equal(first.y, second.y)
    assert one.classes == other.classes
    assert one.class_names == other.class_names


def owners(found: Source) -> tuple[list[str], list[str]]:
    """Names of the users of each row."""
    assert found.users is not None
    assert found.test_users is not None
    return [found.user_names[user] for user in found.users], [found.user_names[user] for user in found.test_users]


# ── names and constants ──────────────────────────────────────────────────────────────────────────────────────────────


class TestNames:
    @pytest.mark.parametrize("name", [name for name, entry in SOURCES.items() if not entry.argument])
    def test_what_takes_no_argument_refuses_one(self, name: str) -> None:
        refused(f"{name}:7", None, f"data is '{name}:7'; write {name}")
        refused(f"{name}:", None, f"write {name}")

    @pytest.mark.parametrize("name", [name for name, entry in SOURCES.items() if entry.argument])
    def test_what_takes_an_argument_asks_for_it(self, name: str) -> None:
        refused(name, None, f"write {name}:{SOURCES[name].argument}")
        refused(f"{name}:", None, f"write {name}:{SOURCES[name].argument}")

    @pytest.mark.parametrize(
        "name", ["mnist", "fashion-mnist", "cifar10", "cifar100", "tiny-imagenet", "femnist", "celeba", "shakespeare"]
    )
    def test_an_empty_data_folder_says_what_goes_where(self, name: str, tmp_path: Path) -> None:
        way = "github.com/TalwalkarLab/leaf" if name in ("femnist", "celeba", "shakespeare") else f"data get {name}"
        refused(name, tmp_path, str(tmp_path), "put", way)

    def test_profiles_have_the_constants_of_their_code(self, cifar: Path) -> None:
        """reference-facts 0.2 and B1."""
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


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


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
        refused("mnist", digits, "train-writers.npy", "for each of the 6 images")

    def test_what_is_no_array_is_refused(self, digits: Path) -> None:
        for content in (b"junk", b"", pickle.dumps([1])):
            (digits / "MNIST/raw/train-writers.npy").write_bytes(content)
            refused("mnist", digits, "train-writers.npy cannot be read as NumPy arrays", "delete it")

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
        refused("mnist", digits, words, str(digits / "MNIST"))


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
            (whole[:-1], "data_batch_3.bin is truncated: its 3072 bytes are no whole number of rows of 3073"),
            (b"", "data_batch_3.bin is truncated"),
            (b"\x0a" + whole[1:], "data_batch_3.bin: label 10 is out of range; labels go from 0 to 9"),
        ):
            (folder / "data_batch_3.bin").write_bytes(content)
            refused("cifar10", cifar, words, "headway data get cifar10")
        (folder / "data_batch_3.bin").unlink()
        refused("cifar10", cifar, "data_batch_3.bin is missing; put it there", "headway data get cifar10")

    def test_a_wrong_class_count_is_refused(self, cifar: Path) -> None:
        (cifar / "cifar-100-binary/fine_label_names.txt").write_text("only\nthree\nnames\n")
        refused("cifar100", cifar, "fine_label_names.txt names 3 classes; there are 100")
        (cifar / "python/cifar-10-batches-py/batches.meta").write_bytes(python_2({"label_names": ["one"]}))
        refused("cifar10", cifar / "python", "batches.meta names 1 classes; there are 10")

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
            (python_2([1, 2]), "no file of CIFAR's python layout"),
            (whole[: len(whole) // 2], "is truncated or no file of CIFAR's python layout"),
            (whole[:-1], "is truncated or no file of CIFAR's python layout"),
            (b"", "is truncated or no file of CIFAR's python layout"),
            (b"<html>not found</html>", "data_batch_2 is refused: it holds the instruction b'<'"),
        ):
            path.write_bytes(content)
            refused("cifar10", cifar / "python", "data_batch_2", words)


class Spy:
    """Unpickled for real, it would make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


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

    @settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_spoiled_files_are_read_or_refused_but_nothing_else(self, tmp_path: Path, data: st.DataObject) -> None:
        whole = python_2({"data": np.arange(12, dtype=np.uint8).reshape(3, 4), "labels": [1, 2, 3], "name": "abc"})
        at = data.draw(st.integers(0, len(whole)))
        cut = data.draw(st.integers(0, 3))
        (tmp_path / "file").write_bytes(whole[:at] + data.draw(st.binary(max_size=4)) + whole[at + cut :])
        with contextlib.suppress(Damaged):
            assert isinstance(read_pickled(tmp_path / "file"), dict)


# ── image files ──────────────────────────────────────────────────────────────────────────────────────────────────────


def picture(path: Path, size: tuple[int, int] = (8, 6), mode: str = "RGB", value: int | None = None) -> np.ndarray:
    """A picture of random pixels or of one colour in a file; its pixels, shape (channels, height, width)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = (3,) if mode == "RGB" else ()
    pixels = DRAW.integers(0, 256, (size[1], size[0], *channels), np.uint8)
    if value is not None:
        pixels = np.full_like(pixels, value)
    Image.fromarray(pixels).save(path)
    return pixels.transpose(2, 0, 1) if mode == "RGB" else pixels[None]


WNIDS = ["n03", "n01", "n02"]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Three classes of three images; JPEG is lossy, so that each class has its own grey."""
    folder = tmp_path / "tiny-imagenet-200"
    for number, wnid in enumerate(WNIDS):
        for image in range(3):
            name = folder / "train" / wnid / "images" / f"{wnid}_{image}.JPEG"
            picture(name, (64, 64), value=40 * number + image, mode="L" if image == 1 else "RGB")
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text("")
    (folder / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    for image in range(4):
        picture(folder / "val/images" / f"val_{image}.JPEG", (64, 64), value=200 + image)
    lines = [f"val_{image}.JPEG\t{WNIDS[(image * 2) % 3]}\t0\t32\t44\t62" for image in range(4)]
    (folder / "val/val_annotations.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


class TestTinyImageNet:
    def test_classes_are_in_the_order_of_the_list(self, tiny: Path) -> None:
        found = load("tiny-imagenet", str(tiny))
        assert found.train.x.shape == (9, 3, 64, 64)
        assert found.train.y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
        assert found.train.x[:, :, 30, 30].tolist() == [
            [40 * label + image] * 3 for label in range(3) for image in range(3)
        ]
        assert found.test.y.tolist() == [0, 2, 1, 0]
        assert found.test.x[:, 0, 9, 9].tolist() == [200, 201, 202, 203]
        assert found.class_names == tuple(WNIDS)
        assert found.mean == (0.4802, 0.4481, 0.3975)

    def test_what_is_damaged_is_refused(self, tiny: Path) -> None:
        folder = tiny / "tiny-imagenet-200"
        (folder / "val/images/val_2.JPEG").unlink()
        refused("tiny-imagenet", tiny, "val_2.JPEG is missing; put it there", "headway data get tiny-imagenet")
        whole = picture(folder / "val/images/val_2.JPEG", (64, 64))
        assert whole.shape == (3, 64, 64)
        path = folder / "train/n01/images/n01_2.JPEG"
        raw = path.read_bytes()
        for content in (raw[: len(raw) // 2], b"", b"no image"):
            path.write_bytes(content)
            refused("tiny-imagenet", tiny, "n01_2.JPEG cannot be read as an image")
        picture(path, (64, 60))
        refused("tiny-imagenet", tiny, "n01_2.JPEG is 64 × 60", "n03_0.JPEG is 64 × 64; they must be of one size")

    def test_a_wrong_class_count_is_refused(self, tiny: Path) -> None:
        folder = tiny / "tiny-imagenet-200"
        for wnids, words in (
            (WNIDS[:2], "has 3 classes and wnids.txt lists 2: n02 is not in the list"),
            ([*WNIDS, "n09"], "n09 is missing, but wnids.txt lists that class"),
            ([*WNIDS, "n01"], "lists 4 classes, of which 3 differ"),
            ([], "lists 0 classes"),
        ):
            (folder / "wnids.txt").write_text("\n".join(wnids))
            refused("tiny-imagenet", tiny, words)

    def test_an_image_of_no_class_is_refused(self, tiny: Path) -> None:
        (tiny / "tiny-imagenet-200/val/val_annotations.txt").write_text("val_0.JPEG\tn77\t0\t0\t1\t1\n")
        refused("tiny-imagenet", tiny, "'val_0.JPEG' is of class 'n77', which wnids.txt does not list")

    def test_without_pillow_the_extra_is_named(self, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "PIL", None)
        for name in ("tiny-imagenet", "celeba"):
            refused(name, tiny, "pip install 'headway[images]'")


class TestFolder:
    def test_train_and_test(self, tmp_path: Path) -> None:
        kept = {}
        for part, count in (("train", 3), ("test", 2)):
            for name in ("cat", "ant"):
                kept[part, name] = [picture(tmp_path / part / name / f"{n}.png") for n in range(count)]
        (tmp_path / "train/cat/notes.txt").write_text("no image")
        found = load(f"folder:{tmp_path}", None)
        assert found.class_names == ("ant", "cat")
        assert found.train.y.tolist() == [0] * 3 + [1] * 3
        assert np.array_equal(found.train.x.numpy(), np.stack(kept["train", "ant"] + kept["train", "cat"]))
        assert np.array_equal(found.test.x.numpy(), np.stack(kept["test", "ant"] + kept["test", "cat"]))
        pixels = np.stack(kept["train", "ant"] + kept["train", "cat"]) / 255
        assert found.mean == pytest.approx(pixels.mean((0, 2, 3)))

    def test_each_tenth_is_for_tests_where_there_is_no_test_set(self, tmp_path: Path) -> None:
        grey = {name: [picture(tmp_path / name / f"{n:02}.png", mode="L") for n in range(21)] for name in "ab"}
        found = load(f"folder:{tmp_path}", None)
        assert found.train.x.shape == (38, 1, 6, 8)
        assert np.array_equal(found.test.x.numpy(), np.stack([grey[name][at] for name in "ab" for at in (9, 19)]))

    def test_one_coloured_image_makes_all_of_them_coloured(self, tmp_path: Path) -> None:
        for name in "ab":
            for number in range(10):
                picture(tmp_path / name / f"{number}.png", mode="L")
        picture(tmp_path / "b/9.png")
        assert load(f"folder:{tmp_path}", None).train.x.shape == (18, 3, 6, 8)

    def test_what_is_no_such_folder_is_refused(self, tmp_path: Path) -> None:
        refused(f"folder:{tmp_path / 'none'}", None, "there is no folder", "none")
        (tmp_path / "a").mkdir()
        refused(f"folder:{tmp_path}", None, "a holds no image")
        picture(tmp_path / "a/0.png")
        refused(f"folder:{tmp_path}", None, "has 1 sub-folders")
        picture(tmp_path / "b/0.png")
        refused(f"folder:{tmp_path}", None, "leaves no test images")
        for number in range(10):
            picture(tmp_path / f"a/{number}.png")
        picture(tmp_path / "b/0.png", (3, 3))
        refused(f"folder:{tmp_path}", None, "b/0.png is 3 × 3", "they must be of one size")
        (tmp_path / "b/0.png").write_bytes(b"nothing")
        refused(f"folder:{tmp_path}", None, "b/0.png cannot be read as an image")

    def test_both_parts_have_the_same_classes(self, tmp_path: Path) -> None:
        for place in ("train/a", "train/b", "val/a", "val/c"):
            picture(tmp_path / place / "0.png")
        refused(f"folder:{tmp_path}", None, "must have the same sub-folders")


# ── LEAF ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def leaf(path: Path, users: dict[str, tuple[list[Any], list[Any]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    path.write_text(json.dumps(content))


def glyphs(count: int) -> np.ndarray:
    return DRAW.integers(0, 256, (count, 28, 28), np.uint8)


def as_leaf(x: np.ndarray) -> list[list[float]]:
    return (x.reshape(len(x), -1) / 255).tolist()


class TestFemnist:
    def test_both_forms_hold_the_same(self, tmp_path: Path) -> None:
        x, y, user = glyphs(6), np.array([0, 61, 5, 5, 9, 40]), np.array([0, 0, 1, 1, 1, 2])
        (tmp_path / "packed/femnist").mkdir(parents=True)
        for part, rows in (("train", slice(0, 6)), ("test", slice(1, 5))):
            np.savez(tmp_path / f"packed/femnist/{part}.npz", x=x[rows], y=y[rows], user=user[rows])
        for home in ("femnist", "femnist/data"):
            plain = tmp_path / home.replace("/", "-")
            leaf(plain / home / "train/all_data_0.json", {"0": (as_leaf(x[:2]), y[:2].tolist()), "9": ([], [])})
            rest = {"1": (as_leaf(x[2:5]), y[2:5].tolist()), "2": (as_leaf(x[5:]), [40.0])}
            leaf(plain / home / "train/all_data_1.json", rest)
            held = {"0": (as_leaf(x[1:2]), [61]), "1": (as_leaf(x[2:5]), y[2:5].tolist())}
            leaf(plain / home / "test/all_data_0.json", held)
            one, other = load("femnist", str(tmp_path / "packed")), load("femnist", str(plain))
            same(one, other)
            assert owners(one) == owners(other)
            assert one.train.x.shape == (6, 1, 28, 28)
            assert one.class_names[61] == "z"
            assert one.mean == (0.0,)
            assert one.std == (1.0,)

    @pytest.mark.parametrize(
        ("arrays", "words"),
        [
            ({"x": glyphs(2), "y": np.array([0, 62]), "user": np.zeros(2, int)}, "label 62 is out of range"),
            ({"x": glyphs(2), "y": np.array([0, -1]), "user": np.zeros(2, int)}, "label -1 is out of range"),
            ({"x": glyphs(2), "y": np.array([0]), "user": np.zeros(2, int)}, "y and user must have one"),
            ({"x": glyphs(2), "y": np.array([0.5, 1]), "user": np.zeros(2, int)}, "whole number"),
            ({"x": glyphs(2) / 255, "y": np.zeros(2, int), "user": np.zeros(2, int)}, "it must be uint8"),
            ({"x": glyphs(2), "y": np.zeros(2, int)}, "has no array 'user'"),
            ({"x": glyphs(0), "y": np.zeros(0, int), "user": np.zeros(0, int)}, "there are no samples"),
        ],
    )
    def test_arrays_that_do_not_fit_are_refused(self, tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
        (tmp_path / "femnist").mkdir()
        np.savez(tmp_path / "femnist/train.npz", **arrays)
        refused("femnist", tmp_path, "train.npz", words)

    def test_a_missing_or_truncated_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "femnist").mkdir()
        np.savez(tmp_path / "femnist/train.npz", x=glyphs(2), y=np.zeros(2, int), user=np.zeros(2, int))
        refused("femnist", tmp_path, "test.npz is missing")
        whole = (tmp_path / "femnist/train.npz").read_bytes()
        (tmp_path / "femnist/train.npz").write_bytes(whole[:700])
        refused("femnist", tmp_path, "train.npz cannot be read as NumPy arrays")

    @pytest.mark.parametrize(
        ("x", "y", "words"),
        [
            (as_leaf(glyphs(2)), [1], "user 'u' has 2 samples and 1 labels"),
            ([[0.5] * 783], [1], "images that are no 784 numbers"),
            ([[0.5] * 783 + ["a"]], [1], "images that are no 784 numbers"),
            ([[0.5] * 783 + [1.5]], [1], "pixels outside 0 to 1"),
            ([[0.5] * 784], [1.5], "labels that are no whole numbers"),
            ([[0.5] * 784], ["a"], "labels that are no whole numbers"),
            ([[0.5] * 784], [1e300], "labels that are no whole numbers"),
            ([[0.5] * 784], [62], "label 62 is out of range"),
            ([], [], "there are no samples"),
        ],
    )
    def test_json_that_does_not_fit_is_refused(self, tmp_path: Path, x: list[Any], y: list[Any], words: str) -> None:
        for part in ("train", "test"):
            leaf(tmp_path / f"femnist/{part}/all.json", {"u": (x, y)})
        refused("femnist", tmp_path, str(tmp_path / "femnist"), words)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ('{"users": ["a"], "user_data": {"a": {"x": [', "is no complete JSON file"),
            ("", "is no complete JSON file"),
            ("\xff\xfe", "is no complete JSON file"),
            ("[1]", "holds no JSON object, but a list"),
            ('{"users": ["a"]}', "must have 'users' and 'user_data'"),
            ('{"users": ["a"], "user_data": {}}', "user 'a' has no lists 'x' and 'y'"),
            ('{"users": ["a"], "user_data": {"a": {"x": []}}}', "user 'a' has no lists 'x' and 'y'"),
        ],
    )
    def test_what_is_no_json_of_leaf_is_refused(self, tmp_path: Path, content: str, words: str) -> None:
        (tmp_path / "femnist/train").mkdir(parents=True)
        (tmp_path / "femnist/train/all.json").write_bytes(content.encode("latin-1"))
        refused("femnist", tmp_path, "all.json", words)


class TestCelebA:
    @pytest.fixture
    def faces(self, tmp_path: Path) -> Path:
        home = tmp_path / "celeba"
        for number in range(1, 6):
            picture(home / f"raw/img_align_celeba/{number:06}.jpg", (178, 218), value=40 * number)
        leaf(home / "train/all.json", {"7": (["000001.jpg", "000002.jpg"], [0.0, 1.0]), "8": (["000003.jpg"], [1])})
        leaf(home / "test/all.json", {"8": (["000005.jpg"], [0.0]), "7": (["000004.jpg"], [1.0])})
        return tmp_path

    def test_faces_are_scaled_and_belong_to_celebrities(self, faces: Path) -> None:
        found = load("celeba", str(faces))
        assert found.train.x.shape == (3, 3, 84, 84)
        assert found.train.x[:, 0, 40, 40].tolist() == [40, 80, 120]
        assert found.train.y.tolist() == [0, 1, 1]
        assert found.test.y.tolist() == [0, 1]
        assert owners(found) == (["7", "7", "8"], ["8", "7"])
        assert found.mean == (0.5, 0.5, 0.5)

    def test_what_is_damaged_is_refused(self, faces: Path) -> None:
        (faces / "celeba/raw/img_align_celeba/000002.jpg").unlink()
        refused("celeba", faces, "000002.jpg is missing", "img_align_celeba")
        leaf(faces / "celeba/train/all.json", {"7": (["000001.jpg"], [2])})
        refused("celeba", faces, "label 2 is out of range; labels go from 0 to 1")


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def texts(path: Path, content: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"users": list(content), "text": content}))
    return path


def speech(length: int, seed: int = 0) -> str:
    return "".join(ALPHABET[place] for place in np.random.default_rng(seed).integers(0, len(ALPHABET), length))


def said(rows: Tensor) -> list[str]:
    return ["".join(ALPHABET[place] for place in row) for row in rows.tolist()]


def by_the_rule(text: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Windows of one user, written down as in the data's README."""
    n = len(text) - LENGTH
    n_tr = max(1, int(0.8 * n))
    pairs = [(text[i : i + LENGTH], text[i + LENGTH]) for i in range(n)]
    return pairs[:n_tr], pairs[n_tr + 79 :]


class TestShakespeare:
    def test_the_alphabet_is_leafs(self) -> None:
        assert len(ALPHABET) == len(set(ALPHABET)) == 80
        assert "".join(sorted(ALPHABET)) == ALPHABET

    @settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.integers(0, 700), min_size=1, max_size=5), st.integers(0, 99))
    def test_windows_follow_the_rule(self, tmp_path: Path, lengths: list[int], seed: int) -> None:
        content = {f"user {at}": speech(length, seed + at) for at, length in enumerate(lengths)}
        ruled = {user: by_the_rule(text) for user, text in content.items()}
        kept = [user for user, (_, test) in ruled.items() if test]
        path = texts(tmp_path / "users.json", content)
        if not kept:
            with pytest.raises(Damaged, match="no text is long enough"):
                split_texts(path)
            return
        names, *parts = split_texts(path)
        assert list(names) == kept
        for number, (windows, y, users) in enumerate(parts):
            expected = [(user, x, following) for user in kept for x, following in ruled[user][number]]
            letters = [ALPHABET[place] for place in y]
            found = zip([names[user] for user in users], said(windows[:]), letters, strict=True)
            assert list(found) == expected

    def test_both_forms_hold_the_same(self, tmp_path: Path) -> None:
        content = {"a": speech(520), "b": speech(600, 1), "short": speech(150, 2)}
        texts(tmp_path / "packed/shakespeare/users.json", content)
        for part in (0, 1):
            ruled = {user: by_the_rule(text)[part] for user, text in content.items() if user != "short"}
            users = {user: ([x for x, _ in pairs], [y for _, y in pairs]) for user, pairs in ruled.items()}
            leaf(tmp_path / f"plain/shakespeare/data/{('train', 'test')[part]}/all.json", users)
        one, other = load("shakespeare", str(tmp_path / "packed")), load("shakespeare", str(tmp_path / "plain"))
        same(one, other)
        assert owners(one) == owners(other)
        assert one.train.x.tokens.numel() == 1120, "the texts themselves"
        overlapping = sum(len(by_the_rule(content[user])[0]) + LENGTH - 1 for user in "ab")
        assert other.train.x.tokens.numel() == overlapping, "each character once"

    @settings(deadline=None, max_examples=60)
    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 220)), min_size=1, max_size=30))
    def test_windows_in_any_order_are_kept(self, places: list[tuple[int, int]]) -> None:
        """Windows of four texts, one of which repeats itself."""
        plays = [speech(300, 0), speech(300, 1), "ab" * 150, speech(300, 2)]
        windows = [plays[play][at : at + LENGTH] for play, at in places]
        stream = Stream()
        stream.extend(windows, "here")
        assert said(stream.windows(Path("here"))[:]) == windows

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ({"users": ["a"], "text": {"a": "é" * 900}}, "the character 'é' is not in LEAF's alphabet of 80"),
            ({"users": ["a"], "text": {"a": "\ud800" * 900}}, "is not in LEAF's alphabet"),
            ({"users": ["a"], "text": {"a": "~" * 900}}, "user 'a': the character '~'"),
            ({"users": ["a"], "text": {}}, "user 'a' has no text"),
            ({"users": ["a"]}, "must have 'users' and 'text'"),
            ({"users": ["a"], "text": {"a": "too short"}}, "no text is long enough"),
        ],
    )
    def test_what_is_no_text_is_refused(self, tmp_path: Path, content: dict[str, Any], words: str) -> None:
        (tmp_path / "shakespeare").mkdir()
        (tmp_path / "shakespeare/users.json").write_text(json.dumps(content))
        refused("shakespeare", tmp_path, "users.json", words)

    @pytest.mark.parametrize(
        ("x", "y", "words"),
        [
            (["a" * 79], ["a"], "no text of 80 characters"),
            ([80], ["a"], "no text of 80 characters"),
            (["a" * 80], ["ab"], "no single characters"),
            (["a" * 80], [3], "no single characters"),
            (["^" * 80], ["a"], "the character '^'"),
            (["a" * 80], ["^"], "the character '^'"),
        ],
    )
    def test_json_that_is_no_text_is_refused(self, tmp_path: Path, x: list[Any], y: list[Any], words: str) -> None:
        leaf(tmp_path / "shakespeare/train/all.json", {"a": (x, y)})
        refused("shakespeare", tmp_path, str(tmp_path / "shakespeare/train"), words)


class NextCharacter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 4)
        self.head = nn.Linear(4, 80)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x[:, -3:]).mean(1))


class TestWindows:
    TOKENS = torch.arange(50, dtype=torch.uint8)
    WINDOWS = Windows(TOKENS, torch.tensor([0, 7, 3, 45]), 5)

    def test_they_are_indexed_as_the_tensor_they_stand_for(self) -> None:
        whole = torch.stack([self.TOKENS[start : start + 5].long() for start in (0, 7, 3, 45)])
        assert self.WINDOWS.shape == whole.shape
        assert len(self.WINDOWS) == 4
        for rows in (2, slice(1, 3), torch.tensor([3, 0, 0]), np.array([1, 1]), torch.tensor([[0, 1], [2, 3]])):
            assert torch.equal(self.WINDOWS[rows], whole[rows])
        assert self.WINDOWS[:2].dtype == torch.int64

    def test_they_are_indexed_under_vmap_and_move_with_their_pool(self) -> None:
        rows = torch.tensor([[0, 1], [3, 2]])
        found = torch.func.vmap(lambda rows: self.WINDOWS[rows])(rows)
        assert torch.equal(found, self.WINDOWS[rows])
        moved = Pool(self.WINDOWS, torch.zeros(4)).to(torch.device("meta"))
        assert moved.x[rows.to("meta")].device.type == "meta"

    def test_tokens_are_not_normalised(self) -> None:
        pool = Pool(self.WINDOWS, torch.zeros(4, dtype=torch.int64))
        federation = Federation(pool, pool, [np.arange(4)], 1, mean=(0.5,), std=(0.5,))
        assert federation.sample_shape == (5,)
        assert torch.equal(federation.inputs(self.WINDOWS[:], torch.float64), self.WINDOWS[:])

    def test_every_executor_trains_on_them_alike(self, tmp_path: Path) -> None:
        texts(tmp_path / "shakespeare/users.json", {"a": speech(500), "b": speech(520, 1)})
        ends = []
        for executor in ("serial", "batched", "pool"):
            scenario = SMALL.changed(
                data="shakespeare", data_dir=str(tmp_path), partition="iid", clients=5, rounds=2, batch_size=64
            )
            chosen = build(scenario, method("fedacg"), model=built(NextCharacter, 0, "test"))
            ends.append(played(chosen, executor)[0][-1]["loss"])
        assert ends == pytest.approx([ends[0]] * 3, rel=1e-9)


# ── synthetic ────────────────────────────────────────────────────────────────────────────────────────────────────────


class TestSynthetic:
    def test_shapes_and_users(self) -> None:
        found = load("synthetic:1,1", None)
        assert found.train.x.shape[1:] == (60,)
        assert found.train.x.dtype == torch.float32
        assert found.classes == 10
        assert len(found.user_names) == 30
        assert found.users is not None
        assert found.test_users is not None
        sizes = np.bincount(found.users, minlength=30) + np.bincount(found.test_users, minlength=30)
        assert sizes.min() >= LEAST
        assert sizes.max() <= MOST
        assert np.array_equal(np.bincount(found.users, minlength=30), (0.9 * sizes).astype(int))

    def test_the_name_fixes_the_data_and_more_users_change_no_other(self) -> None:
        one, other, many = (load(name, None) for name in ("synthetic:1,0.5", "synthetic:1,0.5", "synthetic:1,0.5,90"))
        same(one, other)
        assert torch.equal(many.train.x[: len(one.train)], one.train.x)
        assert not torch.equal(load("synthetic:1,0.6", None).train.x, one.train.x)

    def test_sizes_are_lognormal(self) -> None:
        """⌊e^z⌋ + 5 with z ~ N(3, 2²): of 1,000 users a half has less than e³ + 5, a sixth more than e⁵ + 5."""
        found = load("synthetic:0,0,1000", None)
        sizes = np.bincount(np.concatenate([found.users, found.test_users]), minlength=1000)
        assert np.mean(sizes < np.exp(3) + 5) == pytest.approx(0.5, abs=4.5 * 0.016)
        assert np.mean(sizes > np.exp(5) + 5) == pytest.approx(0.1587, abs=4.5 * 0.0116)

    def test_beta_spreads_the_inputs_and_variances_fall_as_promised(self) -> None:
        """A user's mean over features is B + O(1/√60), B ~ N(0, β²); feature j has variance j^−1.2."""
        spread = {}
        for beta in (0, 3):
            found = load(f"synthetic:0,{beta},300", None)
            x, users = found.train.x.numpy(), found.users
            means = np.array([x[users == user].mean() for user in range(300)])
            spread[beta] = means.std()
            large = np.flatnonzero(np.bincount(users) > 300)
            inside = np.mean([x[users == user].var(0) for user in large], axis=0)
            assert inside == pytest.approx(np.arange(1, 61) ** -1.2, rel=0.1)
        assert spread[0] < 0.3
        assert spread[3] == pytest.approx(3, rel=0.2)

    def test_each_user_has_a_linear_model(self) -> None:
        """The labels of one user are the largest of linear functions: least squares tells a pair of them apart."""
        found = load("synthetic:1,1", None)
        user = int(np.bincount(found.users).argmax())
        x, y = found.train.x.numpy()[found.users == user], found.train.y.numpy()[found.users == user]
        first, second = np.argsort(-np.bincount(y, minlength=10))[:2]
        chosen = (y == first) | (y == second)
        design = np.hstack([x[chosen], np.ones((chosen.sum(), 1))])
        target = np.where(y[chosen] == first, 1.0, -1.0)
        answer = design @ np.linalg.lstsq(design, target, rcond=None)[0]
        assert np.mean(np.sign(answer) == target) > 0.85

    @pytest.mark.parametrize("argument", ["1", "a,b", "-1,1", "1,-1", "nan,1", "inf,1", "1,1,0", "1,1,2.5", "1,1,2,3"])
    def test_other_arguments_are_refused(self, argument: str) -> None:
        refused(f"synthetic:{argument}", None, f"data is 'synthetic:{argument}'", "such as synthetic:1,1")


# ── the user's own ───────────────────────────────────────────────────────────────────────────────────────────────────


def packed(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return f"npz:{path}"


class TestNpz:
    def test_images_with_users(self, tmp_path: Path) -> None:
        x, y = DRAW.integers(0, 256, (6, 3, 4, 5), np.uint8), np.array([0, 1, 2, 2, 1, 0])
        users = np.array(["eve", "bob", "eve", "bob", "ann", "ann"])
        name = packed(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2], users_train=users)
        found = load(name, None)
        assert np.array_equal(found.train.x.numpy(), x)
        assert found.classes == 3
        assert found.users is not None
        assert [found.user_names[user] for user in found.users] == users.tolist()
        assert found.test_users is None
        assert found.mean == pytest.approx((x / 255).mean((0, 2, 3)))

    def test_grey_images_get_a_channel(self, tmp_path: Path) -> None:
        x, y = DRAW.integers(0, 256, (3, 4, 5), np.uint8), np.arange(3)
        found = load(packed(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y, users_test=y), None)
        assert found.train.x.shape == (3, 1, 4, 5)
        assert len(found.mean) == 1

    def test_features_and_numbers_are_regression(self, tmp_path: Path) -> None:
        x, y = DRAW.normal(size=(5, 2)), DRAW.normal(size=5)
        found = load(packed(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y), None)
        assert found.classes == 0
        assert found.train.x.dtype == found.train.y.dtype == torch.float32
        assert found.train.y.numpy() == pytest.approx(y, rel=1e-6)

    def test_whole_numbers_are_tokens(self, tmp_path: Path) -> None:
        x, y = DRAW.integers(0, 9, (5, 2), np.int32), np.arange(5)
        found = load(packed(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y), None)
        assert found.train.x.dtype == torch.int64

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"y_test": None}, "has no array 'y_test'"),
            ({"y_train": np.arange(3)}, "there are 4 samples and 3 labels"),
            ({"y_train": np.array([0, 1, 2, -1])}, "label -1 is out of range"),
            ({"y_train": np.array(list("abcd"))}, "give one label a sample"),
            ({"y_train": np.zeros((4, 2), int)}, "give one label a sample"),
            ({"y_train": np.zeros(4)}, "both must be labels or both numbers"),
            ({"y_train": np.zeros(3), "y_test": np.zeros(4)}, "there are 4 samples and 3 targets"),
            ({"x_train": np.zeros((4, 3))}, "training samples have shape (3,), test samples (2,)"),
            ({"x_train": np.zeros(4)}, "samples must be numbers of shape (n, …)"),
            ({"x_train": np.array([["a"]] * 4)}, "samples must be numbers"),
            ({"x_train": np.zeros((0, 2)), "y_train": np.zeros(0, int)}, "there are no samples"),
            ({"users_train": np.arange(3)}, "users_train must have one name or whole number"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
        arrays = {
            "x_train": np.zeros((4, 2)),
            "y_train": np.arange(4),
            "x_test": np.zeros((4, 2)),
            "y_test": np.arange(4),
        }
        arrays |= changes
        name = packed(tmp_path / "own.npz", **{name: array for name, array in arrays.items() if array is not None})
        refused(name, None, "own.npz", words)

    def test_pickled_objects_are_refused(self, tmp_path: Path) -> None:
        spies = np.array([Spy(tmp_path / "made")], dtype=object)
        refused(packed(tmp_path / "own.npz", x_train=spies), None, "own.npz cannot be read as NumPy arrays")
        assert not (tmp_path / "made").exists()

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        refused(f"npz:{tmp_path}/none.npz", None, "none.npz is missing")


class Split:
    """As much of a split of Hugging Face's `datasets` as is used."""

    def __init__(self, features: dict[str, Any], columns: dict[str, list[Any]]) -> None:
        self.features, self.columns = features, columns

    def __getitem__(self, column: str) -> list[Any]:
        return self.columns[column]

    def select_columns(self, names: list[str]) -> list[dict[str, Any]]:
        return [{name: self.columns[name][row] for name in names} for row in range(len(self.columns[names[0]]))]


def kind(name: str, **values: Any) -> Any:
    return type(name, (SimpleNamespace,), {})(**values)


FEATURES = {"image": kind("Image"), "label": kind("ClassLabel", names=["no", "yes", "maybe"]), "who": kind("Value")}


class TestHuggingFace:
    @pytest.fixture
    def hub(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """Data sets by name, behind a module that stands in for `datasets`."""
        sets: dict[str, Any] = {}
        library = ModuleType("datasets")
        library.load_dataset = lambda name: sets[name]  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "datasets", library)
        return sets

    def images(self, count: int, size: int = 4, mode: str = "RGB") -> dict[str, list[Any]]:
        shape = (size, size, 3) if mode == "RGB" else (size, size)
        pixels = DRAW.integers(0, 256, (count, *shape), np.uint8)
        return {
            "image": [Image.fromarray(one) for one in pixels],
            "label": [n % 2 for n in range(count)],
            "who": [f"user {n % 3}" for n in range(count)],
        }

    def test_images_and_labels_are_found(self, hub: dict[str, Any]) -> None:
        columns = self.images(6), self.images(3)
        hub["me/set"] = {"train": Split(FEATURES, columns[0]), "validation": Split(FEATURES, columns[1])}
        found = load("hf:me/set", None)
        assert found.train.x.shape == (6, 3, 4, 4)
        assert np.array_equal(found.train.x[2].numpy(), np.asarray(columns[0]["image"][2]).transpose(2, 0, 1))
        assert found.test.y.tolist() == [0, 1, 0]
        assert found.class_names == ("no", "yes", "maybe")
        assert found.classes == 3

    def test_columns_can_be_named(self, hub: dict[str, Any]) -> None:
        grey = self.images(6, mode="L")
        hub["set"] = {"train": Split(FEATURES, grey), "test": Split(FEATURES, self.images(2, mode="L"))}
        found = load("hf:set,image,label,who", None)
        assert found.train.x.shape == (6, 1, 4, 4)
        assert owners(found)[0] == [f"user {n % 3}" for n in range(6)]

    def test_numbers_are_taken_as_they_are(self, hub: dict[str, Any]) -> None:
        features = {"f": kind("Sequence"), "t": kind("Value")}
        split = Split(features, {"f": [[0.5, 1.0], [2.0, 3.0]], "t": [0.25, 0.75]})
        hub["set"] = {"train": split, "test": split}
        found = load("hf:set,f,t", None)
        assert found.classes == 0
        assert found.train.x.tolist() == [[0.5, 1.0], [2.0, 3.0]]

    def test_what_does_not_fit_is_refused(self, hub: dict[str, Any]) -> None:
        good = Split(FEATURES, self.images(2))
        mixed = self.images(2)
        mixed["image"][1] = Image.fromarray(np.zeros((5, 5, 3), np.uint8))
        hub["one"] = {"train": good}
        hub["mixed"] = {"train": Split(FEATURES, mixed), "test": good}
        hub["empty"] = {"train": Split(FEATURES, self.images(0)), "test": good}
        hub["text"] = {"train": Split({"t": kind("Value"), "l": kind("Value")}, {"t": ["a"], "l": ["b"]}), "test": good}
        hub["good"] = {"train": good, "test": good}
        refused("hf:one", None, "'one' has the splits train; it must have train and test")
        refused("hf:mixed", None, "shapes (3, 4, 4) and (3, 5, 5)")
        refused("hf:empty", None, "'empty' has an empty split")
        refused("hf:text", None, "name two of t, l: hf:text,SAMPLES,TARGETS")
        refused("hf:good,image,nope", None, "has no column 'nope'; it has image, label, who")
        refused("hf:good,image", None, "write hf:NAME, hf:NAME,SAMPLES,TARGETS")
        refused("hf:good,image,who", None, "'who' holds no numbers")
        refused("hf:nobody/none", None, "'nobody/none' cannot be loaded")

    def test_without_the_library_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        refused("hf:me/set", None, "pip install 'headway[huggingface]'")


# ── the real files ───────────────────────────────────────────────────────────────────────────────────────────────────


def measured(found: Source) -> None:
    """The constants are the data's own, to the four digits they are given in."""
    own = statistics(found.train.x.numpy())
    assert own.mean == pytest.approx(found.mean, abs=6e-5)
    assert own.std == pytest.approx(found.std, abs=6e-5)


class TestRealFiles:
    def test_mnist_by_writer(self, real_data: Callable[[str], Path]) -> None:
        found = load("mnist", str(real_data("mnist")))
        assert (len(found.train), len(found.test)) == (60000, 10000)
        if found.users is None:
            pytest.skip("nobody says who wrote these digits")
        train, test = owners(found)
        assert (len(set(train)), len(set(test))) == (539, 297)
        assert not set(train) & set(test)
        measured(found)

    def test_femnist_by_writer(self, real_data: Callable[[str], Path]) -> None:
        found = load("femnist", str(real_data("femnist")))
        assert (len(found.train), len(found.test)) == (41495, 4763)
        train, test = owners(found)
        assert len(set(train)) == len(set(test)) == 300
        assert set(train) == set(test)
        assert torch.bincount(found.train.y, minlength=62).min() > 0

    def test_shakespeare_by_role(self, real_data: Callable[[str], Path]) -> None:
        found = load("shakespeare", str(real_data("shakespeare")))
        assert (len(found.train), len(found.test)) == (3335127, 771051)
        assert len(found.user_names) == 799
        held = json.loads((real_data("shakespeare") / "shakespeare/users.json").read_text())["text"]
        for user in (0, 17, 798):
            ruled = by_the_rule(held[found.user_names[user]])
            for pool, users, pairs in zip(
                (found.train, found.test), (found.users, found.test_users), ruled, strict=True
            ):
                rows = np.flatnonzero(users == user)
                assert len(rows) == len(pairs)
                some = [0, len(pairs) // 2, len(pairs) - 1]
                letters = [ALPHABET[place] for place in pool.y[rows[some]].tolist()]
                assert list(zip(said(pool.x[rows[some]]), letters, strict=True)) == [pairs[at] for at in some]

    @pytest.mark.parametrize("name", ["cifar10", "cifar100"])
    def test_cifar(self, name: str) -> None:
        if held(name) is None:
            pytest.skip(f"$HEADWAY_DATA has no {name}")
        found = load(name, None)
        assert torch.bincount(found.train.y).tolist() == [50000 // found.classes] * found.classes
        assert torch.bincount(found.test.y).tolist() == [10000 // found.classes] * found.classes
        measured(found)
