"""Trees of dictionaries, vectors and registered records keep names, order and values through every function."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from headway.errors import UserError
from headway.trees import (
    conformed,
    copied,
    laid_out,
    leaves_like,
    leaves_of,
    moved,
    named_leaves,
    nbytes,
    refill,
    register_record,
    row,
    stack,
    tree_map,
)
from headway.vectors import Vector
from test_vectors import SHAPES, quick, same, whole


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> dict[str, Any]:
    """State as slots keep it: dictionaries of vectors, tensors and dictionaries."""
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3, unique=True))
    tree: dict[str, Any] = {}
    for name in names:
        kind = draw(st.sampled_from(["vector", "tensor", "counter", "tree"] if depth else ["vector", "tensor"]))
        seed = draw(st.integers(0, 10**6))
        if kind == "tree":
            tree[name] = draw(trees(depth=depth - 1))
        elif kind == "vector":
            tree[name] = whole(draw(SHAPES), seed, draw(st.sampled_from([torch.float32, torch.float64])))
        else:
            tree[name] = torch.tensor(float(seed) if kind == "tensor" else seed)
    return tree


def reversed_tree(tree: Any) -> Any:
    """The same tree, every dictionary and vector in the opposite order."""
    if isinstance(tree, Vector):
        return Vector(dict(reversed(tree.leaves.items())))
    if isinstance(tree, dict):
        return {name: reversed_tree(child) for name, child in reversed(tree.items())}
    return tree


class TestTrees:
    @quick
    @given(trees())
    def test_names_come_in_the_order_of_the_leaves(self, tree: dict[str, Any]) -> None:
        assert all(one is other for one, other in zip(named_leaves(tree).values(), leaves_of(tree), strict=True))

    def test_a_name_is_the_path(self) -> None:
        tree = {"server": {"momentum": Vector({"fc.weight": torch.ones(1)})}, "cursor": torch.tensor(3)}
        assert list(named_leaves(tree)) == ["server/momentum/fc.weight", "cursor"]

    def test_what_is_no_tensor_has_no_place_in_a_state(self) -> None:
        with pytest.raises(AssertionError, match="server/rate: state holds tensors and vectors, not float"):
            named_leaves({"server": {"rate": 0.1}})

    @quick
    @given(trees())
    def test_refilling_with_its_own_leaves_is_the_identity(self, tree: dict[str, Any]) -> None:
        assert same(refill(tree, leaves_of(tree)), tree)

    @quick
    @given(trees(), st.integers(1, 4))
    def test_a_row_of_a_stack_is_the_tree_it_was_made_of(self, tree: dict[str, Any], count: int) -> None:
        several = [tree_map(lambda leaf, by=by: leaf + by, tree) for by in range(count)]
        together = stack(several)
        assert all(leaf.shape[0] == count for leaf in leaves_of(together))
        assert all(same(row(together, number), one) for number, one in enumerate(several))

    @quick
    @given(trees())
    def test_a_copied_tree_shares_no_memory(self, tree: dict[str, Any]) -> None:
        before = tree_map(lambda leaf: leaf.clone(), tree)
        tree_map(lambda leaf: leaf.fill_(7), copied(tree))
        assert same(tree, before)
        assert same(moved(tree, "cpu"), before)

    @quick
    @given(trees())
    def test_nbytes_is_the_length_of_the_written_tensors(self, tree: dict[str, Any]) -> None:
        assert nbytes(tree) == len(b"".join(leaf.numpy().tobytes() for leaf in leaves_of(tree)))

    def test_nbytes_of_known_sizes(self) -> None:
        assert nbytes({"a": torch.zeros(3), "b": Vector({"c": torch.zeros(2, 2, dtype=torch.float64)})}) == 12 + 32
        assert nbytes({}) == 0


class TestConformed:
    @quick
    @given(trees())
    def test_another_order_is_put_right(self, tree: dict[str, Any]) -> None:
        given = reversed_tree(tree)
        held = named_leaves(given)
        result = conformed(given, tree, "the state")
        assert same(result, tree)
        assert all(leaf is held[name] for name, leaf in named_leaves(result).items())

    LIKE = {"server": {"m": Vector({"fc": torch.zeros(2, 3)})}}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("tree", "message"),
        [
            ({"server": {"v": Vector({"fc": torch.zeros(2, 3)})}}, "the state changed its names: 'server/m/fc'"),
            ({"server": {}}, "the state changed its names: 'server/m/fc'"),
            (
                {"server": {"m": Vector({"fc": torch.zeros(2, 3)})}, "more": torch.zeros(1)},
                "the state changed its names: 'more'",
            ),
            (
                {"server": {"m": Vector({"fc": torch.zeros(3, 2)})}},
                r"the state: 'server/m/fc' was float32\(2, 3\) and became float32\(3, 2\)",
            ),
            (
                {"server": {"m": Vector({"fc": torch.zeros(2, 3, dtype=torch.float64)})}},
                r"the state: 'server/m/fc' was float32\(2, 3\) and became float64\(2, 3\)",
            ),
        ],
        ids=["other name", "missing", "one more", "shape", "type"],
    )
    def test_other_names_shapes_and_types_are_refused(self, tree: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            conformed(tree, self.LIKE, "the state")


@register_record
@dataclass(frozen=True)
class Point:
    place: Vector
    speed: dict[str, Tensor]
    weight: Tensor | None = None


@register_record
@dataclass(frozen=True)
class Pair:
    left: Point
    right: Point


def point(start: float, weight: float | None = 1.0) -> Point:
    place = Vector({"a": torch.full((2, 3), start), "b": torch.tensor(start + 1)})
    speed = {"x": torch.arange(3.0) + start, "y": torch.tensor([start])}
    return Point(place, speed, None if weight is None else torch.tensor(weight))


class TestRecords:
    @pytest.mark.parametrize("weight", [2.0, None], ids=["every field set", "a field is None"])
    def test_every_function_does_what_pytree_does(self, weight: float | None) -> None:
        tree = Pair(point(0.0, weight), point(5.0, weight))
        assert all(one is other for one, other in zip(leaves_of(tree), pytree.tree_leaves(tree), strict=True))
        doubled = tree_map(torch.add, tree, tree)
        assert isinstance(doubled, Pair)
        assert isinstance(doubled.left, Point)
        assert same(doubled, pytree.tree_map(torch.add, tree, tree))
        assert (doubled.left.weight is None) == (weight is None)
        assert same(refill(tree, [leaf + 1 for leaf in leaves_of(tree)]), tree_map(lambda leaf: leaf + 1, tree))
        assert same(row(stack([tree, doubled]), 1), doubled)
        assert same(laid_out(doubled, tree), doubled)
        assert nbytes(tree) == sum(leaf.nbytes for leaf in leaves_of(tree))

    def test_a_name_is_the_path_through_the_fields(self) -> None:
        names = ["place/a", "place/b", "speed/x", "speed/y"]
        assert list(named_leaves(point(0.0))) == [*names, "weight"]
        assert list(named_leaves({"client": point(0.0, None)})) == [f"client/{name}" for name in names]

    def test_another_order_inside_a_record_is_put_right(self) -> None:
        like = point(0.0)
        given = Point(reversed_tree(like.place), reversed_tree(like.speed), like.weight)
        assert all(one is other for one, other in zip(leaves_like(given, like), leaves_of(like), strict=True))
        assert same(conformed(given, like, "the state"), like)

    def test_a_field_that_became_none_is_refused(self) -> None:
        with pytest.raises(UserError, match="the state changed its names: 'weight'"):
            conformed(point(0.0, None), point(0.0), "the state")
        with pytest.raises(AssertionError, match="trees of different names"):
            tree_map(torch.add, point(0.0), point(0.0, None))

    @pytest.mark.parametrize("other", [{"place": 1}, Pair(point(0.0), point(1.0))], ids=["dictionary", "record"])
    def test_another_type_is_refused(self, other: Any) -> None:
        with pytest.raises(AssertionError, match="records of different types"):
            tree_map(torch.add, point(0.0), other)

    def test_what_is_computed_stands_in_the_graph_of_a_traced_program(self) -> None:
        def moved_on(here: Point) -> Point:
            return Point(here.place + here.place, tree_map(torch.neg, here.speed))

        here = point(3.0)
        program = make_fx(moved_on)(point(1.0))
        assert same(program(here), moved_on(here))

    def test_stacked_clients_give_what_each_gives_alone(self) -> None:
        def slope(here: Point, by: Tensor) -> Point:
            return grad(lambda at: (at.place.square() + at.speed["x"].sum()) * by * at.weight)(here)  # type: ignore[operator, no-any-return]

        several = [point(float(start), weight=start + 0.5) for start in range(3)]
        factors = torch.tensor([1.0, 2.0, -1.0])
        together = vmap(slope)(stack(several), factors)
        assert isinstance(together, Point)
        for number, (one, by) in enumerate(zip(several, factors, strict=True)):
            assert same(row(together, number), slope(one, by))

    def test_the_functions_work_inside_vmap(self) -> None:
        def work(pair: Pair) -> Pair:
            return refill(pair, [leaf * 2 for leaf in leaves_of(tree_map(torch.neg, pair))])  # type: ignore[no-any-return]

        several = [Pair(point(float(start), None), point(start + 1.0)) for start in range(3)]
        together = vmap(work)(stack(several))
        assert together.left.weight is None
        assert all(same(row(together, number), work(one)) for number, one in enumerate(several))

    def test_a_field_that_is_no_argument_is_refused(self) -> None:
        @dataclass(frozen=True)
        class Cached:
            value: Tensor
            seen: Tensor = field(init=False)

        with pytest.raises(AssertionError, match="every field of Cached must be an argument"):
            register_record(Cached)
