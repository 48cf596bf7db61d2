"""GradMA's quadratic programs, of the server and of clients: the closest feasible vector, whatever the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch import Tensor
from torch.func import vmap
from torch.nn import functional as F

from conftest import two_leaves
from headway.engine.compile import traced
from headway.methods.projection import many_rows, project_rows, project_three, project_three_by_tensor, three_rows
from headway.trees import leaves_of, row, stack
from headway.vectors import Vector
from reference.cone import nearest_in_cone_exactly


@dataclass(frozen=True)
class Program:
    p: np.ndarray
    rows: np.ndarray
    angle: float
    """The smallest between two rows that are not exactly parallel; 1 where there is no small one."""


KINDS = ("free", "zero", "parallel", "opposite", "nearly parallel", "nearly opposite", "balanced", "nearly balanced")
"""A balanced row is opposite to the sum of all free ones before it: together they leave no room in their span."""


@st.composite
def programs(draw: st.DrawFn, least: int = 1, most: int = 8) -> Program:
    """Rows that are random, zero, tiny, repeated, opposite or within a small angle of another; p may be one of them."""
    width = draw(st.integers(2, 10))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=least, max_size=most))
    sizes = draw(st.lists(st.integers(-24, 2), min_size=len(kinds), max_size=len(kinds)))
    angle = draw(st.sampled_from([1e-2, 1e-4, 1e-6]))
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    free = [numbers.normal(size=width)]
    rows: list[np.ndarray] = []
    for kind in kinds:
        if kind == "free":
            free.append(numbers.normal(size=width))
        base = free[-1] if kind == "free" else free[numbers.integers(len(free))]
        if "balanced" in kind:
            base = sum(free[1:], start=free[0])
        sign = -1.0 if "opposite" in kind or "balanced" in kind else 1.0
        turned = angle * numbers.normal(size=width) if "nearly" in kind else 0.0
        rows.append(np.zeros(width) if kind == "zero" else sign * base + turned)
    scaled = np.array([row * 10.0**size for row, size in zip(rows, sizes, strict=True)])
    p = draw(st.sampled_from([numbers.normal(size=width), free[0], -free[0], 1e-9 * numbers.normal(size=width)]))
    return Program(p, scaled, angle if any("nearly" in kind for kind in kinds) else 1.0)


def kkt_residual(problem: Program, found: np.ndarray) -> float:
    """The largest violation, for ‖p‖ = 1 and unit rows, of p̃ − p = Mᵀz, z ≥ 0, Mp̃ ≥ 0 and z_i⟨M[i], p̃⟩ = 0.

    Together these say that p̃ is feasible and that no feasible point is closer to p.
    """
    size = np.linalg.norm(problem.p)
    units = np.array([row / np.linalg.norm(row) for row in problem.rows if row.any()]).reshape(-1, len(problem.p))
    if not len(units):
        return float(np.abs(found - problem.p).max() / size)
    multipliers, away = nnls(units.T, (found - problem.p) / size, maxiter=1000)
    products = units @ found / size
    return max(float(away), float(-products.min()), float(np.abs(multipliers * products).max()))


def by_rows(problem: Program) -> np.ndarray:
    return project_rows(two_leaves(problem.p), two_leaves(problem.rows), len(problem.rows)).flat().numpy()


def by_three(problem: Program) -> np.ndarray:
    one, two, three = (two_leaves(row) for row in problem.rows)
    return project_three(two_leaves(problem.p), (one, two, three)).flat().numpy()


MANY = [300, pytest.param(3000, marks=pytest.mark.soak)]
"""How many programs are drawn."""


def drawn(check: Callable[[Program], None], many: int, least: int = 1, most: int = 8) -> None:
    """Check as many drawn programs."""
    settings(deadline=None, max_examples=many, derandomize=True, database=None)(given(programs(least, most))(check))()


@pytest.mark.parametrize("many", MANY)
def test_the_server_s_programme_gives_the_closest_feasible_vector(many: int) -> None:
    def check(problem: Program) -> None:
        assert kkt_residual(problem, by_rows(problem)) < 1e-9

    drawn(check, many)


@pytest.mark.parametrize("many", MANY)
def test_the_clients_programme_gives_the_closest_feasible_vector_too(many: int) -> None:
    """And the same one, as well as a residual of 1e-12 settles it for rows that are nearly parallel."""

    def check(problem: Program) -> None:
        found = by_three(problem)
        assert kkt_residual(problem, found) < 1e-9
        tolerance = (1e-9 + 1e-12 / problem.angle) * np.linalg.norm(problem.p)
        assert np.abs(found - by_rows(problem)).max() < tolerance

    drawn(check, many, least=3, most=3)


@pytest.mark.parametrize("many", MANY)
def test_the_clients_programme_from_products_of_short_numbers(many: int) -> None:
    """In float32 it is the exact one, as well as rows rounded to float32 and nearly parallel can say."""

    def check(problem: Program) -> None:
        p, one, two, three = (two_leaves(row).to(torch.float32) for row in (problem.p, *problem.rows))
        found = project_three(p, (one, two, three)).flat().double().numpy()
        assert np.abs(found - by_three(problem)).max() < 1e-6 / problem.angle * np.linalg.norm(problem.p)

    drawn(check, many, least=3, most=3)


def whole(draw: np.random.Generator, big: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """p and rows of whole numbers: rows up to 9·big, or such a combination of rows before that only digits are left."""
    width = int(draw.integers(2, 5))
    rows = [big * draw.integers(1, 10, width)]
    for _ in range(count - 1):
        digits = draw.integers(-9, 10, width)
        base = rows[draw.integers(len(rows))]
        kinds = (big * digits, digits - base, digits + base, 2 * base, 0 * base, -base, digits - sum(rows), -sum(rows))
        rows.append(kinds[draw.integers(len(kinds))])
    start = (0, int(draw.integers(-3, 4)) * rows[0], -sum(rows))[draw.integers(3)]
    return draw.integers(1, 10, width) + start, np.array(rows)


@pytest.mark.parametrize("big", [1, 10**2, 10**4, 10**6, 10**7])
def test_the_programs_find_the_true_point_as_near_as_rounding_lets_it_be_known(big: int) -> None:
    """Against fractions. Of rows of n digits some are at the angle 10^−n from dependence.

    The conditions alone hold far from it too: a constraint at this angle is broken by 10^−n of the distance.
    """
    draw = np.random.default_rng(big)
    for turn in range(150):
        p, rows = whole(draw, big, 3 if turn % 3 == 0 else int(draw.integers(2, 5)))
        exact = nearest_in_cone_exactly(p.tolist(), rows.tolist())
        problem = Program(p.astype(float), rows.astype(float), 1.0)
        limit = 4e-13 * big * np.linalg.norm(p) if big > 1 else 1e-14 * np.linalg.norm(p)
        assert np.linalg.norm(by_rows(problem) - exact) < limit
        if len(rows) == 3:
            assert np.linalg.norm(by_three(problem) - exact) < limit


@pytest.mark.parametrize("project", [by_rows, by_three])
@pytest.mark.parametrize("little", [1.0, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("angle", [1e-3, 1e-5, 1e-7, 1e-9])
def test_a_row_nearly_opposite_to_another_counts_also_where_it_bars_little(
    angle: float, little: float, project: Any
) -> None:
    """Of (x, y, z) the rows ask x ≥ 0 and angle · y ≥ x: p has a y of −little, which the point must not have.

    That breaks the second constraint by angle · little only.
    """
    rows = np.array([[1, 0, 0], [-1, angle, 0], [0, 0, 1]], dtype=float)
    found = project(Program(np.array([0.5 * little, -little, 1.0]), rows, angle))
    assert np.linalg.norm(found - [0, 0, 1]) < 1e-14 / angle
    inside = project(Program(np.array([-0.5 * little, little, 1.0]), rows, angle))
    assert np.linalg.norm(inside - [0, little, 1]) < 1e-14 / angle


@pytest.mark.parametrize("big", [10**2, 10**4, 10**6, 10**7])
@pytest.mark.parametrize("count", [10, 40, 100])
def test_many_rows_of_a_thin_cone_have_the_point_they_were_made_for(
    count: int, big: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """x is chosen, then rows that hold it and rows that leave it room, in whole numbers: p = x − Σ z_i M[i].

    Rows come in pairs that are opposite but for a few digits and cancel in p, or are repeated, zero or short.
    """
    monkeypatch.setattr(many_rows, "CHUNK", 6)
    draw = np.random.default_rng(count)
    turn = np.array([[1]])
    for _ in range(4):
        turn = np.kron(turn, [[1, 1], [1, -1]])  # orthogonal but for its length, and whole
    for _ in range(5):
        x = np.concatenate([[1 + draw.integers(9)], np.zeros(15, dtype=int)])
        rows, p = [], x.copy()
        while len(rows) < count:
            one, digits = big * draw.integers(-9, 10, 16), draw.integers(-9, 10, 16)
            holding, room = draw.integers(2), draw.integers(1, 10)
            one[0], digits[0] = (0, 0) if holding else (big * room, -room)
            pair = [one, digits - one if holding else one + digits, draw.integers(3) * one]
            if holding and len(rows) + 3 <= min(count, 12):
                p = p - pair[0] - pair[1]
            rows += pair
        order = draw.permutation(count)
        table = (np.array(rows)[:count] @ turn)[order]
        problem = Program((p @ turn).astype(float), table.astype(float), 1.0)
        assert np.linalg.norm(by_rows(problem) - x @ turn) < 4e-13 * big * np.linalg.norm(problem.p)


@pytest.mark.parametrize("order", [(1, 2, 3), (1, 3, 2), (3, 1, 2)])
def test_a_projection_never_lengthens(order: tuple[int, int, int]) -> None:
    """Two rows nearly opposite and the third nearly in their plane: rounding must not pass for a direction."""
    draw = torch.Generator().manual_seed(0)

    def units() -> Tensor:
        return F.normalize(torch.randn(50_000, 12, generator=draw, dtype=torch.float64), dim=1)

    row, across, p = units(), units(), units()
    angle = 10 ** (-4 * torch.rand(50_000, 1, generator=draw, dtype=torch.float64) - 3.5)
    vectors = torch.stack([p + row - across, row, -row - angle * across, 0.5 * (across - row)], 1)[:, [0, *order]]
    four = vectors.float().unbind(1)

    def projected(*vectors: Tensor) -> Any:
        first, one, two, three = (Vector({"a": vector}) for vector in vectors)
        return project_three(first, (one, two, three)).leaves["a"]

    longer = vmap(projected)(*four).norm(dim=1) / four[0].norm(dim=1)
    assert float(longer.max()) < 1 + 1e-5


@pytest.mark.parametrize("project", [project_three, project_three_by_tensor])
def test_short_numbers_stack(project: Any) -> None:
    """Stacked problems are each their own; by tensor, every tensor is its own problem."""
    draw = torch.Generator().manual_seed(4)
    four = [{name: torch.randn(5, size, generator=draw) for name, size in (("a", 3), ("b", 4))} for _ in range(4)]

    def projected(p: Any, *rows: Any) -> Any:
        return project(Vector(p), tuple(Vector(row) for row in rows)).leaves

    together = vmap(projected)(*four)
    moved = torch.zeros(5)
    for number in range(5):
        own = [{name: leaf[number] for name, leaf in one.items()} for one in four]
        alone = projected(*own)
        parts = {name: projected(*({name: one[name]} for one in own))[name] for name in own[0]}
        for name, leaf in alone.items():
            assert torch.allclose(leaf, together[name][number], atol=1e-6)
            assert project is project_three or torch.allclose(leaf, parts[name], atol=1e-6)
            moved[number] += (leaf - own[0][name]).norm()
    assert float(moved.max()) > 0.1


@pytest.mark.parametrize("angle", [1e-13, 1e-12, 1e-11])
@pytest.mark.parametrize("count", [3, 6])
def test_rounding_in_opposite_rows_is_no_constraint(angle: float, count: int) -> None:
    """Rows within the rank tolerance of opposite to another, or to a sum of two: the rest of them is no direction."""
    draw = np.random.default_rng(8)
    for turn in range(200):
        p, first, *free = draw.normal(size=(count + 1, 5))
        opposite = first + (turn % 2) * free[0]
        rows = [first, angle * draw.normal(size=5) - opposite, *free[: count - 2]]
        problem = Program(p, np.array(rows)[draw.permutation(count)], 1.0)
        assert kkt_residual(problem, by_rows(problem)) < 1e-9
        if count == 3:
            assert kkt_residual(problem, by_three(problem)) < 1e-9


@given(programs(), st.integers(0, 4))
@settings(deadline=None, max_examples=100, derandomize=True)
def test_the_programme_reads_so_many_rows_and_changes_none(problem: Program, spare: int) -> None:
    """Rows after the first `count` are not there: garbage in them changes nothing. No input is modified."""
    count = len(problem.rows)
    memory = two_leaves(np.concatenate([problem.rows, np.full((spare, len(problem.p)), np.nan)]))
    p = two_leaves(problem.p)
    before = [leaf.clone() for leaf in (*leaves_of(memory), *leaves_of(p))]
    found = project_rows(p, memory, count).flat().numpy()
    assert np.array_equal(found, by_rows(problem))
    after = (*leaves_of(memory), *leaves_of(p))
    assert all(torch.equal(one.nan_to_num(7.0), two.nan_to_num(7.0)) for one, two in zip(before, after, strict=True))
    assert np.array_equal(project_rows(p, memory, 0).flat().numpy(), problem.p)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("project", [project_three, project_three_by_tensor])
def test_every_form_of_the_clients_programme_says_the_same(
    project: Any, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client, a stack of clients and a traced program, with leaves of no, one, one piece's and more numbers."""
    draw = torch.Generator().manual_seed(3)
    shapes = {
        "none": (0,),
        "one": (),
        "piece": (three_rows.PIECE,),
        "more": (three_rows.PIECE + 1,),
        "table": (40, 501),
    }

    def one() -> Vector:
        return Vector({name: torch.randn(shape, generator=draw).to(kind) for name, shape in shapes.items()})

    p = one()
    rows = (one() - p, one() - 0.01 * p, p - one())
    used: list[str] = []
    groups = three_rows._groups

    def watched(p: Vector, rows: three_rows.Three) -> Any:
        found = groups(p, rows)
        used.append(type(found[0]).__name__)
        return found

    monkeypatch.setattr(three_rows, "_groups", watched)
    alone = project(p, rows)
    twice = vmap(lambda *vectors: project(vectors[0], vectors[1:]))(*(stack([vector, vector]) for vector in (p, *rows)))
    program = traced(lambda *vectors: project(vectors[0], vectors[1:]), (p, *rows), compiled=False)
    assert used == ["_Table", "_Pieces", "_Separate"]
    exact = project(p.to(torch.float64), tuple(row.to(torch.float64) for row in rows))
    rounding = float(p.norm()) * (1e-6 if kind == torch.float32 else 1e-2)
    assert float((exact - p.to(torch.float64)).norm()) > 10 * rounding, "some row must be in the way"
    for found in (alone, row(twice, 0), row(twice, 1), program(p, *rows)):
        assert {leaf.dtype for leaf in leaves_of(found)} == {kind}
        assert float((found.to(torch.float64) - exact).norm()) < rounding
