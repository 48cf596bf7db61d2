"""What capturing CUDA graphs needs: memory that stays in its place, and programs that write into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from headway.trees import leaves_like, leaves_of, tree_map

ALIGNMENT = 16
"""Bytes at whose multiples the compiler wants tensors to begin."""
WARM_UP_CALLS = 2
"""Calls before a capture: compilation, choice of algorithms, workspaces."""
Tree = TypeVar("Tree")


def aligned(one: Tensor) -> int:
    """The elements from one such tensor to the next, so that each begins where the compiler wants it to."""
    per = ALIGNMENT // one.element_size()
    return max(-(-one.numel() // per), 1) * per


def room_for(tree: Tree, count: int | None = None) -> Tree:
    """Memory like a tree's, or for `count` such trees; every leaf keeps its layout."""

    def like(leaf: Tensor) -> Tensor:
        one = torch.empty_like(leaf)
        if count is None:
            return one
        return one.new_empty_strided((count, *one.shape), (aligned(one), *one.stride()))

    return tree_map(like, tree)  # type: ignore[no-any-return]


def fill(held: object, fresh: object) -> None:
    """Copy a tree into the memory of another one of the same form."""
    into, out = leaves_of(held), leaves_of(fresh)
    assert len(into) == len(out)
    if into:
        torch._foreach_copy_(into, out)


def fixed_copy(tree: Tree) -> Tree:
    """A copy in its own memory, which captured graphs may read and write."""
    room = room_for(tree)
    fill(room, tree)
    return room


def write(held: object, fresh: object) -> None:
    """One tree into the memory of another, in a traced program; what is read of it is read before it is written.

    A slot may return a view of what it was given.
    """
    old, new = leaves_of(held), leaves_like(fresh, held)
    own = {_memory(leaf) for leaf in old}
    for into, leaf in zip(old, [leaf.clone() if _memory(leaf) in own else leaf for leaf in new], strict=True):
        into.copy_(leaf)


def _memory(leaf: Tensor) -> int:
    return leaf.untyped_storage()._cdata  # type: ignore[no-any-return]


def new_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def captured(
    function: Callable[[], object],
    stream: torch.cuda.Stream,
    before: Callable[[], object] = lambda: None,
    warm_up: int = WARM_UP_CALLS,
) -> torch.cuda.CUDAGraph:
    """The function's work as a graph; `before` goes ahead of each call that warms up."""
    graph = torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm_up):
            before()
            function()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        function()
    return graph
