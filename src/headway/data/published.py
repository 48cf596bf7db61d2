"""Where data sets are published: addresses, sizes and sums of their files, and how to get those made by hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A file of a publisher, and where it goes under the data folder."""

    url: str
    path: str
    md5: str
    size: int
    holds: tuple[str, ...] = ()
    """The files that an archive unpacks to under the data folder. The archive itself is not kept."""
    sha256: str | None = None
    """None where no source that can be checked has published one."""

    @property
    def brings(self) -> tuple[str, ...]:
        """The files that it leaves under the data folder."""
        return self.holds or (self.path,)


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

Fashion-MNIST's own server does not offer https, so its files come from the publisher's repository.
"""

_LEAF = "make it with LEAF (github.com/TalwalkarLab/leaf, data/{name}) and put data/train and data/test in {name}/"
BY_HAND: dict[str, str] = {
    "femnist": _LEAF.format(name="femnist"),
    "shakespeare": _LEAF.format(name="shakespeare"),
    "shakespeare-text": "make it with LEAF (github.com/TalwalkarLab/leaf, data/shakespeare) and put data/all_data in "
    "shakespeare/",
    "celeba": _LEAF.format(name="celeba")
    + " and the images of CelebA (mmlab.ie.cuhk.edu.hk/projects/CelebA.html) in celeba/raw/img_align_celeba/",
}
"""How to get the data sets for which no file with a sum is published."""


def hint(name: str, *, again: bool = False) -> str:
    """The end of an error about a missing or, with `again`, a damaged file: how to get the data set; "" if unknown."""
    if name in PUBLISHED:
        return f"; {'delete it, then ' if again else ''}'headway data get {name}' downloads it"
    return f"; {BY_HAND[name]} of the data folder" if name in BY_HAND else ""
