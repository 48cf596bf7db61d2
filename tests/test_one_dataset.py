"""One dataset of a user's that a partition shares among clients, and loaders in the place of datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset, WeightedRandomSampler

import headway as hw
from headway.data.partition import split as rows_of
from headway.errors import UserError

X = torch.randn(120, 6, generator=torch.Generator().manual_seed(3))
Y = torch.arange(120) % 3
DATA, TEST = TensorDataset(X, Y), TensorDataset(X[:30], Y[:30])
SETTINGS: dict[str, Any] = {"rounds": 2, "cohort_size": 3, "steps": 2, "device": "cpu", "executor": "serial"}


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(6, 3)


def numbers(result: hw.Result) -> list[float]:
    return [record["train_loss"] for record in result.records]


@pytest.mark.parametrize("partition", ["iid", "dirichlet:0.5", "shards:2"])
def test_the_shares_are_those_of_the_table(partition: str) -> None:
    """Each sample is in the share in which the partition puts its row."""
    shares = hw.split(DATA, partition, 6, seed=4)
    expected = rows_of(partition, Y.numpy(), 6, 4)
    assert len(shares) == 6
    for (x, y), rows in zip(shares, expected, strict=True):
        assert isinstance(x, Tensor)
        assert isinstance(y, Tensor)
        assert torch.equal(x, X[torch.as_tensor(rows)])
        assert torch.equal(y, Y[torch.as_tensor(rows)])


def test_one_dataset_with_a_partition_is_its_shares_as_clients(tmp_path: Path) -> None:
    given = {"model": model(), "test": TEST, **SETTINGS}
    whole = hw.simulate("fedavg", data=DATA, partition="dirichlet:0.5", clients=6, split_seed=4, **given)
    shares = hw.split(DATA, "dirichlet:0.5", 6, seed=4)
    apart = hw.simulate("fedavg", clients=shares, out=tmp_path / "run", **given)
    assert numbers(whole) == numbers(apart)
    named = hw.simulate("fedavg", clients={f"site {at}": share for at, share in enumerate(shares)}, **given)
    assert numbers(named) == numbers(apart)
    longer = hw.resume(tmp_path / "run", rounds=4, clients=shares, model=model(), test=TEST)
    assert numbers(longer)[:2] == numbers(whole)
    assert len(longer.records) == 4


def test_a_pair_of_arrays_and_a_comparison() -> None:
    given = {"model": model(), "test": TEST, **SETTINGS}
    pair = (X.numpy(), Y.numpy())
    study = hw.compare(["fedavg", "fedacg"], data=pair, partition="iid", clients=6, **given)
    alone = hw.simulate("fedavg", data=DATA, partition="iid", clients=6, **given)
    assert numbers(study.runs["fedavg"][0]) == numbers(alone)


def test_a_loader_is_its_dataset() -> None:
    given = {"model": model(), **SETTINGS}
    shares = [TensorDataset(X[at::6], Y[at::6]) for at in range(6)]
    loaders = [DataLoader(share, batch_size=7, shuffle=bool(at % 2)) for at, share in enumerate(shares)]
    plain = hw.simulate("fedavg", clients=shares, test=TEST, **given)
    loaded = hw.simulate("fedavg", clients=loaders, test=DataLoader(TEST, batch_size=8), **given)
    assert numbers(loaded) == numbers(plain)
    assert [one["accuracy"] for one in loaded.records] == [one["accuracy"] for one in plain.records]
    shared, same = hw.split(DataLoader(DATA), "iid", 4), hw.split(DATA, "iid", 4)
    assert all(torch.equal(a[1], b[1]) for a, b in zip(shared, same, strict=True))  # type: ignore[arg-type]


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(X[0], Y[0])])


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (DataLoader(Endless()), "a DataLoader of an IterableDataset"),
        (DataLoader(DATA, sampler=WeightedRandomSampler([1.0] * 120, 120)), "the sampler WeightedRandomSampler"),
        (DataLoader(DATA, sampler=RandomSampler(DATA, num_samples=10)), "the sampler RandomSampler"),
        (DataLoader(DATA, sampler=RandomSampler(DATA, replacement=True)), "the sampler RandomSampler"),
        (DataLoader(DATA, collate_fn=lambda items: items), "a collate_fn, which is not used"),
    ],
)
def test_a_loader_whose_choice_would_be_lost_is_refused(loader: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        hw.split(loader, "iid", 3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"data": DATA}, "needs a partition and a number of clients"),
        ({"data": DATA, "partition": "iid"}, "needs a partition and a number of clients"),
        ({"data": DATA, "clients": 4}, "needs a partition and a number of clients"),
        ({"data": DATA, "partition": "iid", "clients": [DATA]}, "needs a partition and a number of clients"),
        ({"data": DATA, "partition": "dirichlet", "clients": 4}, "dirichlet"),
        ({"data": DATA, "partition": "iid", "clients": 400}, "more than the 120 samples"),
        ({"data": DATA, "partition": "iid", "clients": 0}, "at least 1"),
        ({"data": 7, "partition": "iid", "clients": 4}, "neither a pair"),
        ({"data": DATA, "partition": "natural", "clients": 4}, "natural"),
    ],
)
def test_what_cannot_be_shared_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        hw.simulate("fedavg", model=model(), test=TEST, **SETTINGS, **given)


def test_numbers_as_targets_have_no_classes_to_split_by() -> None:
    data = (X.numpy(), np.linspace(0, 1, 120, dtype=np.float32)[:, None])
    assert len(hw.split(data, "iid", 4)) == 4
    with pytest.raises(UserError, match="class"):
        hw.split(data, "dirichlet:0.5", 4)
