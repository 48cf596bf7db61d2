"""Methods that are one iteration: both are played, and the iterates that are said to be the same are."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headway.cli.main import app
from headway.methods.catalogue import METHODS
from headway.methods.relatives import RELATIONS, Relation, relatives
from iterations import gap, iterates

PAGE = Path(__file__).parents[1] / "docs" / "same-as.md"
BASE: dict[str, Any] = {"rounds": 5, "rate_decay": 0.9, "weight_decay": 0.01}


def played(relation: Relation) -> tuple[list[Any], list[Any]]:
    """The two sequences that are compared."""
    settings = {**BASE, **relation.settings}
    rates = {"rate": 0.1}, {"rate": 0.1 * relation.rate}
    if "diloco" in relation.one + relation.other or "local-" in relation.one:
        rates = {"rate": 0.01}, {"rate": 0.01}
    one, other = (
        iterates(spelled, sent=iterate == "φ", **{**settings, **rate})
        for spelled, iterate, rate in zip((relation.one, relation.other), relation.iterates, rates, strict=True)
    )
    return one, other


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: f"{relation.one} {relation.other}")
def test_two_names_of_one_iteration_have_the_same_iterates(relation: Relation) -> None:
    one, other = played(relation)
    assert gap(one, other) <= 1e-12
    assert gap(one[:1], one[-1:]) > 1e-3, "iterates that stand still show nothing"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("fedacg:lam=0.7,beta=0.3", "fedmom:momentum=0.7"),
        ("fedacg:lam=0.7,beta=0", "fedavgm:momentum=0.7"),
        ("fedcm:alpha=0.3", "ghbm:beta=0.7,tau=2"),
    ],
)
def test_the_comparison_sees_a_difference(one: str, other: str) -> None:
    pair = Relation(one, other, ("φ", "θ"))
    assert gap(*played(pair)) > 1e-6


def test_the_page_has_a_row_for_each_relation() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| ([θφ]) \| `([^`]+)` \| ([θφ]) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert rows == [(one.one, one.iterates[0], one.other, one.iterates[1], one.where) for one in RELATIONS]


def test_show_names_the_relatives() -> None:
    answer = CliRunner().invoke(app, ["show", "fedacg"], catch_exceptions=False)
    assert "fedacg:lam=0.7,beta=0 is fedmom:momentum=0.7: φ here is θ there" in " ".join(answer.output.split())
    assert "same as" not in CliRunner().invoke(app, ["show", "fedpaq"], catch_exceptions=False).output
    assert not relatives("fedpaq")
    assert {relation.one.partition(":")[0] for relation in RELATIONS} <= {*METHODS}


def test_the_picture_is_of_these_relations() -> None:
    spec = importlib.util.spec_from_file_location("relatives_picture", PAGE.parent / "site" / "relatives_picture.py")
    assert spec is not None
    assert spec.loader is not None
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    content = drawing.PICTURE.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert drawing.fingerprint().encode() in content, "make pages draws it again"
