"""A `DataLoader` in the place of a dataset: its samples are read, its batches are not."""

from __future__ import annotations

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, default_collate

from headway.errors import UserError


def without_loader(source: object, what: str) -> object:
    """The dataset of a loader; anything else as it is.

    Batches are made by Headway, with the scenario's `batch_size`. A loader that chooses or changes samples by itself is
    refused, as its choice would be lost.
    """
    if not isinstance(source, DataLoader):
        return source
    if isinstance(source.dataset, IterableDataset):
        raise UserError(f"{what} is a DataLoader of an IterableDataset; give a dataset with a length")
    sampler = source.sampler
    plain = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler) and not sampler.replacement and len(sampler) == len(source.dataset)  # type: ignore[arg-type]
    )
    if not plain:
        raise UserError(
            f"{what} is a DataLoader with the sampler {type(sampler).__name__}, which is not used; give a dataset with "
            "the samples to train on, such as torch.utils.data.Subset"
        )
    if source.collate_fn is not default_collate:
        raise UserError(
            f"{what} is a DataLoader with a collate_fn, which is not used; give a dataset whose items are as the "
            "network takes them"
        )
    return source.dataset
