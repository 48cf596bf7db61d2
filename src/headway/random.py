"""Every random act, as a function of (seed, purpose, round, client, step, element) and of nothing else.

On the host `generator` derives a NumPy generator from the first of these. On the device `uniform` hashes a key and an
element's number in integer tensor operations: the same bits in eager, vmapped and compiled code, whatever else ran
before. No other file of Headway draws or seeds.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from headway.tracing import is_concrete

Built = TypeVar("Built")

_WORD = 0xFFFFFFFF
_DOMAIN = b"headway"


def _digest(seed: int, purpose: str, coordinates: tuple[int, ...], size: int) -> bytes:
    text = f"{seed}/{purpose}/{'/'.join(map(str, coordinates))}"
    return hashlib.blake2b(text.encode(), digest_size=size, person=_DOMAIN).digest()


def generator(seed: int, purpose: str, *coordinates: int) -> np.random.Generator:
    """The host's generator for one purpose, such as ("cohort", round) or ("batches", round, client, epoch)."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_digest(seed, purpose, coordinates, 16))))


class Drawing:
    """`generator` with one bit generator for all: making a new one takes most of the time of a short draw."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._drawing = np.random.Generator(self._bits)
        self._zeros = np.zeros(4, np.uint64)

    def at(self, seed: int, purpose: str, *coordinates: int) -> np.random.Generator:
        """The generator for one purpose, until the next one is asked for."""
        key = np.frombuffer(_digest(seed, purpose, coordinates, 16)[::-1], "<u8")
        self._bits.state = {
            "bit_generator": "Philox",
            "state": {"counter": self._zeros, "key": key},
            "buffer": self._zeros,
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self._drawing


Normals = Callable[[tuple[int, ...]], Tensor]
"""Draws standard normal numbers of a shape, float64 on the CPU; each call goes on where the one before ended."""


def normals(seed: int, purpose: str, *coordinates: int) -> Normals:
    """Standard normal numbers for one purpose: those of `generator`, so everybody who has the seed can draw them."""
    draw = generator(seed, purpose, *coordinates)
    return lambda shape: torch.from_numpy(np.asarray(draw.standard_normal(shape)))


def secret_normals(shape: tuple[int, ...]) -> Tensor:
    """Standard normal numbers from the system's source of secrets, which nobody can draw again (Box and Muller 1958).

    Each pair is of two numbers of 53 bits, so none is beyond 8.6.
    """
    count = math.prod(shape)
    words = np.frombuffer(secrets.token_bytes(16 * -(-count // 2)), "<u8").reshape(2, -1) >> np.uint64(11)
    radius = np.sqrt(-2 * np.log((words[0] + 1) * 2.0**-53))
    angle = 2 * math.pi * 2.0**-53 * words[1]
    found = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
    return torch.from_numpy(found.reshape(shape))


def legacy_choices(seed: int, population: int, size: int) -> Iterator[np.ndarray]:
    """Endless draws without replacement from NumPy's old generator: the client sequence of the papers' programs."""
    stream = np.random.RandomState(seed)
    while True:
        yield stream.choice(population, size, replace=False)


def legacy_mixes(alpha: float, classes: int) -> Iterator[np.ndarray]:
    """Endless draws of Dir(α) over the classes from NumPy's old generator, seed 0: the split of FedACG's authors."""
    stream = np.random.RandomState(0)
    while True:
        yield stream.dirichlet(np.full(classes, alpha))


def key(seed: int, purpose: str, *coordinates: int) -> tuple[int, int]:
    """Two 32-bit words that name a stream of numbers on the device."""
    digest = _digest(seed, purpose, coordinates, 8)
    return int.from_bytes(digest[:4]), int.from_bytes(digest[4:])


def _scramble(word: Tensor) -> Tensor:
    """A bijection of 32-bit words. Both factors are below 2³¹ in size, so no 64-bit product overflows."""
    word = word ^ (word >> 16)
    word = (word * 0x7FEB352D) & _WORD
    word = word ^ (word >> 15)
    word = (word * -0x7B935975) & _WORD
    return word ^ (word >> 16)


def _scrambled(word: int) -> int:
    """`_scramble` of one number."""
    word ^= word >> 16
    word = (word * 0x7FEB352D) & _WORD
    word ^= word >> 15
    word = (word * -0x7B935975) & _WORD
    return word ^ (word >> 16)


def _scramble_all(words: np.ndarray) -> None:
    """`_scramble` of many numbers of 32 bits, in their place: products wrap around by themselves."""
    spare = np.empty_like(words)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, None)):
        np.right_shift(words, np.uint32(shift), out=spare)
        np.bitwise_xor(words, spare, out=words)
        if factor is not None:
            np.multiply(words, np.uint32(factor), out=words)


def fold(words: Tensor, number: Tensor | int) -> Tensor:
    """A new key, shape (2,), from a key and one more coordinate (a step, a layer)."""
    if is_concrete(words) and not (isinstance(number, Tensor) and number.dim()):
        first, second = words.tolist()
        under = _scrambled((first + int(number)) & _WORD)
        over = _scrambled(second ^ under)
        return torch.tensor([_scrambled((under + over) & _WORD), over])
    low = _scramble((words[0] + number) & _WORD)
    high = _scramble(words[1] ^ low)
    return torch.stack([_scramble((low + high) & _WORD), high])


def apart(words: Tensor, purpose: str) -> Tensor:
    """Another key of shape (2,) for one purpose, in one operation; `fold` mixes better but takes many."""
    return words ^ int.from_bytes(_digest(0, purpose, (), 4))


def uniform(words: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Numbers in [0, 1) on a grid of 2⁻²⁴, float32, one for each element; element e depends on (key, e) only."""
    if is_concrete(words):
        first, second = words.tolist()
        found = np.arange(math.prod(shape), dtype=np.uint32)
        found ^= np.uint32(first)
        _scramble_all(found)
        found ^= np.uint32(second)
        _scramble_all(found)
        found >>= np.uint32(8)
        return torch.from_numpy(found.astype(np.float32)).mul_(2.0**-24).reshape(shape)
    element = torch.arange(math.prod(shape), device=words.device)
    hashed = _scramble(_scramble(element ^ words[0]) ^ words[1])
    return ((hashed >> 8).to(torch.float32) * 2.0**-24).reshape(shape)


def permutations(seed: int, purpose: str) -> Callable[[int], Tensor]:
    """Orders of n things, one after another, from torch's generator: as a loop that is written by hand draws them."""
    words = key(seed, purpose)
    draw = torch.Generator().manual_seed(words[0] << 31 ^ words[1])
    return lambda count: torch.randperm(count, generator=draw)


def secret(size: int) -> bytes:
    """Random bytes of the system that nobody can make again: for what is to stay unknown, never for a number."""
    return secrets.token_bytes(size)


def built(build: Callable[[], Built], seed: int, purpose: str) -> Built:
    """`build()` with torch's own generator seeded for it alone: for layers that initialise themselves."""
    with isolated(key(seed, purpose), torch.device("cpu")):
        return build()


@contextmanager
def isolated(words: tuple[int, int], device: torch.device) -> Iterator[None]:
    """torch's own generators as a function of a key inside, untouched outside: for models that draw by themselves."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        seed = words[0] << 31 ^ words[1]
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every device, restored or not
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
