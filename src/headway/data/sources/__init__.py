"""Data sets by name, `name[:argument]`: the embedded one, those read from the data folder, and the user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.data import download
from headway.data.sources import arrays, cifar, huggingface, images, leaf, mnist, synthetic
from headway.data.sources.files import Damaged, Missing, data_folder
from headway.data.sources.source import PROFILES, Normalisation, Source
from headway.errors import UserError, nearest

__all__ = ["PROFILES", "SOURCES", "Entry", "Normalisation", "Source", "data_folder", "load"]


@dataclass(frozen=True)
class Entry:
    """A data set that can be asked for."""

    read: Callable[[str, str | None], Source]
    """From the argument after the colon and `data_dir`."""
    summary: str
    argument: str = ""
    """How the argument is spelled; empty where there is none."""


SOURCES: dict[str, Entry] = {
    "fashion": Entry(mnist.embedded, "6,000 + 2,000 images of Fashion-MNIST, inside the package; 10 classes"),
    "mnist": Entry(mnist.mnist, "60,000 + 10,000 digits, 28 × 28; 10 classes, by writer where writers are there"),
    "fashion-mnist": Entry(mnist.fashion_mnist, "60,000 + 10,000 garments, 28 × 28; 10 classes"),
    "cifar10": Entry(cifar.cifar10, "50,000 + 10,000 colour images, 32 × 32; 10 classes"),
    "cifar100": Entry(cifar.cifar100, "50,000 + 10,000 colour images, 32 × 32; 100 classes"),
    "tiny-imagenet": Entry(images.tiny_imagenet, "100,000 + 10,000 colour images, 64 × 64; 200 classes"),
    "femnist": Entry(leaf.femnist, "LEAF's digits and letters by writer, 28 × 28; 62 classes"),
    "celeba": Entry(leaf.celeba, "LEAF's faces by celebrity, 84 × 84 in colour; smiling or not"),
    "shakespeare": Entry(leaf.shakespeare, "LEAF's roles: the character after 80 others; 80 classes"),
    "synthetic": Entry(synthetic.synthetic, "synthetic(α, β): 60 features, 10 classes", "ALPHA,BETA[,USERS]"),
    "folder": Entry(images.folder, "images, one sub-folder for each class", "PATH"),
    "npz": Entry(arrays.npz, "NumPy arrays x_train, y_train, x_test, y_test", "PATH"),
    "hf": Entry(huggingface.huggingface, "a Hugging Face data set", "NAME[,SAMPLES,TARGETS[,USERS]]"),
}


def _spelled(name: str) -> str:
    entry = SOURCES[name]
    return f"{name}:{entry.argument}" if entry.argument else name


def load(spelled: str, data_dir: str | None) -> Source:
    """The data set `name[:argument]`; what it reads lies under the data folder."""
    name, colon, argument = spelled.partition(":")
    if name not in SOURCES:
        known = ", ".join(_spelled(known) for known in SOURCES)
        raise UserError(f"there is no data set '{name}'{nearest(name, SOURCES)} (known: {known})")
    if bool(SOURCES[name].argument) != bool(argument) or (colon and not argument):
        raise UserError(f"data is '{spelled}'; write {_spelled(name)}")
    if data_dir:
        data_folder(data_dir)  # a folder that was asked for must be there, whatever the data set needs
    try:
        return SOURCES[name].read(argument, data_dir)
    except Missing as fault:
        raise Missing(f"{fault}{download.hint(name)}") from None
    except Damaged as fault:
        raise Damaged(f"{fault}{download.hint(name, again=True)}") from None
