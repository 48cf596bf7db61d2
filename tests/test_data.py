"""Batches read every sample once, cohorts are fair, files are read or refused."""

from __future__ import annotations

import gzip
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from headway.data.batches import BatchPlan, plan
from headway.data.federation import Federation, Samples
from headway.data.own_data import federate
from headway.data.participation import cohort
from headway.data.sources import data_folder, load
from headway.data.sources.mnist import read_idx
from headway.errors import UserError
from headway.scenario import Scenario

quick = settings(deadline=None, max_examples=60)

# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(found: BatchPlan) -> list[int]:
    """The samples of a plan in the order they are read, padding left out."""
    batches = zip(found.rows, found.counts, strict=True)
    return [int(sample) for rows, count in batches for sample in rows[:count]]


ROWS = st.lists(st.integers(0, 10**6), min_size=1, max_size=30, unique=True).map(np.array)
SIZES = st.integers(1, 35)
EPOCHS = st.integers(1, 4)
ORDERS = st.sampled_from(["reshuffled", "continued"])


class TestPlan:
    @quick
    @given(ROWS, SIZES, EPOCHS, ORDERS)
    def test_an_epoch_reads_every_sample_exactly_once(
        self, rows: np.ndarray, size: int, epochs: int, order: str
    ) -> None:
        found = plan(Scenario(batch_size=size, epochs=epochs, batches=order), rows, 0, 1, 2, 0)
        for epoch in range(epochs):
            steps = found.epochs == epoch
            one = BatchPlan(found.rows[steps], found.counts[steps], found.epochs[steps])
            assert sorted(read(one)) == sorted(rows.tolist())
        assert np.array_equal(found.epochs, np.repeat(np.arange(epochs), len(found) // epochs))

    @quick
    @given(ROWS, SIZES, EPOCHS)
    def test_the_last_partial_batch_is_kept_and_padded_with_its_own_first_row(
        self, rows: np.ndarray, size: int, epochs: int
    ) -> None:
        found = plan(Scenario(batch_size=size, epochs=epochs), rows, 0, 1, 2, 0)
        width = min(size, len(rows))
        whole, rest = divmod(len(rows), width)
        assert found.counts.tolist() == ([width] * whole + [rest] * (rest > 0)) * epochs
        assert found.rows.shape == (len(found), width)
        for batch, count in zip(found.rows, found.counts, strict=True):
            assert set(batch[count:]) <= {batch[0]}

    @quick
    @given(ROWS, SIZES, st.integers(1, 50), ORDERS, st.integers(0, 40))
    def test_steps_take_the_place_of_epochs(
        self, rows: np.ndarray, size: int, steps: int, order: str, cursor: int
    ) -> None:
        scenario = Scenario(batch_size=size, steps=steps, epochs=3, batches=order)
        found = plan(scenario, rows, 0, 1, 2, cursor)
        assert len(found) == len(found.rows) == len(found.epochs) == steps
        assert found.epochs[0] == 0
        assert set(np.diff(found.epochs)) <= {0, 1}

    @quick
    @given(ROWS, SIZES, st.lists(st.integers(1, 12), min_size=1, max_size=5))
    def test_continued_rounds_join_to_one_long_round(self, rows: np.ndarray, size: int, rounds: list[int]) -> None:
        """The stream does not know where rounds end, how long they are or in which round the client was there."""
        scenario = Scenario(batch_size=size, batches="continued")
        pieces, cursor = [], 0
        for number, steps in enumerate(rounds):
            pieces.append(plan(scenario.changed(steps=steps), rows, 0, 1 + 7 * number, 2, cursor))
            cursor += len(pieces[-1])
        together = plan(scenario.changed(steps=cursor), rows, 0, 1, 2, 0)
        assert np.array_equal(np.concatenate([piece.rows for piece in pieces]), together.rows)
        assert np.array_equal(np.concatenate([piece.counts for piece in pieces]), together.counts)

    def test_epochs_of_a_continued_round_are_counted_from_where_it_starts(self) -> None:
        scenario = Scenario(batch_size=2, steps=5, batches="continued")
        assert plan(scenario, np.arange(6), 0, 1, 0, 4).epochs.tolist() == [0, 0, 1, 1, 1]

    def test_a_cursor_has_no_effect_on_reshuffled_batches(self) -> None:
        first, second = (plan(Scenario(batch_size=2), np.arange(9), 0, 1, 0, cursor) for cursor in (0, 5))
        assert np.array_equal(first.rows, second.rows)

    @pytest.mark.parametrize("order", ["reshuffled", "continued"])
    def test_the_order_is_fixed_by_seed_and_client(self, order: str) -> None:
        scenario = Scenario(batch_size=4, batches=order)
        orders = {(s, c): tuple(read(plan(scenario, np.arange(20), s, 1, c, 0))) for s in (0, 1) for c in (0, 1, 2)}
        assert len(set(orders.values())) == 6
        assert tuple(read(plan(scenario, np.arange(20), 1, 1, 2, 0))) == orders[1, 2]

    def test_only_reshuffled_batches_differ_by_round(self) -> None:
        def orders(order: str) -> set[tuple[int, ...]]:
            scenario = Scenario(batch_size=4, epochs=1, batches=order)
            return {tuple(read(plan(scenario, np.arange(20), 0, round, 0, 0))) for round in range(1, 11)}

        assert len(orders("reshuffled")) == 10
        assert len(orders("continued")) == 1

    def test_epochs_of_one_round_differ(self) -> None:
        order = read(plan(Scenario(batch_size=4, epochs=3), np.arange(20), 0, 1, 0, 0))
        assert len({tuple(order[start : start + 20]) for start in (0, 20, 40)}) == 3


# ── participation ────────────────────────────────────────────────────────────────────────────────────────────────────


class TestCohort:
    @quick
    @given(st.integers(1, 60), st.data(), st.integers(0, 2**32), st.integers(1, 10**6))
    def test_clients_are_there_once_and_fixed_by_seed_and_round(
        self, population: int, data: st.DataObject, seed: int, round: int
    ) -> None:
        size = data.draw(st.integers(1, population))
        found = cohort(population, size, seed, round)
        assert len(found) == len(set(found)) == size
        assert all(type(client) is int and 0 <= client < population for client in found)
        assert found == cohort(population, size, seed, round)

    def test_everybody_comes_in_order_of_id(self) -> None:
        assert cohort(9, 9, 0, 3) == list(range(9))

    def test_rounds_and_seeds_differ(self) -> None:
        assert len({tuple(cohort(50, 5, seed, round)) for seed in range(4) for round in range(1, 26)}) == 100

    def test_clients_and_pairs_of_them_are_chosen_equally_often(self) -> None:
        """4,000 rounds of 3 out of 8: a client comes with p = 3/8, a pair with p = 3/28; 4.5 deviations each."""
        rounds = 4000
        chosen = [cohort(8, 3, 0, round) for round in range(1, rounds + 1)]
        singles = Counter(itertools.chain.from_iterable(chosen))
        pairs = Counter(pair for found in chosen for pair in itertools.combinations(sorted(found), 2))
        assert len(singles) == 8
        assert len(pairs) == 28
        for counts, p in ((singles, 3 / 8), (pairs, 3 / 28)):
            bound = 4.5 * np.sqrt(rounds * p * (1 - p))
            assert max(abs(count - rounds * p) for count in counts.values()) < bound


# ── federation ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Squares(Dataset[tuple[list[float], int]]):
    """A map-style dataset that gives plain Python numbers."""

    def __init__(self, numbers: range) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> tuple[list[float], int]:
        number = self.numbers[index]
        return [float(number), float(number**2)], number % 3


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


TEST = (torch.zeros(4, 2), torch.tensor([0, 1, 2, 1]))


class TestFederate:
    def test_torch_datasets_pairs_of_arrays_and_of_tensors_mean_the_same(self) -> None:
        dataset = Squares(range(5))
        x = np.array([[float(n), float(n**2)] for n in range(5)], np.float32)
        y = np.array([n % 3 for n in range(5)])
        tensors = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        spelled = [dataset, (x, y), [torch.from_numpy(x), torch.from_numpy(y)], tensors, Subset(tensors, range(5))]
        for client in spelled:
            found = federate([client], TEST)
            assert torch.equal(found.train.x, torch.from_numpy(x))
            assert torch.equal(found.train.y, torch.from_numpy(y))
            assert found.train.x.dtype == torch.float32
            assert found.classes == 3

    def test_each_client_owns_its_rows(self) -> None:
        found = federate([Squares(range(3)), Squares(range(3, 4)), Squares(range(4, 9))], Squares(range(2)))
        assert [rows.tolist() for rows in found.clients] == [[0, 1, 2], [3], [4, 5, 6, 7, 8]]
        assert found.train.x[:, 0].tolist() == list(range(9))
        assert len(found.train) == 9
        assert len(found.test) == 2
        assert found.sample_shape == (2,)
        assert found.class_counts(2).tolist() == [1, 2, 2]

    def test_a_class_that_only_the_test_set_has_is_counted(self) -> None:
        found = federate([(torch.zeros(2, 1), torch.tensor([0, 1]))], (torch.zeros(1, 1), torch.tensor([6])))
        assert found.classes == 7
        assert found.class_counts(0).tolist() == [1, 1, 0, 0, 0, 0, 0]

    def test_targets_that_are_numbers_have_no_classes(self) -> None:
        pair = (torch.zeros(2, 1), torch.tensor([0.5, 1.5]))
        found = federate([pair], pair)
        assert found.classes == 0
        assert found.class_counts(0).shape == (0,)

    @pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32, np.int64])
    def test_labels_of_every_whole_type_can_be_learnt_from(self, kind: type) -> None:
        pair = (np.zeros((4, 2), np.float32), np.array([0, 1, 2, 1], kind))
        found = federate([pair], pair)
        for pool in (found.train, found.test):
            assert pool.y.tolist() == [0, 1, 2, 1]
            assert pool.y.dtype == torch.int64, "cross-entropy and counting by class take this type only"

    @pytest.mark.parametrize(
        ("clients", "test", "words"),
        [
            ([], TEST, "there are no clients"),
            ([(torch.zeros(3, 2), torch.zeros(2))], TEST, "client 0 has 3 samples and 2 targets"),
            ([TEST, (torch.zeros(0, 2), torch.zeros(0))], TEST, "client 1 is empty"),
            ([TEST, Squares(range(0))], TEST, "client 1 is empty"),
            ([TEST], (torch.zeros(0, 2), torch.zeros(0)), "the test set is empty"),
            ([TEST], Endless(), "the test set is neither a pair"),
            ([7], TEST, "client 0 is neither a pair"),
            ([TEST, None], TEST, "client 1 is neither a pair"),
        ],
    )
    def test_what_cannot_be_a_federation_is_refused(self, clients: list[Any], test: Any, words: str) -> None:
        with pytest.raises(UserError, match=words):
            federate(clients, test)

    @pytest.mark.parametrize(
        ("clients", "test"),
        [([TEST, (torch.zeros(4, 3), TEST[1])], TEST), ([TEST], (torch.zeros(4, 3), TEST[1]))],
        ids=["client", "test set"],
    )
    def test_samples_of_another_shape_are_refused(self, clients: list[Any], test: Any) -> None:
        with pytest.raises(UserError, match=r"shape"):
            federate(clients, test)

    @pytest.mark.parametrize(
        ("one", "other", "joined"),
        [
            (torch.float32, torch.float64, torch.float64),
            (torch.float16, torch.float32, torch.float32),
            (torch.int32, torch.int64, torch.int64),
            (torch.uint8, torch.uint8, torch.uint8),
        ],
    )
    def test_samples_of_one_kind_are_joined(self, one: torch.dtype, other: torch.dtype, joined: torch.dtype) -> None:
        clients = [(TEST[0].to(one), TEST[1]), (TEST[0].to(other), TEST[1].int())]
        found = federate(clients, clients[0])
        assert found.train.x.dtype == joined
        assert found.train.y.dtype == torch.int64

    def test_whole_and_broken_numbers_of_one_dataset_are_numbers(self) -> None:
        sample = [([1, 2], 3), ([0.5, 1.5], 2.5)]
        found = federate([Subset(sample, range(2))], Subset(sample, range(2)))  # type: ignore[arg-type]
        assert found.train.x.tolist() == [[1, 2], [0.5, 1.5]]
        assert found.train.y.tolist() == [3, 2.5]

    def test_labels_of_several_whole_types_in_one_dataset_are_labels(self) -> None:
        sample = [([0.5], np.uint8(1)), ([1.5], 2)]
        found = federate([Subset(sample, range(2))], Subset(sample, range(2)))  # type: ignore[arg-type]
        assert found.train.y.tolist() == [1, 2]

    def test_a_federation_without_clients_is_none(self) -> None:
        with pytest.raises(UserError, match="there are no clients"):
            Federation(Samples(*TEST), Samples(*TEST), [], 3)

    def test_bytes_are_normalised_for_each_channel_and_other_types_are_not(self) -> None:
        pool = Samples(torch.zeros(1, 2, 2, 2, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64))
        found = Federation(pool, pool, [np.arange(1)], 1, mean=(0.0, 0.5), std=(1.0, 0.25))
        x = torch.tensor([0, 255], dtype=torch.uint8).reshape(1, 1, 1, 2).expand(3, 2, 2, 2)
        y = found.inputs(x, torch.float64)
        assert y.dtype == torch.float64
        assert y[0, 0].tolist() == [[0, 1], [0, 1]]
        assert y[0, 1].tolist() == [[-2, 2], [-2, 2]]
        assert found.inputs(torch.full((1, 2), 3.0), torch.float64).tolist() == [[3, 3]]
        assert found.inputs(torch.tensor([[3]]), torch.float32).dtype == torch.int64


# ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def idx(array: np.ndarray) -> bytes:
    """An array of bytes in the layout of MNIST's files."""
    sizes = b"".join(int(size).to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


class TestEmbedded:
    def test_shapes_and_balance(self) -> None:
        found = load("fashion", None)
        assert found.train.x.shape == (6000, 1, 28, 28)
        assert found.test.x.shape == (2000, 1, 28, 28)
        assert found.train.x.dtype == torch.uint8
        assert found.classes == 10
        assert torch.bincount(found.train.y).tolist() == [600] * 10
        assert torch.bincount(found.test.y).tolist() == [200] * 10

    def test_the_normalisation_fits_the_images(self) -> None:
        """Mean and deviation are those of the whole Fashion-MNIST; a tenth of it comes within 2 %."""
        found = load("fashion", None)
        x = found.train.x.double() / 255
        assert float(x.mean()) == pytest.approx(found.mean[0], rel=0.02)
        assert float(x.std()) == pytest.approx(found.std[0], rel=0.02)

    def test_no_test_image_is_a_training_image(self) -> None:
        found = load("fashion", None)
        train, test = ({image.numpy().tobytes() for image in pool.x} for pool in (found.train, found.test))
        assert not train & test

    def test_another_name_is_refused_with_the_nearest(self) -> None:
        with pytest.raises(
            UserError, match=r"no data set 'fasion'; did you mean 'fashion'\? \(known: fashion, mnist, "
        ):
            load("fasion", None)


class TestIdx:
    def test_plain(self, tmp_path: Path) -> None:
        (tmp_path / "images").write_bytes(idx(IMAGES))
        found = read_idx(tmp_path / "images")
        assert np.array_equal(found, IMAGES)
        assert found.flags.writeable

    def test_packed(self, tmp_path: Path) -> None:
        (tmp_path / "images.gz").write_bytes(gzip.compress(idx(IMAGES)))
        assert np.array_equal(read_idx(tmp_path / "images"), IMAGES)

    @pytest.mark.parametrize("length", [4, 7, 15, 16, 39])
    def test_truncated(self, tmp_path: Path, length: int) -> None:
        (tmp_path / "images").write_bytes(idx(IMAGES)[:length])
        with pytest.raises(UserError, match="images is truncated"):
            read_idx(tmp_path / "images")

    def test_longer_than_promised(self, tmp_path: Path) -> None:
        (tmp_path / "images").write_bytes(idx(IMAGES) + b"\0")
        with pytest.raises(UserError, match="promises other sizes than its 41 bytes"):
            read_idx(tmp_path / "images")

    @pytest.mark.parametrize("raw", [b"", b"\0\0", b"\0\0\x0d\x01\0\0\0\0", b"PK\x03\x04junk", b"\x08\0\0\x01"])
    def test_wrong_magic(self, tmp_path: Path, raw: bytes) -> None:
        (tmp_path / "images").write_bytes(raw)
        with pytest.raises(UserError, match="images is not an idx file of bytes"):
            read_idx(tmp_path / "images")

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"images is missing; put it \(or images\.gz\) there"):
            read_idx(tmp_path / "images")

    @pytest.mark.parametrize(
        "spoil", [lambda raw: raw[:-9], lambda raw: b"no gzip at all", lambda raw: raw[:12] + raw[20:]]
    )
    def test_a_packed_file_that_is_damaged(self, tmp_path: Path, spoil: Any) -> None:
        (tmp_path / "images.gz").write_bytes(spoil(gzip.compress(idx(IMAGES))))
        with pytest.raises(UserError, match=r"images\.gz cannot be read"):
            read_idx(tmp_path / "images")

    def test_mnist_is_four_such_files(self, tmp_path: Path) -> None:
        folder = tmp_path / "MNIST" / "raw"
        folder.mkdir(parents=True)
        draw = np.random.default_rng(0)
        for part, count in (("train", 5), ("t10k", 3)):
            (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(draw.integers(0, 256, (count, 28, 28))))
            (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.arange(count))))
        found = load("mnist", str(tmp_path))
        assert found.train.x.shape == (5, 1, 28, 28)
        assert found.test.y.tolist() == [0, 1, 2]
        assert found.test.y.dtype == torch.int64
        (folder / "t10k-labels-idx1-ubyte.gz").unlink()
        with pytest.raises(UserError, match="t10k-labels-idx1-ubyte is missing"):
            load("mnist", str(tmp_path))

    def test_as_many_labels_as_images(self, tmp_path: Path) -> None:
        folder = tmp_path / "MNIST" / "raw"
        folder.mkdir(parents=True)
        for part in ("train", "t10k"):
            (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(np.zeros((3, 28, 28))))
            (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.zeros(4)))
        with pytest.raises(UserError, match=r"3.*4"):
            load("mnist", str(tmp_path))


class TestFolder:
    @pytest.fixture(autouse=True)
    def _bare(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("HEADWAY_DATA", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        for name in ("given", "environment"):
            (tmp_path / name).mkdir()

    def test_what_is_given_comes_before_the_environment_and_that_before_the_cache(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        assert data_folder(None) == tmp_path / "home" / ".cache" / "headway"
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        assert data_folder(None) == tmp_path / "cache" / "headway"
        monkeypatch.setenv("HEADWAY_DATA", str(tmp_path / "environment"))
        assert data_folder(None) == tmp_path / "environment"
        assert data_folder(str(tmp_path / "given")) == tmp_path / "given"

    def test_a_folder_that_was_asked_for_must_exist(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"the data folder .*nowhere does not exist"):
            data_folder(str(tmp_path / "nowhere"))
        monkeypatch.setenv("HEADWAY_DATA", str(tmp_path / "elsewhere"))
        with pytest.raises(UserError, match=r"the data folder .*elsewhere does not exist"):
            data_folder(None)

    def test_a_tilde_is_the_home(self, tmp_path: Path) -> None:
        (tmp_path / "home" / "sets").mkdir(parents=True)
        assert data_folder("~/sets") == tmp_path / "home" / "sets"
