"""A `Vector` obeys the laws of a vector space, is a value, and passes through torch's transformations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, vmap

from headway.trees import named_leaves, row, stack
from headway.vectors import Vector

quick = settings(deadline=None, max_examples=40)

SHAPES = st.lists(st.lists(st.integers(0, 3), max_size=3).map(tuple), min_size=1, max_size=4)
FACTORS = st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0, 4.0])


def whole(shapes: list[tuple[int, ...]], seed: int, dtype: torch.dtype = torch.float64) -> Vector:
    """A vector of small whole numbers: float64 adds and multiplies them exactly, so laws hold to the bit."""
    draw = np.random.default_rng(seed)
    named = {f"layer{number}.weight": draw.integers(-8, 9, shape) for number, shape in enumerate(shapes)}
    return Vector({name: torch.as_tensor(values).to(dtype) for name, values in named.items()})


@st.composite
def alike(draw: st.DrawFn, count: int) -> list[Vector]:
    """Several vectors over the same parameters."""
    shapes = draw(SHAPES)
    return [whole(shapes, draw(st.integers(0, 10**6))) for _ in range(count)]


def same(left: Any, right: Any) -> bool:
    """Equal trees: names, order, shapes, types and every bit."""
    mine, theirs = named_leaves(left), named_leaves(right)
    return list(mine) == list(theirs) and all(
        one.dtype == other.dtype and torch.equal(one, other)
        for one, other in zip(mine.values(), theirs.values(), strict=True)
    )


class TestSpace:
    @quick
    @given(alike(3))
    def test_addition_is_a_commutative_group(self, given: list[Vector]) -> None:
        u, v, w = given
        assert same(u + v, v + u)
        assert same((u + v) + w, u + (v + w))
        assert same(u + u.zeros(), u)
        assert same(u + (-u), u.zeros())
        assert same(u - v, u + (-v))

    @quick
    @given(alike(2), FACTORS, FACTORS)
    def test_scaling_distributes(self, given: list[Vector], a: float, b: float) -> None:
        u, v = given
        assert same(a * (u + v), a * u + a * v)
        assert same((a + b) * u, a * u + b * u)
        assert same((a * b) * u, a * (b * u))
        assert same(1 * u, u)
        assert same(-1 * u, -u)
        assert same(a * u, u * a)

    @quick
    @given(alike(1), st.sampled_from([-2.0, 0.25, 8.0]))
    def test_division_undoes_scaling(self, given: list[Vector], divisor: float) -> None:
        (u,) = given
        assert same((u * divisor) / divisor, u)

    @pytest.mark.parametrize("factor", [3, 3.0, torch.tensor(3.0), torch.tensor(3), np.float64(3)])
    def test_a_factor_may_be_a_number_or_a_scalar_tensor_on_either_side(self, factor: Any) -> None:
        u = whole([(2, 3), (4,)], 0, torch.float32)
        expected = u.map(lambda leaf: leaf * 3)
        assert same(u * factor, expected)
        assert same(factor * u, expected)

    @quick
    @given(alike(3), FACTORS)
    def test_dot_is_the_inner_product_of_the_flat_vectors(self, given: list[Vector], a: float) -> None:
        u, v, w = given
        assert torch.equal(u.dot(v), (u.flat() * v.flat()).sum())
        assert torch.equal(u.dot(v), v.dot(u))
        assert torch.equal((a * u + v).dot(w), a * u.dot(w) + v.dot(w))

    @quick
    @given(alike(2))
    def test_norm_is_the_length_of_the_flat_vector(self, given: list[Vector]) -> None:
        u, v = given
        torch.testing.assert_close(u.norm(), u.flat().norm(), rtol=1e-14, atol=0)
        assert (u + v).norm() <= u.norm() + v.norm() + 1e-12
        assert u.dot(v).abs() <= u.norm() * v.norm() * (1 + 1e-14)
        assert u.zeros().norm() == 0

    def test_the_order_of_the_other_side_does_not_matter(self) -> None:
        u = Vector({"a": torch.tensor([1.0]), "b": torch.tensor([2.0, 3.0])})
        v = Vector({"b": torch.tensor([20.0, 30.0]), "a": torch.tensor([10.0])})
        assert same(u + v, Vector({"a": torch.tensor([11.0]), "b": torch.tensor([22.0, 33.0])}))
        assert u.dot(v) == 10 + 40 + 90

    @pytest.mark.parametrize(
        "operation",
        [lambda u, v: u + v, lambda u, v: u - v, lambda u, v: u.dot(v)],
        ids=["sum", "difference", "inner product"],
    )
    @pytest.mark.parametrize("other", [{"a": 1, "b": 2}, {"b": 1}], ids=["more parameters", "other parameters"])
    def test_vectors_over_different_parameters_do_not_meet(
        self, operation: Callable[[Vector, Vector], Any], other: dict[str, float]
    ) -> None:
        u = Vector({"a": torch.tensor([1.0])})
        v = Vector({name: torch.tensor([float(value)]) for name, value in other.items()})
        with pytest.raises((AssertionError, KeyError)):
            operation(u, v)


class TestFlat:
    @quick
    @given(alike(2))
    def test_unflat_undoes_flat_and_the_other_way_round(self, given: list[Vector]) -> None:
        u, like = given
        assert same(like.unflat(u.flat()), u)
        assert torch.equal(like.unflat(u.flat()).flat(), u.flat())
        assert u.flat().shape == (len(u),)

    def test_flat_follows_the_order_of_the_leaves(self) -> None:
        u = Vector({"z": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "a": torch.tensor(5.0)})
        assert u.flat().tolist() == [1, 2, 3, 4, 5]
        assert repr(u) == "Vector(2 leaves, 5 coordinates)"

    @pytest.mark.parametrize("length", [6, 8])
    def test_a_flat_vector_of_another_length_is_refused(self, length: int) -> None:
        with pytest.raises(RuntimeError, match="split"):
            whole([(2, 3), (1,)], 0).unflat(torch.zeros(length))


class TestValue:
    @quick
    @given(alike(2))
    def test_no_operation_changes_its_operands(self, given: list[Vector]) -> None:
        u, v = given
        before = [{name: leaf.numpy().copy() for name, leaf in one.leaves.items()} for one in (u, v)]
        results = [u + v, u - v, 2 * u, u / 2, -u, u.zeros(), u.copy(), u.map(torch.exp), u.to(torch.float32)]
        u.dot(v), u.norm(), u.unflat(v.flat())
        for result in results:
            result.map(lambda leaf: leaf.fill_(99))
        for one, held in zip((u, v), before, strict=True):
            assert list(one.leaves) == list(held)
            assert all(np.array_equal(one.leaves[name].numpy(), held[name]) for name in held)

    def test_the_dictionary_it_was_made_of_is_not_its_own(self) -> None:
        given = {"a": torch.ones(1)}
        u = Vector(given)
        given["b"] = torch.ones(1)
        assert list(u.leaves) == ["a"]

    def test_a_copy_has_its_own_memory_and_no_gradient(self) -> None:
        u = whole([(3,)], 1).map(lambda leaf: leaf.requires_grad_())
        leaf = u.copy().leaves["layer0.weight"]
        assert not leaf.requires_grad
        assert leaf.data_ptr() != u.leaves["layer0.weight"].data_ptr()

    def test_to_changes_the_type_of_every_leaf(self) -> None:
        assert {leaf.dtype for leaf in whole([(2,), (3, 1)], 0).to(torch.float32).leaves.values()} == {torch.float32}


class TestTransformations:
    @quick
    @given(alike(6))
    def test_vmap_sees_one_clients_vector(self, given: list[Vector]) -> None:
        left, right = given[:3], given[3:]

        def act(u: Vector, v: Vector) -> tuple[Vector, Tensor, Vector]:
            return u + 2 * v, u.dot(v), u.unflat(v.flat())

        together = vmap(act)(stack(left), stack(right))
        for number, (u, v) in enumerate(zip(left, right, strict=True)):
            moved_on, product, refilled = (row(part, number) for part in together)
            assert isinstance(moved_on, Vector)
            assert same(moved_on, u + 2 * v)
            assert torch.equal(product, u.dot(v))
            assert same(refilled, v)

    @quick
    @given(alike(2))
    def test_grad_of_the_papers_quadratic_is_the_pull(self, given: list[Vector]) -> None:
        w, anchor = given

        def pull(at: Vector) -> Tensor:
            away = at - anchor
            return 0.5 * away.dot(away)

        gradient = grad(pull)(w)
        assert isinstance(gradient, Vector)
        assert same(gradient, w - anchor)

    @pytest.mark.parametrize("kind", [torch.float32, torch.float64])
    def test_vmap_of_a_sum_with_a_factor_for_each_client(self, kind: torch.dtype) -> None:
        """One pass, of the vector's own type whatever the factor's."""
        left, right = (Vector({"w": torch.arange(6.0).reshape(2, 3) + shift}) for shift in (0.0, 7.0))
        factors = torch.tensor([0.5, -2.0], dtype=kind)
        found = vmap(lambda one, two, factor: one.plus(factor, two))(left, right, factors).leaves["w"]
        assert found.dtype == torch.float32
        assert torch.allclose(found, left.leaves["w"] + factors.float()[:, None] * right.leaves["w"])
        known = vmap(lambda one, two: one.plus(0.25, two))(left, right).leaves["w"]
        assert torch.allclose(known, left.leaves["w"] + 0.25 * right.leaves["w"])

    @quick
    @given(alike(4))
    def test_vmap_of_grad_with_one_vector_shared(self, given: list[Vector]) -> None:
        *clients, anchor = given

        def pull(at: Vector, to: Vector) -> Tensor:
            return 0.5 * (at - to).dot(at - to)

        gradients = vmap(grad(pull), in_dims=(0, None))(stack(clients), anchor)
        assert all(same(row(gradients, number), w - anchor) for number, w in enumerate(clients))
