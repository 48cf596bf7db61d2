"""Every random number is a function of its key and of nothing else, and looks random in the tests that matter here."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import vmap

import headway
from conftest import key_tensor
from headway.random import built, fold, generator, isolated, key, uniform

quick = settings(deadline=None, max_examples=50)

WORD = st.integers(0, 2**32 - 1)
KEYS = st.tuples(WORD, WORD)
CPU = torch.device("cpu")


class TestHost:
    @quick
    @given(st.integers(0, 2**63), st.text(max_size=8), st.lists(st.integers(0, 2**40), max_size=4))
    def test_the_same_key_gives_the_same_numbers(self, seed: int, purpose: str, coordinates: list[int]) -> None:
        first, second = (generator(seed, purpose, *coordinates) for _ in range(2))
        assert np.array_equal(first.integers(0, 2**60, 8), second.integers(0, 2**60, 8))
        assert key(seed, purpose, *coordinates) == key(seed, purpose, *coordinates)

    def test_every_coordinate_makes_another_stream(self) -> None:
        places = list(product((0, 1, 10), ("cohort", "batches"), (1, 2, 12), (0, 1, 21), (0, 1)))
        streams = {tuple(generator(seed, purpose, *rest).integers(0, 2**62, 2)) for seed, purpose, *rest in places}
        assert len(streams) == len(places)
        assert len({key(seed, purpose, *rest) for seed, purpose, *rest in places}) == len(places)

    def test_coordinates_differ_by_place_and_not_by_their_digits(self) -> None:
        assert len({key(0, "x", 1, 12), key(0, "x", 11, 2), key(0, "x", 112), key(0, "x", 1, 1, 2)}) == 4
        assert key(1, "x", 2) != key(2, "x", 1)

    def test_whole_numbers_of_numpy_and_python_name_the_same_stream(self) -> None:
        assert key(0, "x", 3) == key(0, "x", np.int64(3))  # type: ignore[arg-type]

    @quick
    @given(st.integers(0, 2**63), st.integers(0, 2**40))
    def test_a_key_is_two_words_of_32_bits(self, seed: int, round: int) -> None:
        assert all(0 <= word < 2**32 for word in key(seed, "x", round))

    def test_keys_of_neighbouring_rounds_share_no_word(self) -> None:
        keys = [key(0, "client", round, 0) for round in range(1000)]
        assert all(one[0] != other[0] and one[1] != other[1] for one, other in pairwise(keys))


def lowbias(word: int) -> int:
    """The published 32-bit mixer in Python's unbounded whole numbers: 0x846CA68B is −0x7B935975 modulo 2³²."""
    word ^= word >> 16
    word = word * 0x7FEB352D % 2**32
    word ^= word >> 15
    word = word * 0x846CA68B % 2**32
    return word ^ word >> 16


class TestUniform:
    @quick
    @given(KEYS, st.lists(st.integers(0, 5), max_size=3))
    def test_numbers_lie_on_the_grid_in_the_unit_interval(self, words: tuple[int, int], shape: list[int]) -> None:
        found = uniform(torch.tensor(words), tuple(shape))
        assert found.shape == tuple(shape)
        assert found.dtype == torch.float32
        assert bool(((found >= 0) & (found < 1)).all())
        assert torch.equal(found * 2**24, (found * 2**24).round())

    @quick
    @given(KEYS)
    def test_it_is_the_hash_it_says_to_be_without_overflow(self, words: tuple[int, int]) -> None:
        expected = [(lowbias(lowbias(element ^ words[0]) ^ words[1]) >> 8) / 2**24 for element in range(20)]
        assert uniform(torch.tensor(words), (20,)).tolist() == expected

    @quick
    @given(KEYS, st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(0, 30))
    def test_an_element_does_not_depend_on_the_shape(self, words: tuple[int, int], shape: list[int], more: int) -> None:
        count = math.prod(shape)
        longer = uniform(torch.tensor(words), (count + more,))
        assert torch.equal(uniform(torch.tensor(words), tuple(shape)).flatten(), longer[:count])

    @quick
    @given(st.lists(KEYS, min_size=1, max_size=5), st.lists(st.integers(1, 4), max_size=2))
    def test_the_same_bits_one_by_one_and_under_vmap(self, keys: list[tuple[int, int]], shape: list[int]) -> None:
        together = vmap(lambda words: uniform(words, tuple(shape)))(torch.tensor(keys))
        assert all(
            torch.equal(row, uniform(torch.tensor(one), tuple(shape))) for row, one in zip(together, keys, strict=True)
        )

    def test_what_ran_before_has_no_effect(self) -> None:
        first = uniform(key_tensor(3), (50,))
        torch.rand(17)
        assert torch.equal(first, uniform(key_tensor(3), (50,)))


COUNT, STREAMS, BOUND = 50_000, 20, 4.5
"""20 fixed keys of 50,000 numbers each; 4.5 deviations are passed by chance once in 150,000 times."""


@pytest.fixture(scope="module")
def streams() -> np.ndarray:
    drawn = [uniform(key_tensor(seed, "statistics"), (COUNT,)) for seed in range(STREAMS)]
    return torch.stack(drawn).double().numpy()


class TestStatistics:
    def test_mean(self, streams: np.ndarray) -> None:
        deviations = (streams.mean(1) - 0.5) * math.sqrt(12 * COUNT)
        assert np.abs(deviations).max() < BOUND
        assert abs(deviations.mean()) * math.sqrt(STREAMS) < BOUND

    def test_variance(self, streams: np.ndarray) -> None:
        """(u − ½)² has mean 1/12 and variance 1/80 − 1/144 = 1/180."""
        deviations = (((streams - 0.5) ** 2).mean(1) - 1 / 12) * math.sqrt(180 * COUNT)
        assert np.abs(deviations).max() < BOUND

    @pytest.mark.parametrize("lag", [1, 2, 3, 8, 64, 1024])
    def test_serial_correlation(self, streams: np.ndarray, lag: int) -> None:
        centred = (streams - 0.5) * math.sqrt(12)
        products = (centred[:, lag:] * centred[:, :-lag]).mean(1) * math.sqrt(COUNT - lag)
        assert np.abs(products).max() < BOUND

    def test_streams_of_different_keys_are_uncorrelated(self, streams: np.ndarray) -> None:
        centred = (streams - 0.5) * math.sqrt(12)
        gram = centred @ centred.T / math.sqrt(COUNT)
        assert np.abs(gram[~np.eye(STREAMS, dtype=bool)]).max() < BOUND

    @pytest.mark.parametrize("bins", [2, 16, 256])
    def test_chi_square(self, streams: np.ndarray, bins: int) -> None:
        """χ² of k − 1 degrees has mean k − 1 and variance 2(k − 1); summed over keys it is close to a normal number."""
        expected = COUNT / bins
        counts = np.stack([np.bincount((stream * bins).astype(int), minlength=bins) for stream in streams])
        chi = ((counts - expected) ** 2 / expected).sum()
        degrees = (bins - 1) * STREAMS
        assert abs(chi - degrees) / math.sqrt(2 * degrees) < BOUND

    def test_pairs_of_neighbours_fill_the_square(self, streams: np.ndarray) -> None:
        cells = (streams[:, 0::2] * 16).astype(int) * 16 + (streams[:, 1::2] * 16).astype(int)
        counts = np.stack([np.bincount(row, minlength=256) for row in cells])
        expected = COUNT / 2 / 256
        degrees = 255 * STREAMS
        assert abs(((counts - expected) ** 2 / expected).sum() - degrees) / math.sqrt(2 * degrees) < BOUND

    def test_the_first_number_of_many_folded_keys_is_uniform_and_uncorrelated(self) -> None:
        """What a dropout layer sees over steps: key folded with 0, 1, 2, …, element 0."""
        folded = vmap(lambda number: uniform(fold(key_tensor(0), number), (1,))[0])(torch.arange(COUNT))
        centred = (folded.double().numpy() - 0.5) * math.sqrt(12)
        assert abs(centred.mean()) * math.sqrt(COUNT) < BOUND
        assert abs((centred[1:] * centred[:-1]).mean()) * math.sqrt(COUNT) < BOUND


class TestFold:
    @quick
    @given(KEYS, st.integers(-(2**20), 2**32))
    def test_a_folded_key_is_a_key_and_fixed_by_its_inputs(self, words: tuple[int, int], number: int) -> None:
        one, again = fold(torch.tensor(words), number), fold(torch.tensor(words), torch.tensor(number))
        assert torch.equal(one, again)
        assert one.shape == (2,)
        assert bool(((one >= 0) & (one < 2**32)).all())

    def test_no_two_of_many_numbers_fold_to_the_same_key(self) -> None:
        numbers = torch.cat([torch.arange(200_000), -1 - torch.arange(50)])
        folded = vmap(lambda number: fold(key_tensor(1), number))(numbers)
        assert len(torch.unique(folded[:, 1])) == len(numbers), "the second word alone tells them apart"
        assert len(torch.unique(folded, dim=0)) == len(numbers)

    def test_no_two_of_many_clients_and_steps_fold_to_the_same_key(self) -> None:
        clients = torch.tensor([key(0, "client", round, client) for round in range(20) for client in range(20)])
        steps = torch.arange(100)
        folded = vmap(lambda words: vmap(lambda step: fold(words, step))(steps))(clients).reshape(-1, 2)
        assert len(torch.unique(folded, dim=0)) == len(folded) == 40_000

    def test_the_order_of_coordinates_matters(self) -> None:
        assert not torch.equal(fold(fold(key_tensor(0), 1), 2), fold(fold(key_tensor(0), 2), 1))

    def test_each_bit_of_a_neighbouring_number_flips_half_of_the_words(self) -> None:
        """The avalanche: 2,000 pairs, each bit of 64 flips with p = ½; 4.5 deviations of the worst bit is 0.05."""
        folded = vmap(lambda number: fold(key_tensor(2), number))(torch.arange(2001)).numpy()
        flipped = folded[1:] ^ folded[:-1]
        shares = np.array([(flipped[:, word] >> bit & 1).mean() for word in (0, 1) for bit in range(32)])
        assert np.abs(shares - 0.5).max() < 4.5 * 0.5 / math.sqrt(2000)


class TestIsolated:
    def test_torchs_generator_is_untouched_outside(self) -> None:
        before = torch.get_rng_state()
        with isolated((1, 2), CPU):
            torch.rand(100)
        built(lambda: nn.Linear(4, 4), 0, "model")
        assert torch.equal(torch.get_rng_state(), before)

    def test_torchs_generator_is_untouched_after_a_failure(self) -> None:
        before = torch.get_rng_state()
        with pytest.raises(ZeroDivisionError), isolated((1, 2), CPU):
            torch.rand(100)[0] / (1 // 0)
        assert torch.equal(torch.get_rng_state(), before)

    @pytest.mark.parametrize("accelerator", ["cuda", "xpu"])
    def test_work_on_the_cpu_does_not_seed_any_accelerator(
        self, accelerator: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`torch.manual_seed` seeds every device, also those that `fork_rng` was not told to restore."""
        seeded: list[int] = []
        monkeypatch.setattr(getattr(torch, accelerator), "manual_seed_all", seeded.append)
        built(lambda: nn.Linear(2, 2), 0, "model")
        assert not seeded

    def test_the_key_alone_decides_what_is_drawn_inside(self) -> None:
        def draw(one: tuple[int, int]) -> list[float]:
            with isolated(one, CPU):
                return torch.rand(4).tolist()

        first = draw((5, 6))
        torch.rand(3)
        assert draw((5, 6)) == first
        assert len({tuple(draw(one)) for one in [(5, 6), (6, 5), (5, 7), (2**32 - 1, 2**32 - 1), (0, 0)]}) == 5

    def test_a_built_layer_is_fixed_by_seed_and_purpose(self) -> None:
        def weight(seed: int, purpose: str) -> Tensor:
            return built(lambda: nn.Linear(3, 3), seed, purpose).weight

        assert torch.equal(weight(0, "model"), weight(0, "model"))
        assert not torch.equal(weight(0, "model"), weight(1, "model"))
        assert not torch.equal(weight(0, "model"), weight(0, "head"))


DRAWS = re.compile(
    r"(np|numpy)\.random\.(?!Generator$)"
    r"|.*\b(manual_seed(_all)?|default_rng|RandomState|fork_rng|set_rng_state|default_generator)$"
    r"|torch\.(rand|randn|randint|randperm|rand_like|randn_like|randint_like|bernoulli|multinomial|normal|poisson|seed)$"
    r"|torch\.(random|Generator)\b"
    r"|(?!nn\.init).*\.(normal_|uniform_|bernoulli_|exponential_|random_|log_normal_|geometric_|cauchy_)$"
    r"|(os\.urandom|secrets\b.*|uuid\.uuid\d)$"
)
MODULES = ("random", "secrets", "numpy.random")


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def drawing(source: str) -> Iterator[str]:
    """Names in the code, not in its texts, by which it could seed or draw."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (f"import {alias.name}" for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            yield f"from {node.module} import"
        elif isinstance(node, ast.Attribute | ast.Name) and DRAWS.match(dotted(node)):
            yield dotted(node)


class TestOneFile:
    def test_no_other_file_draws_or_seeds(self) -> None:
        root = Path(headway.__file__).parent
        files = [path for path in sorted(root.rglob("*.py")) if path != root / "random.py"]
        assert len(files) > 40
        found = {str(path.relative_to(root)): list(drawing(path.read_text("utf-8"))) for path in files}
        assert {path: names for path, names in found.items() if names} == {}

    @pytest.mark.parametrize(
        "line",
        [
            "torch.manual_seed(0)",
            "np.random.default_rng(0)",
            "np.random.rand(3)",
            "x = torch.randperm(5)",
            "torch.randn(3)",
            "import random",
            "from random import shuffle",
            "leaf.normal_()",
            "torch.Generator()",
        ],
    )
    def test_the_search_finds_what_it_looks_for(self, line: str) -> None:
        assert list(drawing(line))

    @pytest.mark.parametrize(
        "line", ["def f(draw: np.random.Generator): ...", "from headway import random", "'torch.manual_seed'"]
    )
    def test_the_search_lets_types_and_texts_pass(self, line: str) -> None:
        assert not list(drawing(line))
