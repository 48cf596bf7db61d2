"""A run goes on with the data, the model and the method it began with, or says in one line what is another."""

from __future__ import annotations

import json
import linecache
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import headway as hw
from conftest import SMALL, norm_free, unequal_clients
from headway.cli.main import app
from headway.data.federation import Samples
from headway.errors import UserError
from headway.methods.slots import Step
from headway.runs import fingerprints
from headway.runs.digest import digest
from headway.runs.files import read_json, write_checked
from headway.runs.resume import lengthen
from headway.vectors import Vector

Given = dict[str, Any]
QUICK = SMALL.changed(rounds=3, executor="serial", checkpoint_every=1)


def halved(model: Vector, uploads: Any) -> Vector:
    return model + uploads.mean["delta"] * 0.5


def given(**changes: Any) -> Given:
    return {"model": norm_free(), **unequal_clients(), **changes}


def stopped(folder: Path, method: Any = "fedavg", **objects: Any) -> Path:
    """A run after its second round of three."""
    hw.simulate(method, QUICK.changed(rounds=2), out=folder, **objects)
    lengthen(folder, 3)
    return folder


def with_sample(row: int, value: float, client: int = 2) -> Given:
    """The clients' data with another number in one sample."""
    objects = given()
    objects["clients"][client][0][row, 0] = value
    return objects


def with_labels(client: int) -> Given:
    objects = given()
    x, y = objects["clients"][client]
    objects["clients"][client] = (x, (y + 1) % 3)
    return objects


def with_test() -> Given:
    objects = given()
    objects["test"] = (objects["test"][0] + 1, objects["test"][1])
    return objects


def moved_sample() -> Given:
    """The last sample of client 0 is client 1's first: the pool is the same, row by row."""
    objects = given()
    (x, y), (x_next, y_next) = objects["clients"][:2]
    objects["clients"][0] = (x[:-1], y[:-1])
    objects["clients"][1] = (np.concatenate([x[-1:], x_next]), np.concatenate([y[-1:], y_next]))
    return objects


def swapped(objects: Given) -> Given:
    objects["clients"][0], objects["clients"][1] = objects["clients"][1], objects["clients"][0]
    return objects


def single(objects: Given) -> Given:
    return {**objects, "clients": [(x.astype(np.float32), y) for x, y in objects["clients"]]}


OTHERS: dict[str, tuple[Callable[[], Given], str]] = {
    "one number": (lambda: with_sample(3, 9.5), "the training samples changed;"),
    "labels": (lambda: with_labels(4), "the training targets changed;"),
    "the test set": (with_test, "the test samples changed;"),
    "clients in another order": (
        lambda: swapped(given()),
        "the clients' numbers of samples, the training samples, the",
    ),
    "another owner": (moved_sample, "the clients' numbers of samples changed;"),
    "single precision": (
        lambda: single(given()),
        "the form of the training data (68 samples float64 (6,), targets int64 (), now 68 samples float32 (6,)",
    ),
    "a client less": (
        lambda: given(clients=unequal_clients()["clients"][:-1]),
        "the number of clients (6, now 5), the clients' numbers of samples",
    ),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped(tmp_path_factory.mktemp("begun") / "run", **given())


@pytest.mark.parametrize("case", OTHERS)
def test_other_own_data_is_refused_and_nothing_changes(case: str, begun: Path) -> None:
    make, words = OTHERS[case]
    before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    with pytest.raises(UserError) as caught:
        hw.resume(begun, **make())
    assert str(caught.value).startswith(f"what is given is not what {begun} was run with: {words}")
    assert str(caught.value).endswith("by accept_changes=True (--accept-changes)")
    assert "\n" not in str(caught.value)
    assert before == {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}


def test_equal_data_and_another_start_of_the_model_go_on(tmp_path: Path) -> None:
    """What is learnt is in the checkpoint, so a module made anew is the same."""
    folder = stopped(tmp_path / "run", **given())
    assert len(hw.resume(folder, **given(model=norm_free())).records) == 3


def test_a_finished_run_refuses_other_data_too(begun: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    hw.simulate("fedavg", QUICK.changed(rounds=1), out=folder, **given())
    with pytest.raises(UserError, match="the training samples changed"):
        hw.resume(folder, **with_sample(0, 1.0))
    assert len(hw.load_run(folder, **with_sample(0, 1.0)).records) == 1, "no number is made of it"


def test_what_is_meant_goes_on_and_is_recorded(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run", **given())
    with pytest.warns(UserWarning, match=r"^goes on from round 2 with what has changed: the training samples$"):
        hw.resume(folder, **with_sample(3, 9.5), accept_changes=True)
    accepted = [{"after round": 2, "changed": ["the training samples"]}]
    assert read_json(folder / "summary.json")["accepted_changes"] == accepted
    assert read_json(folder / "checkpoint/manifest.json")["fingerprints"]["accepted"] == accepted
    lengthen(folder, 4)
    hw.resume(folder, **with_sample(3, 9.5))  # the new data is the run's now
    assert read_json(folder / "summary.json")["accepted_changes"] == accepted
    lengthen(folder, 5)
    with pytest.raises(UserError, match="the training samples changed"):
        hw.resume(folder, **given())


def test_a_folder_without_fingerprints_goes_on_with_a_line(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run", **given())
    path = folder / "checkpoint/manifest.json"
    manifest = {name: value for name, value in read_json(path).items() if name not in ("check", "fingerprints")}
    write_checked(path, manifest)
    with pytest.warns(UserWarning, match=r"run was made before fingerprints were kept: .* is not checked$"):
        hw.resume(folder, **given())
    assert read_json(path)["fingerprints"]["now"]["the number of clients"] == "6", "from now on it is"


def test_ten_thousand_samples_are_read_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a larger set every so-manieth, first and last among them; of large samples fewer."""

    def noticed(row: int) -> bool:
        x = torch.zeros(30_001, 1)
        before = fingerprints._sampled(Samples(x, x[:, 0]))
        x[row] = 1.0
        return fingerprints._sampled(Samples(x, x[:, 0])) != before

    assert [noticed(row) for row in (0, 1, 3, 30_000)] == [True, False, True, True]
    monkeypatch.setattr(fingerprints, "BYTES", 400)
    assert [noticed(row) for row in (3, 30_000)] == [False, True]


# ── data sets by name ────────────────────────────────────────────────────────────────────────────────────────────────


def packed(path: Path, shift: float = 0.0) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(60, 4)) + shift, draw.integers(0, 3, 60)
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)


def test_a_file_that_has_changed_is_refused_on_the_command_line_unless_it_is_meant(tmp_path: Path) -> None:
    packed(tmp_path / "mine.npz")
    settings: Given = {"data": f"npz:{tmp_path}/mine.npz", "model": "linear", "clients": 6, "partition": "iid"}
    folder = tmp_path / "run"
    hw.simulate("fedavg", out=folder, rounds=1, device="cpu", executor="serial", **settings)
    lengthen(folder, 2)
    packed(tmp_path / "mine.npz", 0.5)
    refused = CliRunner().invoke(app, ["resume", str(folder), "--quiet"])
    assert str(refused.exception).startswith(
        f"the data 'npz:{tmp_path}/mine.npz' is not what {folder} was run with: the"
    )
    meant = CliRunner().invoke(app, ["resume", str(folder), "--accept-changes", "--json"])
    assert meant.exit_code == 0
    assert json.loads(meant.stdout)["runs"][0]["rounds"] == 2
    changed = ["the training samples", "the test samples"]
    assert read_json(folder / "summary.json")["accepted_changes"] == [{"after round": 1, "changed": changed}]
    assert "headway: goes on from round 1 with what has changed: the training samples, the test samples" in meant.stderr


def test_a_split_that_has_changed_can_be_meant(tmp_path: Path) -> None:
    lists = tmp_path / "mine.json"
    lists.write_text("[[0, 1, 2], [3, 4, 5]]")
    folder = tmp_path / "run"
    chosen: Given = {"partition": f"file:{lists}", "clients": 2, "model": "linear", "device": "cpu"}
    hw.simulate("fedavg", out=folder, rounds=1, executor="serial", **chosen)
    lengthen(folder, 2)
    lists.write_text("[[0, 1], [2, 3, 4, 5]]")
    with pytest.warns(UserWarning, match="the split$"):
        hw.resume(folder, accept_changes=True)
    with np.load(folder / "split.npz") as held:
        assert held["sizes"].tolist() == [2, 4]


def test_a_sweep_does_not_go_on_with_other_own_data(tmp_path: Path) -> None:
    """Its finished candidates would be compared with those of other data."""
    from headway.tuning.sweep import sweep

    chosen = QUICK.changed(rounds=1, validation=0.25)
    sweep("fedavg", {"rate": [0.1, 0.2]}, chosen, out=tmp_path / "sweep", **given())
    with pytest.raises(UserError, match=r"is not what .* was run with: the training samples"):
        sweep("fedavg", {"rate": [0.1, 0.2]}, chosen, out=tmp_path / "sweep", **with_sample(3, 9.5))


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Scaled(nn.Module):
    """A layer with a setting that no shape shows."""

    def __init__(self, scale: float, activation: Any = torch.relu, frozen: float = 1.0) -> None:
        super().__init__()
        self.scale, self.activation = scale, activation
        self.inner = nn.Linear(6, 3)
        self.shift = nn.Parameter(torch.full((3,), frozen), requires_grad=False)
        self.drop = nn.Dropout(0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.activation(self.scale * self.inner(x) + self.shift))


def dropping(rate: float) -> nn.Module:
    module = Scaled(1.0)
    module.drop = nn.Dropout(rate)
    return module


@pytest.mark.parametrize(
    "other",
    [lambda: Scaled(2.0), lambda: Scaled(1.0, torch.tanh), lambda: Scaled(1.0, frozen=2.0), lambda: dropping(0.5)],
    ids=["a setting", "an activation", "a frozen number", "a layer's setting"],
)
def test_another_own_model_of_equal_shapes_is_refused(other: Callable[[], nn.Module], tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run", **given(model=Scaled(1.0)))
    with pytest.raises(UserError, match=r"was run with: the model changed;"):
        hw.resume(folder, **given(model=other()))
    hw.resume(folder, **given(model=Scaled(1.0)))


# ── methods ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def scaling(factor: float) -> Callable[[Vector, Vector, Step], Vector]:
    def scaled(w: Vector, gradient: Vector, step: Step) -> Vector:
        return gradient * factor

    return scaled


def test_another_body_under_the_same_name_is_refused(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run", hw.Method(local=scaling(1.0), name="mine"), **given())
    for other in (
        hw.Method(local=scaling(1.5), name="mine"),
        hw.Method(local=scaling(1.0), server=halved, name="mine"),
    ):
        with pytest.raises(UserError, match=r"was run with: the method's part '(local\.scaled|server\.halved)'"):
            hw.resume(folder, method=other, **given())
    ahead = hw.Method(broadcast=hw.lookahead(0.5), server=hw.momentum(0.5), local=scaling(1.0), name="mine")
    with pytest.raises(UserError, match=r"the method's part 'broadcast\.lookahead', .* the method's part 'broadcast\."):
        hw.resume(folder, method=ahead, **given())
    assert len(hw.resume(folder, method=hw.Method(local=scaling(1.0), name="mine"), **given()).records) == 3


def made(source: str, known: bool, **names: Any) -> FunctionType:
    """The function `body` of some source, which can be looked up or not."""
    source = textwrap.dedent(source)
    name = f"<made {hash(source)} {known}>"
    if known:
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "mine", **names}
    exec(compile(source, name, "exec"), space)
    body: FunctionType = space["body"]
    return body


BODIES = {
    "a": "def body(x, k=2):\n    return x * k * SCALE\n",
    "another constant": "def body(x, k=2):\n    return x * k * SCALE * 2\n",
    "another default": "def body(x, k=3):\n    return x * k * SCALE\n",
    "another name": "def body(x, k=2):\n    return x * k * OTHER\n",
    "inside": "def body(x, k=2):\n    return (lambda: x * k * SCALE)()\n",
}


@pytest.mark.parametrize("known", [True, False], ids=["source", "bytecode"])
def test_a_digest_is_of_the_body_and_of_what_it_uses(known: bool) -> None:
    sums = {name: digest(made(source, known, SCALE=1.0, OTHER=1.0)) for name, source in BODIES.items()}
    assert len(set(sums.values())) == len(BODIES)
    assert digest(made(BODIES["a"], known, SCALE=1.0, OTHER=1.0)) == sums["a"]
    assert digest(made(BODIES["a"], known, SCALE=1.0, OTHER=9.0)) == sums["a"], "it does not use OTHER"
    assert digest(made(BODIES["a"], known, SCALE=2.0)) != sums["a"]
    assert digest(made(BODIES["inside"], known, SCALE=2.0)) != sums["inside"]


def test_a_digest_of_bytecode_is_another_than_that_of_the_source() -> None:
    assert digest(made(BODIES["a"], True)) != digest(made(BODIES["a"], False))


class Keeping:
    rate = 0.5

    def __init__(self, value: Any) -> None:
        self.value = value

    def update(self, x: float) -> float:
        return x * self.rate


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def test_objects_are_their_class_and_their_fields() -> None:
    pairs = [
        (Keeping(1), Keeping(2)),
        (Keeping(1), Keeping(1.0)),
        (Slotted(1), Slotted(2)),
        (Keeping([1, [2]]), Keeping([[1], 2])),
        (Keeping({"a": 1}), Keeping({"b": 1})),
        (Keeping(torch.zeros(2)), Keeping(torch.zeros(2, dtype=torch.float64))),
        (Keeping(np.zeros(2)), Keeping(np.ones(2))),
        (Keeping(torch.zeros(2, dtype=torch.bfloat16)), Keeping(torch.ones(2, dtype=torch.bfloat16))),
        (Keeping(Vector({"a": torch.zeros(1)})), Keeping(Vector({"a": torch.ones(1)}))),
        (Keeping(np.exp), Keeping(np.log)),
        (Keeping(torch.exp), Keeping(torch.log)),
        (partial(scaling, 1.0), partial(scaling, 2.0)),
        (Keeping(1).update, Keeping(2).update),
        ({1, 2}, {1, 3}),
        (hw.proximal(0.1), hw.proximal(0.2)),
    ]
    for one, other in pairs:
        assert digest(one) != digest(other)
        assert digest(one) == digest(one)
    assert digest(Keeping(Path("here"))) == digest(Keeping(Path("there"))), "where files lie changes no number"
    circle: list[Any] = [1]
    circle.append(circle)
    assert digest(circle) == digest(circle)


def test_a_digest_is_the_same_in_another_process() -> None:
    """Hash seeds, addresses and the order of sets have no part in it."""
    code = """
        import sys, torch
        sys.path.insert(0, sys.argv[1])
        from test_fingerprints import Keeping, Scaled, halved, scaling
        from headway.runs.digest import digest
        print(digest([Keeping({"a", "b", "c", torch.float32}), halved, scaling(2.0), Scaled(1.0), sorted, print]))
    """
    here = str(Path(__file__).parent)
    found = {
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), here],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
