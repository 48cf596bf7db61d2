"""Every source reads its publisher's layout, and refuses what is missing, damaged or out of range in one line:
folders of images, Tiny-ImageNet among them, and what users bring."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from headway.data.sources import load
from source_files import DRAW, Spy, owners, picture, refused_source

# ── image files ──────────────────────────────────────────────────────────────────────────────────────────────────────


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
        refused_source("tiny-imagenet", tiny, "val_2.JPEG is missing; put it there", "headway data get tiny-imagenet")
        whole = picture(folder / "val/images/val_2.JPEG", (64, 64))
        assert whole.shape == (3, 64, 64)
        path = folder / "train/n01/images/n01_2.JPEG"
        raw = path.read_bytes()
        for content in (raw[: len(raw) // 2], b"", b"no image"):
            path.write_bytes(content)
            refused_source("tiny-imagenet", tiny, "n01_2.JPEG cannot be read as an image")
        picture(path, (64, 60))
        refused_source(
            "tiny-imagenet", tiny, "n01_2.JPEG is 64 × 60", "n03_0.JPEG is 64 × 64; they must be of one size"
        )

    def test_a_wrong_class_count_is_refused(self, tiny: Path) -> None:
        folder = tiny / "tiny-imagenet-200"
        for wnids, words in (
            (WNIDS[:2], "has 3 classes and wnids.txt lists 2: n02 is not in the list"),
            ([*WNIDS, "n09"], "n09 is missing, but wnids.txt lists that class"),
            ([*WNIDS, "n01"], "lists 4 classes, of which 3 differ"),
            ([], "lists 0 classes"),
        ):
            (folder / "wnids.txt").write_text("\n".join(wnids))
            refused_source("tiny-imagenet", tiny, words)

    def test_an_image_of_no_class_is_refused(self, tiny: Path) -> None:
        (tiny / "tiny-imagenet-200/val/val_annotations.txt").write_text("val_0.JPEG\tn77\t0\t0\t1\t1\n")
        refused_source("tiny-imagenet", tiny, "'val_0.JPEG' is of class 'n77', which wnids.txt does not list")

    def test_without_pillow_the_extra_is_named(self, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "PIL", None)
        for name in ("tiny-imagenet", "celeba"):
            refused_source(name, tiny, "pip install 'headway[images]'")


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
        refused_source(f"folder:{tmp_path / 'none'}", None, "there is no folder", "none")
        (tmp_path / "a").mkdir()
        refused_source(f"folder:{tmp_path}", None, "a holds no image")
        picture(tmp_path / "a/0.png")
        refused_source(f"folder:{tmp_path}", None, "has 1 sub-folders")
        picture(tmp_path / "b/0.png")
        refused_source(f"folder:{tmp_path}", None, "leaves no test images")
        for number in range(10):
            picture(tmp_path / f"a/{number}.png")
        picture(tmp_path / "b/0.png", (3, 3))
        refused_source(f"folder:{tmp_path}", None, "b/0.png is 3 × 3", "they must be of one size")
        (tmp_path / "b/0.png").write_bytes(b"nothing")
        refused_source(f"folder:{tmp_path}", None, "b/0.png cannot be read as an image")

    def test_both_parts_have_the_same_classes(self, tmp_path: Path) -> None:
        for place in ("train/a", "train/b", "val/a", "val/c"):
            picture(tmp_path / place / "0.png")
        refused_source(f"folder:{tmp_path}", None, "must have the same sub-folders")


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
            ({"y_train": np.array(list("abcd"))}, "give labels or numbers"),
            ({"y_train": np.array([[0, -1]] * 4)}, "label -1 is out of range"),
            ({"y_train": np.zeros(4)}, "both must be labels or both numbers"),
            ({"y_train": np.zeros(3), "y_test": np.zeros(4)}, "there are 4 samples and 3 targets"),
            ({"x_train": np.zeros((4, 3))}, "training samples have shape (3,), test samples (2,)"),
            (
                {"x_train": np.zeros((4, 2), np.uint8)},
                "training samples are uint8, test samples float32; give both alike",
            ),
            ({"x_test": np.zeros((4, 2), int)}, "training samples are float32, test samples int64; give both alike"),
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
        refused_source(name, None, "own.npz", words)

    def test_pickled_objects_are_refused(self, tmp_path: Path) -> None:
        spies = np.array([Spy(tmp_path / "made")], dtype=object)
        refused_source(packed(tmp_path / "own.npz", x_train=spies), None, "own.npz cannot be read as NumPy arrays")
        assert not (tmp_path / "made").exists()

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        refused_source(f"npz:{tmp_path}/none.npz", None, f"there is no file {tmp_path}/none.npz")


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
        features = {"f": kind("Sequence"), "t": kind("Value")}
        whole, broken = (Split(features, {"f": [[0.5], [1.5]], "t": targets}) for targets in ([0, 1], [0.0, 0.7]))
        hub["targets"] = {"train": whole, "test": broken}
        refused_source("hf:one", None, "'one' has the splits train; it must have train and test")
        refused_source("hf:mixed", None, "shapes (3, 4, 4) and (3, 5, 5)")
        refused_source("hf:empty", None, "'empty' has an empty split")
        refused_source("hf:text", None, "name two of t, l: hf:text,SAMPLES,TARGETS")
        refused_source("hf:good,image,nope", None, "has no column 'nope'; it has image, label, who")
        refused_source("hf:good,image", None, "write hf:NAME, hf:NAME,SAMPLES,TARGETS")
        refused_source("hf:good,image,who", None, "'who' holds no numbers")
        refused_source(
            "hf:targets,f,t", None, "'t' is int64 in train and float64 in test", "both must be labels or both"
        )
        refused_source("hf:nobody/none", None, "'nobody/none' cannot be loaded")

    def test_without_the_library_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        refused_source("hf:me/set", None, "pip install 'headway[huggingface]'")
