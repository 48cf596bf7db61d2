"""The table of data sets, `name[:argument]`: the embedded one, those of the data folder, and files of the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headway.data import published
from headway.data.sources import arrays, cifar, huggingface, images, leaf, mnist, synthetic, token_blocks
from headway.data.sources.files import Damaged, Missing, data_folder, named_folder, readable
from headway.data.sources.source import Normalisation, Source
from headway.errors import UserError, nearest
from headway.scenario_names import PROFILES

__all__ = ["PROFILES", "SOURCES", "Entry", "Normalisation", "Source", "data_folder", "load", "named_folder", "present"]


@dataclass(frozen=True)
class Entry:
    """A line of the table of data sets."""

    read: Callable[[str, str | None], Source]
    """Reads the data set, given the argument after the colon and `data_dir`."""
    summary: str
    argument: str = ""
    """How errors write the argument; empty where the data set has none."""
    optional: bool = False
    """Whether the argument may be left out."""
    layouts: tuple[tuple[str, ...], ...] = ()
    """Patterns of the files under the data folder, for each layout that is understood; empty without files."""


def _idx(folder: str) -> tuple[tuple[str, ...], ...]:
    return (
        tuple(f"{folder}/raw/{part}-{of}-ubyte" for part in ("train", "t10k") for of in ("images-idx3", "labels-idx1")),
    )


def _cifar(layout: cifar.Layout) -> tuple[tuple[str, ...], ...]:
    parts = (*layout.train, layout.test)
    return tuple(f"{layout.binary}/{part}.bin" for part in parts), tuple(f"{layout.python}/{part}" for part in parts)


def _leaf(name: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(f"{name}/{data}{part}/*.json" for part in ("train", "test")) for data in ("", "data/"))


SOURCES: dict[str, Entry] = {
    "fashion": Entry(mnist.embedded, "6,000 + 2,000 images of Fashion-MNIST, inside the package; 10 classes"),
    "mnist": Entry(
        mnist.mnist,
        "60,000 + 10,000 digits, 28 × 28; 10 classes, by writer where writers are there",
        layouts=_idx("MNIST"),
    ),
    "fashion-mnist": Entry(
        mnist.fashion_mnist, "60,000 + 10,000 garments, 28 × 28; 10 classes", layouts=_idx("FashionMNIST")
    ),
    "cifar10": Entry(
        cifar.cifar10, "50,000 + 10,000 colour images, 32 × 32; 10 classes", layouts=_cifar(cifar.CIFAR10)
    ),
    "cifar100": Entry(
        cifar.cifar100, "50,000 + 10,000 colour images, 32 × 32; 100 classes", layouts=_cifar(cifar.CIFAR100)
    ),
    "tiny-imagenet": Entry(
        images.tiny_imagenet,
        "100,000 + 10,000 colour images, 64 × 64; 200 classes",
        layouts=(
            (
                "tiny-imagenet-200/wnids.txt",
                "tiny-imagenet-200/val/val_annotations.txt",
                "tiny-imagenet-200/train/*/images",
            ),
        ),
    ),
    "femnist": Entry(
        leaf.femnist,
        "LEAF's digits and letters by writer, 28 × 28; 62 classes",
        layouts=(("femnist/train.npz", "femnist/test.npz"), *_leaf("femnist")),
    ),
    "celeba": Entry(
        leaf.celeba, "LEAF's faces by celebrity, 84 × 84 in colour; smiling or not", layouts=_leaf("celeba")
    ),
    "shakespeare": Entry(
        leaf.shakespeare,
        "LEAF's roles: the character after 80 others; 80 classes",
        layouts=(("shakespeare/users.json",), *_leaf("shakespeare")),
    ),
    "shakespeare-text": Entry(
        token_blocks.shakespeare_text,
        "Shakespeare by role, in blocks of characters (80) with a target for each; 80 classes",
        "LENGTH",
        optional=True,
        layouts=(("shakespeare/users.json",), ("shakespeare/all_data/*.json",), ("shakespeare/data/all_data/*.json",)),
    ),
    "synthetic": Entry(synthetic.synthetic, "synthetic(α, β): 60 features, 10 classes", "ALPHA,BETA[,USERS]"),
    "folder": Entry(images.folder, "images, one sub-folder for each class", "PATH"),
    "npz": Entry(arrays.npz, "NumPy arrays x_train, y_train, x_test, y_test", "PATH"),
    "hf": Entry(huggingface.huggingface, "a Hugging Face data set", "NAME[,SAMPLES,TARGETS[,USERS]]"),
}


def _spelled(name: str) -> str:
    entry = SOURCES[name]
    argument = f":{entry.argument}" if entry.argument else ""
    return f"{name}[{argument}]" if entry.optional else f"{name}{argument}"


def present(name: str, folder: Path) -> bool:
    """Whether the data folder has all files of one of the data set's layouts; the files are not opened."""

    def there(pattern: str) -> bool:
        return any(folder.glob(pattern)) or (folder / f"{pattern}.gz").is_file()

    layouts = SOURCES[name].layouts
    with readable(folder):
        return not layouts or any(all(there(pattern) for pattern in layout) for layout in layouts)


def load(spelled: str, data_dir: str | None) -> Source:
    """The data set `name[:argument]`; its files are read from the data folder."""
    name, colon, argument = spelled.partition(":")
    if name not in SOURCES:
        known = ", ".join(_spelled(known) for known in SOURCES)
        raise UserError(f"there is no data set '{name}'{nearest(name, SOURCES)} (known: {known})")
    entry = SOURCES[name]
    left_out = bool(entry.argument) and not (argument or entry.optional)
    if left_out or (argument and not entry.argument) or (colon and not argument):
        raise UserError(f"data is '{spelled}'; write {_spelled(name)}")
    try:
        with readable(f"data '{spelled}'"):
            if data_dir:
                data_folder(data_dir)  # a folder that was given must exist, even for a data set without files
            return entry.read(argument, data_dir)
    except Missing as fault:
        raise Missing(f"{fault}{published.hint(name)}") from None
    except Damaged as fault:
        raise Damaged(f"{fault}{published.hint(name, again=True)}") from None
