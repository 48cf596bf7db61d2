"""The papers' splits: what was printed of them, and what Headway draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import held
from headway.data import partition
from headway.data.partition import split
from headway.data.sources import load
from headway.data.statistics import class_counts, class_mixes, sizes
from headway.errors import UserError
from source_files import MIXES, described


def even(classes: int, samples: int) -> np.ndarray:
    return np.repeat(np.arange(classes), samples // classes)


class Replayed:
    """A generator whose Dirichlet draws are those of the authors' NumPy seed, one after another."""

    def __init__(self, seed: int) -> None:
        self.theirs, self.ours = np.random.RandomState(seed), np.random.default_rng(0)

    def dirichlet(self, *arguments: Any, **more: Any) -> np.ndarray:
        return self.theirs.dirichlet(*arguments, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ours, name)


ACCEPTED = {
    (10, "0.3", 100): (("7.9", ".48", "4.2", "1.10"), (0.15, 0.016, 0.14, 0.024)),
    (10, "0.3", 500): (("6.7", ".47", "4.1", "1.12"), (0.054, 0.008, 0.042, 0.008)),
    (10, "0.6", 100): (("9.3", ".36", "5.8", ".87"), (0.11, 0.012, 0.14, 0.020)),
    (10, "0.6", 500): (("8.4", ".36", "5.6", ".89"), (0.032, 0.005, 0.044, 0.007)),
    (100, "0.3", 100): (("57", ".10", "34", "1.18"), (0.26, 0.0025, 0.26, 0.004)),
    (100, "0.3", 500): (("36", ".116", "27", "1.28"), (0.11, 0.0015, 0.13, 0.0023)),
    (100, "0.6", 100): (("73", ".072", "48", ".96"), (0.39, 0.0028, 0.39, 0.005)),
    (100, "0.6", 500): (("45", ".085", "36", "1.10"), (0.25, 0.0012, 0.27, 0.005)),
    (200, "0.3", 100): (("115", ".062", "67", "1.18"), (0.55, 0.0015, 0.47, 0.003)),
    (200, "0.3", 500): (("72", ".069", "53", "1.28"), (0.27, 0.0006, 0.24, 0.0027)),
    (200, "0.6", 100): (("147", ".041", "96", ".96"), (0.61, 0.0007, 0.53, 0.004)),
    (200, "0.6", 500): (("89", ".049", "70", "1.11"), (0.25, 0.0005, 0.30, 0.0025)),
}
"""Classes, α, clients: the four statistics of the split of FedACG's program of 2024 (one draw of a random split, as
printed), and how much each varies from split to split: its standard deviation over 12 to 20 splits."""

ROWS = pytest.mark.parametrize(("classes", "alpha", "clients"), ACCEPTED, ids=lambda value: str(value))


def unit(printed: str) -> float:
    """One of the last printed digit; some of the printed numbers are rounded, some cut off."""
    return 10.0 ** -len(printed.partition(".")[2])


def within_sampling_error(found: dict[str, Any], row: tuple[int, str, int]) -> None:
    """Two draws differ with the deviation √2 σ: three of them, and the rounding."""
    for name, printed, deviation in zip(MIXES, *ACCEPTED[row], strict=True):
        assert abs(found[name] - float(printed)) <= unit(printed) + 3 * 2**0.5 * deviation, name


class TestAuthors:
    @ROWS
    def test_the_replayed_split_has_their_statistics(self, classes: int, alpha: str, clients: int) -> None:
        """p_i from NumPy's seed 0, as theirs; only which sample of a class a client gets is drawn otherwise."""
        labels = even(classes, 100_000 if classes == 200 else 50_000)
        rows = split(f"authors:{alpha}", labels, clients, 0)
        assert np.array_equal(np.sort(np.concatenate(rows)), np.arange(len(labels)))
        counts = class_counts(labels, rows, classes)
        for found, printed in zip(
            dataclasses.astuple(class_mixes(counts)), ACCEPTED[classes, alpha, clients][0], strict=True
        ):
            assert abs(found - float(printed)) <= max(1.5 * unit(printed), 0.02 * float(printed))
        if (classes, alpha, clients) == (10, "0.3", 100):
            largest = counts.max(1) / 500
            assert largest[:10].mean() == pytest.approx(0.53, abs=0.02)
            assert largest[-10:].mean() == pytest.approx(0.39, abs=0.02)
            assert class_mixes(counts).largest_share == pytest.approx(0.478, abs=0.004)
            assert class_mixes(counts).l1_to_uniform == pytest.approx(1.105, abs=0.006)

    def test_the_first_client_has_the_first_draw_of_numpys_seed_0(self) -> None:
        """Before classes run out a client's shares are its p_i, up to the error of drawing 500 samples."""
        labels = even(10, 50_000)
        counts = class_counts(labels, split("authors:0.3", labels, 100, 0), 10)
        drawn = np.random.RandomState(0).dirichlet(np.full(10, 0.3))
        assert np.abs(counts[0] / 500 - drawn).max() < 3 * np.sqrt(0.25 / 500)

    def test_it_depends_on_no_seed(self) -> None:
        labels = even(10, 1000)
        with pytest.raises(UserError, match=r"split_seed is 3, but partition authors:0\.3 is one split"):
            split("authors:0.3", labels, 10, 3)

    @pytest.mark.parametrize("clients", [100, 500])
    @pytest.mark.parametrize("alpha", ["0.3", "0.6"])
    @pytest.mark.parametrize("classes", [10, 100])
    def test_the_command_says_so_of_the_real_files(
        self, classes: int, alpha: str, clients: int, real_data: Callable[[str], Path]
    ) -> None:
        name = f"cifar{classes}"
        if classes == 100 and held(name) is None:
            pytest.skip(f"$HEADWAY_DATA has no {name}")
        where = ("--data-dir", str(real_data(name)))
        found = described(name, "--partition", f"authors:{alpha}", "--clients", str(clients), *where)
        for measure, printed in zip(MIXES, ACCEPTED[classes, alpha, clients][0], strict=True):
            assert abs(found[measure] - float(printed)) <= max(1.5 * unit(printed), 0.02 * float(printed))
        assert found["size_min"] == found["size_max"] == 50_000 // clients


class TestDirichlet:
    @ROWS
    def test_its_own_draws_are_within_sampling_error(self, classes: int, alpha: str, clients: int) -> None:
        labels = even(classes, 100_000 if classes == 200 else 50_000)
        counts = class_counts(labels, split(f"dirichlet:{alpha}", labels, clients, 1), classes)
        within_sampling_error(dataclasses.asdict(class_mixes(counts)), (classes, alpha, clients))

    def test_a_neighbouring_alpha_is_not_within_sampling_error(self) -> None:
        labels = even(10, 50_000)
        for alpha in ("0.2", "0.45"):
            counts = class_counts(labels, split(f"dirichlet:{alpha}", labels, 100, 1), 10)
            with pytest.raises(AssertionError):
                within_sampling_error(dataclasses.asdict(class_mixes(counts)), (10, "0.3", 100))

    @pytest.mark.parametrize(("classes", "alpha", "clients"), [row for row in ACCEPTED if row[0] < 200], ids=str)
    def test_the_command_says_so_of_the_real_files(self, classes: int, alpha: str, clients: int) -> None:
        name = f"cifar{classes}"
        folder = held(name)
        if folder is None:
            pytest.skip(f"$HEADWAY_DATA has no {name}")
        found = described(
            name, "--partition", f"dirichlet:{alpha}", "--clients", str(clients), "--data-dir", str(folder)
        )
        within_sampling_error(found, (classes, alpha, clients))
        assert found["size_min"] == found["size_max"] == 50_000 // clients


DIGITS = np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
"""The labels of MNIST's training set, sorted."""

FIXTURES = {
    ("mnist", "1"): ((220, 555, 1107), 0, 0, 0.16, 10),
    ("mnist", "0.1"): ((6, 393, 2842), 8, 0, 0.34, 5.8),
    ("mnist", "0.01"): ((2, 8, 5892), 61, 37, 0.69, 2.7),
    ("cifar10", "1"): ((185, 465, 907), 0, 0, 0.16, 10),
    ("cifar10", "0.1"): ((6, 328, 2397), 11, 0, 0.34, 5.7),
    ("cifar10", "0.01"): ((2, 7, 4995), 61, 39, 0.69, 2.6),
    ("cifar100", "1"): ((398, 495, 643), 0, 0, 0.12, 90),
    ("cifar100", "0.1"): ((182, 474, 988), 0, 0, 0.16, 37),
    ("cifar100", "0.01"): ((3, 498, 1450), 6, 0, 0.23, 9),
}
"""Data, ω: least, median and largest size of 100 workers, how many have fewer than 64 samples and how many exactly 2,
the share of the 10 largest, classes of a worker; GradMA's program of 2023 with seed 0."""


def labels_of(name: str) -> np.ndarray:
    return DIGITS if name == "mnist" else even(int(name.removeprefix("cifar")), 50_000)


class TestGradma:
    @pytest.mark.parametrize(("name", "omega"), FIXTURES)
    def test_with_the_authors_shares_it_has_their_sizes(
        self, name: str, omega: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """q_c from NumPy's seed 5363, as theirs; the two samples that everybody takes first are drawn otherwise."""
        monkeypatch.setattr(partition, "generator", lambda *_: Replayed(5363))
        labels = labels_of(name)
        rows = split(f"gradma:{omega}", labels, 100, 0)
        (least, median, largest), few, two, top, classes = FIXTURES[name, omega]
        found = sizes(rows, len(labels))
        assert abs(found.size_min - least) <= 5
        assert abs(found.size_median - median) <= 3
        assert abs(found.size_max - largest) <= 5
        assert found.left_out == 0
        held = np.sort([len(own) for own in rows])
        assert (held < 64).sum() == few
        assert abs((held == 2).sum() - two) <= 3
        assert held[-10:].sum() / len(labels) == pytest.approx(top, abs=0.006)
        present = class_mixes(class_counts(labels, rows, int(labels.max()) + 1)).classes_present
        assert present == pytest.approx(classes, rel=0.03)

    @pytest.mark.parametrize("omega", ["1", "0.1", "0.01"])
    def test_mnist_itself(self, omega: str, real_data: Callable[[str], Path]) -> None:
        """Our own draw: three deviations of √2 σ, with σ over 60 splits."""
        folder = str(real_data("mnist"))
        found = described("mnist", "--partition", f"gradma:{omega}", "--clients", "100", "--data-dir", folder)
        deviations = {"1": (43, 11.4, 116, 0.025), "0.1": (5.1, 41, 593, 0.145), "0.01": (0, 9.3, 1447, 0.073)}
        sized, _, _, _, classes = FIXTURES["mnist", omega]
        names = ("size_min", "size_median", "size_max", "classes_present")
        for name, printed, deviation in zip(names, (*sized, classes), deviations[omega], strict=True):
            assert abs(found[name] - printed) <= 0.06 + 3 * 2**0.5 * deviation, name
        assert (found["samples"], found["test_samples"], found["classes"]) == (60000, 10000, 10)
        assert (found["clients"], found["left_out"]) == (100, 0)

    def test_the_labels_of_mnist_are_those_counted_here(self, real_data: Callable[[str], Path]) -> None:
        assert np.array_equal(np.sort(load("mnist", str(real_data("mnist"))).train.y.numpy()), DIGITS)

    def test_mnist_by_writer(self, real_data: Callable[[str], Path]) -> None:
        folder = real_data("mnist")
        if not (folder / "MNIST/raw/train-writers.npy").is_file():
            pytest.skip(f"{folder} does not say who wrote MNIST")
        whole = described("mnist", "--partition", "natural", "--data-dir", str(folder))
        assert (whole["clients"], whole["users"], whole["left_out"]) == (539, 539, 0)
        some = described("mnist", "--partition", "natural", "--clients", "100", "--data-dir", str(folder))
        assert some["clients"] == 100
        assert 0 < some["left_out"] < 60000
