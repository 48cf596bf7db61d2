"""Image files: decoding, Tiny-ImageNet-200, and any folder with one sub-folder for each class."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from types import ModuleType

import numpy as np

from headway.data.sources.files import Damaged, Missing, cause, check_plain, data_folder, read_lines
from headway.data.sources.source import Source, check_alike, samples_of, statistics
from headway.errors import UserError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
EVERY = 10
"""In a folder without a test set, every tenth image of each class is a test image."""


def pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError:
        raise UserError("image files need Pillow, which is not installed: pip install 'headway[images]'") from None
    return Image


def _decoded(path: Path, mode: str, resize: tuple[int, int] | None) -> np.ndarray:
    """One image, shape (channels, height, width); `resize` is (width, height), bilinear."""
    image = pillow()
    check_plain(path)
    try:
        with image.open(path) as opened:
            found = opened.convert(mode)
            if resize is not None:
                found = found.resize(resize, image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, EOFError, image.DecompressionBombError) as fault:
        raise Damaged(f"{path} cannot be read as an image: {cause(fault)}") from None
    pixels = np.asarray(found)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def read_images(paths: Sequence[Path], mode: str = "RGB", resize: tuple[int, int] | None = None) -> np.ndarray:
    """All images, uint8 (n, channels, height, width); they must be of one size. They are decoded in threads."""
    assert paths
    first = _decoded(paths[0], mode, resize)
    images = np.empty((len(paths), *first.shape), np.uint8)

    def place(row: int) -> None:
        image = _decoded(paths[row], mode, resize)
        if image.shape != first.shape:
            (_, height, width), (_, high, wide) = image.shape, first.shape
            raise Damaged(
                f"{paths[row]} is {width} × {height}, {paths[0]} is {wide} × {high}; they must be of one size"
            )
        images[row] = image

    with ThreadPoolExecutor() as threads:
        for _ in threads.map(place, range(len(paths))):
            pass
    return images


def _inside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


# ── Tiny-ImageNet-200 ────────────────────────────────────────────────────────────────────────────────────────────────


def _tiny_train(folder: Path, classes: dict[str, int]) -> list[tuple[Path, int]]:
    """Every training image, with its label."""
    train = folder / "train"
    held = {path.name for path in train.iterdir() if path.is_dir()} if train.is_dir() else set()
    if absent := [wnid for wnid in classes if wnid not in held]:
        raise Missing(f"{train / absent[0]} is missing, but wnids.txt lists that class; put it there")
    if extra := held - set(classes):
        raise Damaged(
            f"{train} has {len(held)} classes and wnids.txt lists {len(classes)}: {min(extra)} is not in the list"
        )
    return [(path, label) for wnid, label in classes.items() for path in _inside(train / wnid / "images")]


def _tiny_test(folder: Path, classes: dict[str, int]) -> list[tuple[Path, int]]:
    """Every test image, with its label."""
    listed = folder / "val" / "val_annotations.txt"
    images = []
    for line in read_lines(listed):
        name, wnid = [*line.split("\t"), "", ""][:2]
        if wnid not in classes:
            raise Damaged(f"{listed}: '{name}' is of class '{wnid}', which wnids.txt does not list")
        images.append((folder / "val" / "images" / Path(name).name, classes[wnid]))
    return images


def tiny_imagenet(argument: str, data_dir: str | None) -> Source:
    """100,000 + 10,000 colour images of 64 × 64 in `tiny-imagenet-200/`; the validation images are the test set.

    The class is the place in `wnids.txt`. Training rows: class by class, sorted by file name.
    """
    folder = data_folder(data_dir) / "tiny-imagenet-200"
    wnids = read_lines(folder / "wnids.txt")
    classes = {wnid: label for label, wnid in enumerate(wnids)}
    if len(classes) != len(wnids) or not wnids:
        raise Damaged(f"{folder / 'wnids.txt'} lists {len(wnids)} classes, of which {len(classes)} differ")
    pillow()
    parts = []
    for images in (_tiny_train(folder, classes), _tiny_test(folder, classes)):
        if not images:
            raise Damaged(f"{folder}: there are no images")
        paths, labels = zip(*images, strict=True)
        parts.append(samples_of(read_images(paths), np.array(labels), len(classes), folder))
    check_alike(parts[0], parts[1], folder)
    return Source(
        parts[0],
        parts[1],
        len(classes),
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
        class_names=tuple(wnids),
        citation="Tiny-ImageNet-200 (Stanford CS231n, from ImageNet), for non-commercial research",
    )


# ── any folder ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _classes(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _labelled(folder: Path, names: list[str]) -> list[list[Path]]:
    found = [_inside(folder / name) for name in names]
    for name, paths in zip(names, found, strict=True):
        if not paths:
            raise UserError(f"{folder / name} holds no image ({', '.join(sorted(SUFFIXES))})")
    return found


def _split(folder: Path) -> tuple[list[str], list[list[Path]], list[list[Path]]]:
    """Names of the classes, and the training and the test images of each."""
    tests = [folder / name for name in ("test", "val") if (folder / name).is_dir()]
    if (folder / "train").is_dir() and tests:
        names = _classes(folder / "train")
        if _classes(tests[0]) != names:
            raise UserError(
                f"{folder / 'train'} and {tests[0]} have other classes; each must have the same sub-folders"
            )
        return names, _labelled(folder / "train", names), _labelled(tests[0], names)
    names = _classes(folder)
    images = _labelled(folder, names)
    test = [paths[EVERY - 1 :: EVERY] for paths in images]
    train = [[path for at, path in enumerate(paths) if at % EVERY != EVERY - 1] for paths in images]
    return names, train, test


def folder(argument: str, data_dir: str | None) -> Source:
    """Images of `PATH/train/CLASS/` and `PATH/test/CLASS/` (or `val`), else of `PATH/CLASS/` with each tenth for tests.

    Classes are numbered in the order of their names. Where all images are grey they have one channel.
    """
    place = Path(argument).expanduser()
    if not place.is_dir():
        raise UserError(f"there is no folder {place}; write folder:PATH with one sub-folder for each class")
    names, train, test = _split(place)
    if len(names) < 2:
        raise UserError(f"{place} has {len(names)} sub-folders; there must be one for each class, at least two")
    if not any(test):
        raise UserError(f"{place} leaves no test images: give {EVERY} images to a class, or folders train and test")
    mode = _mode(list(chain(*train, *test)))
    images, images_test = (read_images(list(chain(*part)), mode) for part in (train, test))
    labels, labels_test = (np.repeat(np.arange(len(names)), list(map(len, part))) for part in (train, test))
    samples = samples_of(images, labels, len(names), place)
    samples_test = samples_of(images_test, labels_test, len(names), place)
    check_alike(samples, samples_test, place)
    own = statistics(images)
    return Source(samples, samples_test, len(names), own.mean, own.std, class_names=tuple(names))


def _mode(paths: Sequence[Path]) -> str:
    """L where every image is grey, else RGB. Only the heads of the files are read."""
    image = pillow()
    for path in paths:
        check_plain(path)
        try:
            with image.open(path) as opened:
                if opened.mode not in ("1", "L"):
                    return "RGB"
        except (OSError, SyntaxError, ValueError, image.DecompressionBombError) as fault:
            raise Damaged(f"{path} cannot be read as an image: {cause(fault)}") from None
    return "L"
