"""Messages: what is written is read again, and nothing else is believed, whoever sends it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from torch import Tensor

from deployed import Deployment, assert_same
from headway.deploy.apps import SitePlace
from headway.deploy.codes import Code, Refused
from headway.deploy.messages import CensusAsk, RoundAsk, ScoreAsk, UploadReply, message_of, versions_in
from headway.deploy.records import Record, flat, form_digest, tree_of
from headway.deploy.site import answer
from headway.deploy.terms import Terms
from headway.trees import leaves_of
from headway.vectors import Vector

TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@some.composite
def tensors(draw: some.DrawFn) -> Tensor:
    shape = draw(some.lists(some.integers(0, 3), max_size=3))
    content = torch.tensor(
        draw(some.lists(some.integers(0, 200), min_size=math.prod(shape), max_size=math.prod(shape)))
    )
    return content.reshape(shape).to(draw(some.sampled_from(TYPES)))


NAMES = some.text(min_size=1, max_size=5)
TREES = some.recursive(
    tensors() | some.dictionaries(NAMES, tensors(), max_size=3).map(Vector),
    lambda inner: some.dictionaries(NAMES, inner, max_size=3) | some.lists(inner, max_size=3),
    max_leaves=6,
)


@QUICK
@given(TREES)
def test_a_tree_is_read_as_it_was_written(tree: Any) -> None:
    blank = torch.utils._pytree.tree_map(torch.zeros_like, tree)
    found = tree_of(flat(tree), blank, "field")
    assert all(
        torch.equal(mine, theirs) and mine.dtype == theirs.dtype
        for mine, theirs in zip(leaves_of(found), leaves_of(tree), strict=True)
    )
    assert form_digest(blank) == form_digest(tree)


@QUICK
@given(TREES, some.integers(-3, 3).filter(bool))
def test_an_array_of_another_length_is_refused(tree: Any, more: int) -> None:
    array = flat(tree)
    other = np.resize(array, max(array.size + more, 0)) if array.size else np.zeros(abs(more), np.uint8)
    with pytest.raises(Refused, match="BAD_MESSAGE: the field 'x' has"):
        tree_of(other, tree, "x")


@pytest.mark.parametrize(
    "given",
    [
        {"values": {"a": None}},
        {"values": {"a": [1]}},
        {"values": {"a": "x" * 2_000_000}},
        {"arrays": {"a": np.zeros(3)}},
        {"arrays": {"a": np.zeros((2, 2), np.uint8)}},
        {"arrays": {"a": np.array([object()])}},
        {"arrays": {"a": b"bytes"}},
    ],
)
def test_a_record_holds_scalars_and_plain_bytes_alone(given: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="BAD_MESSAGE"):
        Record("round", **given)


@pytest.mark.parametrize("text", ["1", "1.", "a.b", "1.x", "../../etc", "1.a/..", "1.A", " 1.a"])
def test_a_version_names_no_other_file(text: str) -> None:
    with pytest.raises(Refused, match="BAD_MESSAGE"):
        versions_in(text)


# ── what a site is sent ──────────────────────────────────────────────────────────────────────────────────────────────

SCALARS = some.one_of(some.text(max_size=30), some.integers(-(2**70), 2**70), some.floats(), some.booleans())


def mutated(record: Record, draw: Callable[[Any], Any]) -> Record:
    """A message with one or more of its parts gone, of another type, or of another size."""
    values, arrays = dict(record.values), dict(record.arrays)
    for _ in range(draw(some.integers(1, 3))):
        what = draw(some.sampled_from(["value", "no value", "array", "no array", "more", "kind"]))
        if what == "value" and values:
            values[draw(some.sampled_from(sorted(values)))] = draw(SCALARS)
        elif what == "no value" and values:
            values.pop(draw(some.sampled_from(sorted(values))))
        elif what == "array" and arrays:
            content = draw(some.binary(max_size=40))
            arrays[draw(some.sampled_from(sorted(arrays)))] = np.frombuffer(content, np.uint8)
        elif what == "no array" and arrays:
            arrays.pop(draw(some.sampled_from(sorted(arrays))))
        elif what == "more":
            arrays["further"] = np.zeros(4, np.uint8)
        elif what == "kind":
            return Record(draw(some.sampled_from(["census", "round", "score", "", "x"])), values, arrays)
    return Record(record.kind, values, arrays)


def files(folder: Path) -> dict[str, bytes]:
    found: Iterator[Path] = folder.rglob("*.safetensors")
    return {str(path): path.read_bytes() for path in found}


def test_a_site_answers_whatever_it_is_sent_and_keeps_what_it_has(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "scaffold", settings={"client_test": None, "global_loss": True})
    deployment.run()
    asked = {record.kind: record for name, record, _ in deployment.seen if name == "s0"}
    assert asked.keys() == {"census", "round", "score"}
    before, outside = files(deployment.state("s0")), sorted(path.name for path in tmp_path.iterdir())

    @settings(max_examples=50, deadline=None)
    @given(some.data())
    def hostile(data: some.DataObject) -> None:
        record = mutated(asked[data.draw(some.sampled_from(sorted(asked)))], data.draw)
        found = answer(deployment.apps["s0"], SitePlace("s0", deployment.state("s0")), record)
        assert found.kind in ("refusal", "present", "upload", "scored")
        if found.kind == "refusal":
            assert str(found.values["code"]) in Code.__members__
            assert len(str(found.values["text"])) <= 200
            assert str(tmp_path) not in str(found.values["text"])

    hostile()
    after = files(deployment.state("s0"))
    assert {path: content for path, content in after.items() if path in before} == {
        path: content for path, content in before.items() if path in after
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == outside


# ── what a server is sent ────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.data())
def test_a_site_that_sends_anything_is_left_out_and_the_others_go_on(
    tmp_path_factory: pytest.TempPathFactory, data: some.DataObject
) -> None:
    place = tmp_path_factory.mktemp("hostile")
    deployment = Deployment(place, "scaffold+fedpaq", settings={"rounds": 2}, terms=Terms(sites=4, deadline=60.0))
    sites = dict(deployment.transport.sites)

    def hostile(asked: Record) -> Record:
        found = sites["node-s1"](asked)
        return mutated(found, data.draw) if asked.kind == "round" and asked.values["round"] == 1 else found

    deployment.transport.sites = {**sites, "node-s1": hostile}
    result = deployment.run()
    first = result.records[0]
    if 1 in first["clients"]:  # what was changed did not matter
        assert_same(result, deployment.replayed())
        return
    assert list(first["clients"]) == [0, 2, 3]
    cause = first["absent"][0]["cause"]  # type: ignore[typeddict-item]
    assert cause.partition(":")[0] in ("BAD_REPLY", "OTHER_VERSION", "LOST")
    assert_same(result, deployment.replayed())


def test_numbers_that_are_not_finite_are_no_upload(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "fedavg", settings={"rounds": 1})
    sites = dict(deployment.transport.sites)

    def poisoned(asked: Record) -> Record:
        found = sites["node-s1"](asked)
        arrays = dict(found.arrays)
        if asked.kind == "round":
            arrays["payload/delta"] = np.full(arrays["payload/delta"].size // 8, np.nan).view(np.uint8)
        return Record(found.kind, found.values, arrays)

    deployment.transport.sites = {**sites, "node-s1": poisoned}
    result = deployment.run()
    assert result.records[0]["absent"] == [  # type: ignore[typeddict-item]
        {"client": 1, "cause": "BAD_REPLY: the upload has numbers that are not finite"}
    ]


@pytest.mark.parametrize("kind", [CensusAsk, RoundAsk, ScoreAsk, UploadReply])
def test_a_message_of_another_schema_is_refused(kind: Any) -> None:
    with pytest.raises(Refused, match="OTHER_VERSION: messages are of schema 1 here and of 2 there"):
        message_of(kind, Record(kind.kind, {"schema": 2}))
