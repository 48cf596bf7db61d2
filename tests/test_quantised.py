"""FedPAQ's quantiser: unbiased, within its bounds, and its bytes are those that are counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from conftest import distance, experiment, played
from headway import random
from headway.methods.wire import quantised
from headway.methods.wire.quantised import packed, unpacked
from headway.trees import leaves_of, nbytes
from headway.vectors import Vector

BITS = range(1, 17)
SHAPES = {"a": (4, 3), "b": (1,), "c": (7,)}


def spread(seed: int = 0, scale: float = 1.0) -> Vector:
    draw = np.random.default_rng(seed)
    return Vector({name: torch.from_numpy(scale * draw.normal(size=shape)) for name, shape in SHAPES.items()})


def keys(count: int) -> Tensor:
    return torch.tensor([random.key(1, "wire", number) for number in range(count)])


def arrivals(code: quantised, vector: Vector, count: int) -> Tensor:
    """Q(x) for this many keys, shape (count, d)."""
    return vmap(lambda key: code.decode(code.encode(vector, key), vector).flat())(keys(count))


def scales(code: quantised, vector: Vector) -> Tensor:
    """s of each coordinate as the wire carries it, shape (d,)."""
    sent = code.encode(vector, keys(1)[0])["scales"]
    sizes = [len(vector)] if code.scope == "vector" else [leaf.numel() for leaf in leaves_of(vector)]
    return torch.cat([scale.double().expand(size) for scale, size in zip(sent, sizes, strict=True)])


@pytest.mark.parametrize("scope", ["vector", "tensor"])
@pytest.mark.parametrize("bits", BITS)
def test_quantising_is_unbiased_and_within_its_bounds(bits: int, scope: str) -> None:
    """Over 3,000 keys: the mean within six deviations of x, every error below one grid step, the square as promised.

    A rounding between two points a step apart has a deviation of at most half a step.
    """
    code, vector = quantised(bits, scope), spread()
    x, s = vector.flat(), scales(code, vector)
    step = 2 * s / (2**bits - 1)
    errors = arrivals(code, vector, 3000) - x
    assert (s >= (x.abs() if scope == "tensor" else x.abs().max())).all()
    assert (errors.abs() <= step * (1 + 1e-12)).all()
    assert (errors.mean(0).abs() <= 6 * step / 2 / 3000**0.5).all()
    assert float((errors**2).sum(1).mean()) <= float((s**2).sum()) / (2**bits - 1) ** 2
    assert len(errors.unique(dim=0)) > 1


@pytest.mark.parametrize("bits", [1, 2, 5, 8])
def test_the_bound_on_the_square_is_reached_half_way_between_points(bits: int) -> None:
    """x in the middle of its interval: (Q−x)² is s²/(2^b − 1)² whichever way it is rounded, up or down."""
    levels = 2**bits - 1
    middle = (torch.arange(levels, dtype=torch.float64) + 0.5) * (2 / levels) - 1
    vector = Vector({"w": torch.cat([torch.ones(1, dtype=torch.float64), middle])})
    errors = (arrivals(quantised(bits), vector, 500) - vector.flat())[:, 1:]
    assert torch.allclose(errors.abs(), torch.full_like(errors, 1 / levels), rtol=1e-9)
    assert ((errors > 0).double().mean(0) - 0.5).abs().max() < 0.15


@pytest.mark.parametrize("scope", ["vector", "tensor"])
@pytest.mark.parametrize("bits", BITS)
def test_counted_bytes_are_the_bytes_of_the_payload(bits: int, scope: str) -> None:
    """In a real round: every code packed to the bit, a four-byte scale for the vector or for each tensor."""
    records, progress = played(experiment(f"fedpaq:bits={bits},scope={scope}", rounds=1, steps=1))
    sizes = [leaf.numel() for leaf in leaves_of(progress.model.theta)]
    pieces = [sum(sizes)] if scope == "vector" else sizes
    expected = sum(-(-bits * size // 8) + 4 for size in pieces)
    payload = quantised(bits, scope).encode(progress.model.theta, keys(1)[0])
    written = b"".join(leaf.numpy().tobytes() for leaf in leaves_of(payload))
    assert len(written) == nbytes(payload) == expected
    assert records[0]["bytes_up"] == 3 * expected
    assert records[0]["bytes_down"] == 3 * 8 * sum(sizes)


@given(st.integers(1, 16).flatmap(lambda b: st.tuples(st.just(b), st.lists(st.integers(0, 2**b - 1), max_size=40))))
@settings(deadline=None)
def test_what_is_packed_is_unpacked(case: tuple[int, list[int]]) -> None:
    bits, codes = case
    content = packed(torch.tensor(codes, dtype=torch.int64), bits)
    assert content.dtype == torch.uint8
    assert len(content) == -(-bits * len(codes) // 8)
    assert unpacked(content, bits, len(codes)).tolist() == codes
    assert int.from_bytes(content.numpy().tobytes(), "little") == sum(c << bits * at for at, c in enumerate(codes))


@pytest.mark.parametrize("scope", ["vector", "tensor"])
@pytest.mark.parametrize("bits", [1, 8, 16])
def test_vectors_that_are_zero_or_have_one_element(bits: int, scope: str) -> None:
    """0 arrives as 0, also one zero tensor among others; a single number arrives as itself to float32's rounding."""
    code = quantised(bits, scope)
    assert (arrivals(code, spread(scale=0.0), 20) == 0).all()
    if scope == "tensor":
        part = Vector({**spread().leaves, "b": torch.zeros(1, dtype=torch.float64)})
        assert (arrivals(code, part, 20)[:, 12] == 0).all()
    for number in (0.3, -7e-12, 1e30):
        single = Vector({"w": torch.tensor([number], dtype=torch.float64)})
        found = arrivals(code, single, 50)
        near = (found - number).abs() < 1e-6 * abs(number)
        assert near.all()
        exact = Vector({"w": torch.tensor([number], dtype=torch.float32)})
        assert (arrivals(code, exact, 50) == exact.flat()).all()


@pytest.mark.parametrize("scope", ["vector", "tensor"])
@pytest.mark.parametrize("bits", [1, 5, 16])
def test_quantised_runs_are_the_same_in_serial_and_batched(bits: int, scope: str) -> None:
    """Every client rounds by its own key, wherever it is trained."""
    chosen = experiment(f"fedpaq:bits={bits},scope={scope}")
    (mine, end), (theirs, other) = played(chosen, "serial"), played(chosen, "batched")
    assert distance(end.model.theta, other.model.theta) < 1e-12
    assert [record["bytes_up"] for record in mine] == [record["bytes_up"] for record in theirs]
